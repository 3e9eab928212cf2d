"""Every op gives PyTorch's results and gradients, of first and second order, on its own samples."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import pytest
from torch_oracle import (
    DEFINITIONS,
    DTYPES,
    arguments,
    as_torch,
    assert_same,
    counterpart,
    differentiable,
    finite,
    own_tensor,
    refuses,
    samples,
    torch,
    torch_arguments,
)

import tangrad
from tangrad.ops.samples import Sampler

# (op, dtype): why the result is not PyTorch's.
DEVIATIONS = {
    **{(name, "uint8"): "any and all give bool, PyTorch uint8" for name in ("any", "all")},
}
# op: why gradients are not PyTorch's.
GRADIENT_DEVIATIONS = {
    "hardsigmoid": "PyTorch rounds 1/6 to float32 in float64, too",
}
SECOND_ORDER_DEVIATIONS = {
    **GRADIENT_DEVIATIONS,
    "angle": "PyTorch gives NaN at zero",
    "copysign": "PyTorch divides zero by zero at zero",
    "norm_euclidean": "PyTorch gives NaN at zero",
    "linear_recurrence": "PyTorch's loop does not use the first decay, so it has no gradient",
}

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", DEFINITIONS)
def test_results_are_those_of_pytorch(name: str, dtype: str) -> None:
    definition = DEFINITIONS[name]
    if (name, dtype) in DEVIATIONS:
        pytest.skip(DEVIATIONS[name, dtype])
    for k, sample in enumerate(samples(definition, dtype)):
        args, kwargs = torch_arguments(sample)
        try:
            expected = counterpart(definition)(*args, **kwargs)
        except (RuntimeError, TypeError, IndexError):
            continue
        own_args, own_kwargs = arguments(sample)
        try:
            actual = definition.op(*own_args, **own_kwargs)
        except RuntimeError as error:
            if not refuses(definition, dtype, error):
                raise
            pytest.skip(str(error))
        assert_same(as_torch(actual), expected, f"{name} of sample {k}")


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("name", DEFINITIONS)
def test_gradients_are_those_of_pytorch(name: str, dtype: str) -> None:
    if name in GRADIENT_DEVIATIONS:
        pytest.skip(GRADIENT_DEVIATIONS[name])
    _compare_gradients(name, dtype, second_order=False)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("name", DEFINITIONS)
def test_second_order_gradients_are_those_of_pytorch(name: str, dtype: str) -> None:
    if name in SECOND_ORDER_DEVIATIONS:
        pytest.skip(SECOND_ORDER_DEVIATIONS[name])
    _compare_gradients(name, dtype, second_order=True)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        (name, number)
        for name, definition in DEFINITIONS.items()
        if definition.errors is not None
        for number in range(len(definition.errors(Sampler("float32"))))
    ],
)
def test_bad_input_raises_what_the_definition_says(name: str, number: int) -> None:
    definition = DEFINITIONS[name]
    sample, kind, message = definition.errors(Sampler("float32"))[number]
    args, kwargs = arguments(sample)
    with pytest.raises(kind, match=None) as caught:
        definition.op(*args, **kwargs)
    assert message in str(caught.value)


def _compare_gradients(name: str, dtype: str, second_order: bool) -> None:
    definition = DEFINITIONS[name]
    if isinstance(definition.vjp, str):
        pytest.skip(f"no derivative: {definition.no_derivative_reason}")
    compared = 0
    for k, sample in enumerate(samples(definition, dtype)):
        args, kwargs = torch_arguments(sample)
        if second_order and not finite(args):
            continue
        try:
            expected = _gradients(torch, counterpart(definition), args, kwargs, second_order)
        except (RuntimeError, TypeError, IndexError):
            continue
        args, kwargs = arguments(sample)
        try:
            actual = _gradients(tangrad, definition.op, args, kwargs, second_order)
        except RuntimeError as error:
            if not refuses(definition, dtype, error):
                raise
            pytest.skip(str(error))
        for a, e in zip(actual, expected, strict=False):
            if a is not None or e is not None:
                _assert_same_gradient(as_torch(a), e, f"{name}, gradient of sample {k}")
                compared += 1
    if compared == 0:
        pytest.skip("PyTorch has no gradient")


def _assert_same_gradient(actual: Any, expected: Any, what: str) -> None:
    actual = torch.zeros_like(expected) if actual is None else actual
    expected = torch.zeros_like(actual) if expected is None else expected
    assert_same(actual, expected, what)


def _gradients(
    library: Any, function: Any, args: Sequence[Any], kwargs: dict[str, Any], second_order: bool
) -> Sequence[Any]:
    """Return the gradients of a call for random cotangents; or theirs, for random ones again."""
    leaves = [x.detach().clone().requires_grad_() if differentiable(x) else x for x in args]
    inputs = [x for x in leaves if differentiable(x)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = function(*leaves, **kwargs)
    results = results if isinstance(results, (tuple, list)) else (results,)
    outputs = [r for r in results if isinstance(r, library.Tensor) and r.requires_grad]
    if not outputs:
        return []
    cotangents = _cotangents(library, outputs, seed=0)
    gradients = library.autograd.grad(
        outputs, inputs, cotangents, create_graph=second_order, allow_unused=True
    )
    if not second_order:
        return gradients
    again = [g for g in gradients if g is not None and g.requires_grad]
    if not again:
        return []
    return library.autograd.grad(
        again, inputs + cotangents, _cotangents(library, again, seed=1), allow_unused=True
    )


def _cotangents(library: Any, outputs: Sequence[Any], seed: int) -> list[Any]:
    """Draw the same cotangents for both libraries."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for output in outputs:
        name = str(output.dtype).rpartition(".")[2]
        drawn = torch.randn(
            tuple(output.shape), dtype=getattr(torch, name), generator=generator
        )
        made.append(drawn if library is torch else own_tensor(drawn.numpy(), name))
        made[-1].requires_grad_()
    return made
