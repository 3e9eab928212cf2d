"""The same call in tangrad and in torch, and the comparison of what they return."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import tangrad
from tangrad.plugin import Sample, SampleTensor, materialise
from tangrad_testing import calls
from tangrad_testing.closeness import agrees, as_array, describe_difference, dtype_name

try:
    import torch
except ImportError:  # the bodies that compare with it are then left out (plugin.py)
    torch = None

# In which dtype the oracle computes what torch has no kernel for.
WIDER = {"float16": "float32", "bfloat16": "float32", "uint16": "int64", "uint32": "int64"}
# What a narrow float's result is also compared with: computed wide, rounded once.
PRECISE = {
    "float16": "float64",
    "bfloat16": "float64",
    "float32": "float64",
    "complex64": "complex128",
}
EITHER: tuple[Any, ...] = (tangrad.Tensor,)
PLACES: tuple[Any, ...] = ()
# Whose functions the core names by a prefix: `torch.fft.ifft` is the op `fft_ifft`.
NAMESPACES: dict[str, Any] = {}
if torch is not None:
    EITHER += (torch.Tensor,)
    PLACES = (torch, torch.nn.functional, torch.special, torch.Tensor, torch.linalg)
    NAMESPACES = {
        "linalg": torch.linalg,
        "fft": torch.fft,
        "special": torch.special,
        "windows": torch.signal.windows,
    }


class NoOracle(LookupError):
    """torch has no counterpart of an op, and its definition names none."""


def counterpart(definition: Any) -> Callable[..., Any]:
    """Return torch's function for an op.

    Raises:
        NoOracle: there is none.
    """
    found = _find(definition)

    def quietly(*args: Any, **kwargs: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return found(*args, **kwargs)

    return quietly


def _find(definition: Any) -> Callable[..., Any]:
    named = definition.oracle
    if callable(named):
        return lambda *args, **kwargs: named(torch, *args, **kwargs)
    if isinstance(named, str):
        for place in PLACES:
            found = _attribute(place, named.removeprefix("torch."))
            if found is not None:
                return found
    places = PLACES if definition.namespace is None else PLACES[1:]
    if not definition.function:
        places = (torch.Tensor, *PLACES)
    for place in places:
        found = getattr(place, definition.name, None)
        if found is not None:
            return found
    if definition.namespace is not None:
        found = _attribute(
            NAMESPACES.get(definition.namespace),
            definition.name.removeprefix(f"{definition.namespace}_"),
        )
        if found is not None:
            return found
    raise NoOracle(f"torch has no '{named or definition.name}': give the definition an oracle")


def _attribute(place: Any, dotted: str) -> Any:
    for part in dotted.split("."):
        place = getattr(place, part, None)
    return place


def torch_tensor(array: np.ndarray, dtype: str) -> torch.Tensor:
    """Make torch's tensor of a sample."""
    made = torch.from_numpy(array).to(getattr(torch, dtype))
    return made if array.size else made.clone(memory_format=torch.contiguous_format)


def torch_arguments(sample: Sample) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the sample's arguments for torch."""
    return materialise(sample, torch_tensor, lambda name: getattr(torch, name))


def widened(sample: Sample, dtype: str, wide: str) -> Sample:
    """Return the sample with the tensors and dtype arguments of one dtype in another."""

    def convert(value: Any) -> Any:
        if isinstance(value, SampleTensor) and value.dtype == dtype:
            return SampleTensor(value.array.astype(wide), wide, value.strided)
        if isinstance(value, (list, tuple)):
            return type(value)(convert(v) for v in value)
        return value

    return Sample(
        tuple(map(convert, sample.args)), {k: convert(v) for k, v in sample.kwargs.items()}
    )


def tensors_in(value: Any) -> list[Any]:
    """List the tensors of either library in nested tuples, lists and dicts, in order."""
    return calls.tensors_in(value, EITHER)


def rebuild(value: Any, tensors: Iterator[Any]) -> Any:
    """Return nested arguments with the tensors of either library replaced by the next ones."""
    return calls.rebuild(value, tensors, EITHER)


def function_of_tensors(call: Callable[..., Any], args: Any, kwargs: Any) -> Callable[..., Any]:
    """Return the call as a function of its tensors alone."""

    def function(*tensors: Any) -> Any:
        new_args, new_kwargs = rebuild((args, kwargs), iter(tensors))
        return call(*new_args, **new_kwargs)

    return function


def assert_same(
    actual: Any,
    expected: Any,
    *,
    precise: Any = None,
    dtypes: bool = True,
    slack: float = 1.0,
    context: str = "",
) -> None:
    """Assert that results of tangrad and torch agree: structure, shapes, dtypes, values.

    Args:
        actual: a result of tangrad: a tensor, a number, or a tuple or list of such.
        expected: torch's.
        precise: torch's for wider inputs, as an alternative; values only.
        dtypes: whether dtypes must agree.
        slack: factor on the tolerance.
        context: put before a message.
    """
    if isinstance(expected, (tuple, list)) and not isinstance(expected, torch.Size):
        assert isinstance(actual, (tuple, list)), (
            f"{context}got {type(actual)}, torch returns {len(expected)} results"
        )
        assert len(actual) == len(expected), (
            f"{context}got {len(actual)} results, torch returns {len(expected)}"
        )
        alternatives = precise if isinstance(precise, (tuple, list)) else [None] * len(expected)
        for i, (a, e, p) in enumerate(zip(actual, expected, alternatives, strict=True)):
            assert_same(
                a, e, precise=p, dtypes=dtypes, slack=slack, context=f"{context}result {i}: "
            )
        return
    if not isinstance(expected, torch.Tensor):
        if isinstance(expected, torch.dtype):
            expected, actual = str(expected).rpartition(".")[2], str(actual).rpartition(".")[2]
        assert actual == expected or (actual != actual and expected != expected), (
            f"{context}got {actual!r}, torch returns {expected!r}"
        )
        return
    assert isinstance(actual, tangrad.Tensor), (
        f"{context}got {type(actual)} where torch returns a tensor"
    )
    assert tuple(actual.shape) == tuple(expected.shape), (
        f"{context}shape {tuple(actual.shape)}, torch has {tuple(expected.shape)}"
    )
    if dtypes:
        assert dtype_name(actual) == dtype_name(expected), (
            f"{context}dtype {dtype_name(actual)}, torch has {dtype_name(expected)}"
        )
    a, e = as_array(actual), as_array(expected)
    good = agrees(a, e, dtype_name(actual), slack)
    if (
        not good.all()
        and isinstance(precise, torch.Tensor)
        and tuple(precise.shape) == tuple(expected.shape)
    ):
        good = good | agrees(a, as_array(precise), dtype_name(actual), slack)
    assert good.all(), context + describe_difference(a, e, good)
