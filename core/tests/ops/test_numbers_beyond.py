"""Numbers beside tensors whose dtype has no place for them: refused, or right as numbers are."""

from __future__ import annotations

import itertools
import operator

import pytest

import tangrad

INTEGERS = ("uint8", "int8", "int16", "int32", "int64")
BEYOND = (200, 300, -1, -129, -300, 70000, 2**31, 2**40, -(2**40), 2**63, -(2**63) - 1, 2**70)
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
REFUSERS = {
    "clamp": lambda x, n: x.clamp(max=n),
    "clamp below": lambda x, n: x.clamp(min=n),
    "clamp between": lambda x, n: x.clamp(0, n),
    "clamp in place": lambda x, n: x.clamp_(max=n),
    "clamp into": lambda x, n: tangrad.clamp(x, max=n, out=tangrad.empty_like(x)),
    "clip": lambda x, n: x.clip(n),
    "where": lambda x, n: tangrad.where(x > 5, x, n),
    "threshold": lambda x, n: tangrad.nn.functional.threshold(x, 2, n),
    "pad": lambda x, n: tangrad.nn.functional.pad(x, (1, 1), value=n),
    "addcmul": lambda x, n: tangrad.addcmul(x, x, x, value=n),
    "add": lambda x, n: x.add(x, alpha=n),
    "index_add": lambda x, n: x.index_add(0, tangrad.tensor([0], device=x.device), x[:1], alpha=n),
    "addmm": lambda x, n: tangrad.addmm(x[None], x[None, :1], x[None], alpha=n),
    "foreach": lambda x, n: tangrad._foreach_add([x], [x], alpha=n),
    "linspace": lambda x, n: tangrad.linspace(0, n, 3, dtype=x.dtype),
    "masked_fill": lambda x, n: x.masked_fill(x > 2, n),
}


NUMBERS = {"int8": 200, "uint8": 300, "int32": 2**40, "float16": 70000, "float32": 1e39}
# Factors beside halves, which are computed in float32, as in PyTorch.
WIDE = {("addcmul", "float16")}


@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize(
    ("name", "dtype", "number"),
    [(n, d, NUMBERS[d]) for n in REFUSERS for d in NUMBERS if (n, d) not in WIDE],
)
def test_what_becomes_an_element_or_a_bound_has_to_fit(name, device, dtype, number):
    x = tangrad.tensor([3, 7], dtype=getattr(tangrad, dtype), device=device)
    with pytest.raises(RuntimeError, match="without overflow"):
        REFUSERS[name](x, number)
    assert x.tolist() == [3, 7]


@pytest.mark.parametrize("name", COMPARISONS)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_a_comparison_is_that_of_the_numbers(name, dtype):
    info, compare = tangrad.iinfo(getattr(tangrad, dtype)), getattr(operator, name)
    values = [info.min, 0, 1, 44, info.max]
    for device, number in itertools.product(("cpu", "reference"), BEYOND):
        x = tangrad.tensor(values, dtype=getattr(tangrad, dtype), device=device)
        expected = [compare(v, number) for v in values]
        assert getattr(x, name)(number).tolist() == expected, number
        out = tangrad.empty(5, dtype=tangrad.bool, device=device)
        assert getattr(tangrad, name)(x, number, out=out).tolist() == expected
        assert [bool(v) for v in getattr(x, f"{name}_")(number).tolist()] == expected


@pytest.mark.parametrize("name", COMPARISONS)
@pytest.mark.parametrize(("dtype", "number"), [("float32", 1e39), ("float16", 7e4)])
def test_a_finite_number_is_not_infinite_to_a_comparison(name, dtype, number):
    compare, inf, nan = getattr(operator, name), float("inf"), float("nan")
    values = [-inf, -1.0, 65504.0, inf, nan]
    for device, n in itertools.product(("cpu", "reference"), (number, -number)):
        x = tangrad.tensor(values, dtype=getattr(tangrad, dtype), device=device)
        assert getattr(x, name)(n).tolist() == [compare(v, n) for v in values], n


def truncated(a, b):
    """Divide towards zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


DIVISIONS = {
    "floor_divide": (lambda a, b: a // b, operator.floordiv),
    "remainder": (lambda a, b: a % b, operator.mod),
    "fmod": (lambda a, b: a.fmod(b), lambda a, b: a - b * truncated(a, b)),
    "trunc": (lambda a, b: a.div(b, rounding_mode="trunc"), truncated),
    "floor_divide of": (lambda a, b: b // a, lambda a, b: b // a),
    "remainder of": (lambda a, b: b % a, lambda a, b: b % a),
}


@pytest.mark.parametrize("name", DIVISIONS)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_a_division_is_that_of_the_numbers_of_which_the_low_bits_are_kept(name, dtype):
    info, (divide, exact) = tangrad.iinfo(getattr(tangrad, dtype)), DIVISIONS[name]
    values = [info.min or 5, 1, 2, 44, info.max]
    for device, number in itertools.product(("cpu", "reference"), BEYOND):
        x = tangrad.tensor(values, dtype=getattr(tangrad, dtype), device=device)
        modulus = 1 << info.bits
        expected = [(exact(v, number) - info.min) % modulus + info.min for v in values]
        assert divide(x, number).tolist() == expected, number


def test_a_division_in_place_and_into_another_tensor():
    x = tangrad.tensor([-5, 5], dtype=tangrad.int8)
    out = tangrad.empty(2, dtype=tangrad.int8)
    assert tangrad.remainder(x, 1000, out=out).tolist() == [-29, 5]  # 995 modulo 256
    assert x.floor_divide_(1000).tolist() == [-1, 0]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_sums_differences_and_products_wrap_around(agree, dtype):
    def program(F):
        x = F.tensor([1, 7], dtype=getattr(F, dtype))
        numbers = [n for n in BEYOND if -(2**63) < n < 2**64]
        return [(x + n, n + x, x - n, n - x, x * n, x | n, x & n) for n in numbers]

    agree(program)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
def test_large_integers_are_elements_of_floating_tensors(agree, dtype):
    def program(F):
        x = F.zeros(2, dtype=getattr(F, dtype))
        return [(x.fill_(n), F.full((1,), n, dtype=x.dtype)) for n in (2**63, 2**64 - 1)]

    agree(program)
