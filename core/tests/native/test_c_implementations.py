"""What C computes in the place of definitions says the same as they do."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import tangrad
from tangrad import _C
from tangrad.ops.definition import registry
from tangrad.ops.definition.define import composite, pointwise
from tangrad.ops.definition.samples import Sampler, materialise

NATIVE = Path(__file__).resolve().parents[2] / "src" / "tangrad" / "native"
# Products and roots in the place of a logarithm, as in PyTorch, down to the last bit.
ROUNDED_OTHERWISE = ("pow",)
DTYPES = ("float32", "int64", "complex64", "bool")


def answered_by_c():
    return {
        name: op
        for name, op in registry.load_all().items()
        if op.definition.c_implementation is not None and op.c_implementation is not None
    }


def tensor_of(values, dtype):
    stored = values.view(np.float32) if dtype == "bfloat16" else values
    return tangrad.tensor(np.ascontiguousarray(stored), dtype=getattr(tangrad, dtype))


def described(result):
    if isinstance(result, (tuple, list)):
        return [described(part) for part in result]
    if not isinstance(result, tangrad.Tensor):
        return result
    place = (tuple(result.shape), result.stride(), result.storage_offset(), result.dtype)
    return place, result._base is None, result.resolve_conj().tolist()


def outcome(op, sample):
    tangrad.manual_seed(3)
    args, kwargs = materialise(sample, tensor_of, lambda name: getattr(tangrad, name))
    try:
        return described(op(*args, **kwargs))
    except (RuntimeError, TypeError, IndexError, ValueError, NotImplementedError) as error:
        return type(error), str(error)


def without_values(name):
    return name.startswith(("empty", "new_empty"))


def samples_of(name):
    """Return the samples of an op, or of the public op that it is a form of."""
    op = answered_by_c()[name]
    public = next((o for o in registry.OPS.values() if op in (o.overloads or ())), op)
    return op.definition.samples or public.definition.samples


COMPARED = [n for n in sorted(answered_by_c()) if samples_of(n) and not without_values(n)]


@pytest.mark.parametrize("name", COMPARED)
def test_an_op_says_the_same_with_and_without_its_c_implementation(name):
    op = answered_by_c()[name]
    public = next((o for o in registry.OPS.values() if op in (o.overloads or ())), op)
    for dtype in DTYPES:
        for sample in samples_of(name)(Sampler(dtype)):
            with_c = outcome(public, sample)
            _C.use_c_implementation(op, False)
            try:
                without = outcome(public, sample)
            finally:
                _C.use_c_implementation(op, True)
            if name in ROUNDED_OTHERWISE and len(with_c) == 3:
                assert with_c[:2] == without[:2]
                np.testing.assert_allclose(with_c[2], without[2], rtol=1e-6)
            else:
                assert repr(with_c) == repr(without), (dtype, sample)


def test_every_c_implementation_is_declared_by_an_op_of_its_kind():
    declared = {op.c_implementation: op.kind for op in answered_by_c().values()}
    assert declared == {name: kind for name, (kind, _, _) in _C.c_implementations().items()}


def given(schema, name):
    composite(schema, c_implementation=name)(lambda: None)


def test_a_signature_that_its_c_implementation_was_not_written_for_is_refused():
    with pytest.raises(TypeError, match=r"C implementation 'transpose'|stands in for a view"):
        given("turned(Tensor self, dim dim0, dim dim1) -> Tensor", "transpose")
    with pytest.raises(TypeError, match="reads 'Tensor other'.*change both together"):
        given("times(Tensor self, Tensor factor) -> Tensor", "matmul")
    with pytest.raises(TypeError, match="there is no C implementation 'nothing'"):
        given("times(Tensor self, Tensor other) -> Tensor", "nothing")


def test_what_c_calls_by_place_has_the_parameters_that_it_gives():
    for name, names in _C.called_ops().items():
        op = registry.find(name)
        schema = (op.functional or op).definition.schema
        assert schema.names[: len(names)] == names, name


def test_every_op_that_c_calls_by_place_is_listed():
    called = re.compile(r'call_(?:flat|inner)\((?:<Op>)?lookup_op\("(\w+)"\)')
    text = "".join(path.read_text("utf-8") for path in NATIVE.glob("*.pxi"))
    found = set(called.findall(text))
    assert found
    # `view` is called by its form for sizes, `view_size`.
    assert found - {"view"} <= set(_C.called_ops())


def test_an_op_with_a_c_implementation_tells_for_which_calls_c_answers():
    from tangrad.ops.definition.describe import describe

    assert "C answers first ('matmul'): two matrices" in describe("matmul")
    assert "C answers first" not in describe("sin")


def test_a_flag_of_a_pointwise_op_reaches_every_expression_of_it():
    made = pointwise(
        "kept_number(Tensor self, Operand other, *, str way) -> Tensor",
        {"sum": "self + other", "product": "self * other"},
        vjp="none: a test", function=False, method=False, exact_numbers=True,
    )  # fmt: skip
    # Beside bfloat16, 1 + 2^-9 would be rounded to 1; the product is not the same then.
    x = tangrad.tensor([1 + 2**-7], dtype=tangrad.bfloat16)
    exact = tangrad.tensor([(1 + 2**-7) * (1 + 2**-8 + 2**-9)], dtype=tangrad.float64)
    assert made(x, 1 + 2**-8 + 2**-9, way="product").item() == exact.to(tangrad.bfloat16).item()
    assert exact.to(tangrad.bfloat16).item() != (x * tangrad.tensor(1.0)).item()
