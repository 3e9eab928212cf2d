"""Compiled functions are given numbers that a dtype has no place for: they do as eager does."""

from __future__ import annotations

import math

import pytest

import tangrad
from tangrad.nn import functional as F

pytestmark = pytest.mark.filterwarnings("ignore")

USUAL = {"float": (0.25, 0.75, 1.25, 0.375), "int": (5, 7, 4, 11)}
ODD = (300, -300, 7e4, 2**40, 2**63, 1e39, -1e39, 1e308, math.inf, math.nan, 2**200, -1.0, 0.1, 6,
       3 + 0j, 0.5j)  # fmt: skip
DTYPES = ("float32", "float16", "bfloat16", "int8", "uint8", "int32", "bool", "complex64")


def written(method, *before):
    """Return what calls a method that writes into a copy."""

    def run(a, k):
        made = a.clone()
        getattr(made, method)(*before, k)
        return made

    return run


CALLS = {
    "a + k": lambda a, k: a + k,
    "k - a": lambda a, k: k - a,
    "a * k": lambda a, k: a * k,
    "a / k": lambda a, k: a / k,
    "a // k": lambda a, k: a // k,
    "a % k": lambda a, k: a % k,
    "a ** k": lambda a, k: a**k,
    "k ** a": lambda a, k: k**a,
    "a < k": lambda a, k: a < k,
    "a >= k": lambda a, k: a >= k,
    "a == k": lambda a, k: a == k,
    "a * (k * k + 1)": lambda a, k: a * (k * k + 1),
    "add alpha": lambda a, k: a.add(a, alpha=k),
    "sub alpha": lambda a, k: a.sub(a, alpha=-k),
    "addcmul": lambda a, k: a.addcmul(a, a, value=k),
    "addcdiv": lambda a, k: a.addcdiv(a, a + 3, value=k),
    "lerp": lambda a, k: a.lerp(a + 1, k),
    "clamp min": lambda a, k: a.clamp(min=k),
    "clamp max of a sum": lambda a, k: a.clamp(max=k * 2 + 1),
    "clamp": lambda a, k: a.clamp(0, k),
    "where": lambda a, k: tangrad.where(a > 1, k, a),
    "masked_fill": lambda a, k: a.masked_fill(a > 1, k),
    "full_like": lambda a, k: tangrad.full_like(a, k),
    "full": lambda a, k: tangrad.full((2,), k, dtype=a.dtype),
    "nan_to_num": lambda a, k: tangrad.nan_to_num(a, nan=k),
    "xlogy": lambda a, k: tangrad.xlogy(a, k),
    "pad": lambda a, k: F.pad(a, (1, 1), value=k),
    "threshold": lambda a, k: F.threshold(a, 1, k),
    "threshold by it": lambda a, k: F.threshold(a, k, 1),
    "hardtanh": lambda a, k: F.hardtanh(a, -1, k),
    "leaky_relu": lambda a, k: F.leaky_relu(a, k),
    "elu": lambda a, k: F.elu(a, k),
    "softplus": lambda a, k: F.softplus(a, k),
    "softshrink": lambda a, k: F.softshrink(a, k),
    "hardshrink": lambda a, k: F.hardshrink(a, k),
    "index_fill": lambda a, k: a.index_fill(0, tangrad.tensor([0]), k),
    "_foreach_mul": lambda a, k: tangrad._foreach_mul([a], k)[0],
    "fill_": written("fill_"),
    "add_": written("add_"),
    "mul_": written("mul_"),
    "a[0] = k": written("__setitem__", 0),
}


def outcome(function, a, k):
    """Return a result's dtype and elements, or the class of what is raised."""
    try:
        result = function(a, k)
    except Exception as error:
        return type(error).__name__
    return str(result.dtype), repr(result.tolist())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CALLS)
def test_numbers_beyond_the_dtype_are_for_a_graph_what_they_are_for_eager(name, dtype):
    function, a, wrong = CALLS[name], tangrad.tensor([1, 2]).to(getattr(tangrad, dtype)), []
    for kind, usual in USUAL.items():
        options = {"options": {"measure": False}, "recompile_limit": 80}
        compiled = tangrad.compile(function, fullgraph=True, **options)
        for k in (*usual, *ODD, *usual):
            wanted = outcome(function, a, k)
            for turn in ("first", "second"):  # by a graph, where it has one
                found = outcome(compiled, a, k)
                if found != wanted:
                    wrong.append((kind, turn, k, found, wanted))
    assert not wrong, wrong


@pytest.mark.parametrize("k", [0.5, 3.0, 3e38])
def test_numbers_that_have_a_place_are_one_graph(k):
    compiled = tangrad.compile(
        lambda a, k: a.clamp(max=k), fullgraph=True, options={"measure": False}
    )
    for number in (0.25, 0.75, 1.25, k, 0.375, k):
        assert compiled(tangrad.ones(2), number).tolist() == [min(1.0, number)] * 2
    assert len(compiled.compiled.executables) == 2


@pytest.mark.parametrize("k", [1e39, -1e39, 1e300, -1e300])
@pytest.mark.parametrize("dtype", [tangrad.bfloat16, tangrad.float16])
def test_constants_beyond_half_types_stand_in_kernels(dtype, k):
    def function(a):
        return tangrad.where(a > k, a * 2 + 1, a - 3) * 0.5

    fast = tangrad.compile(function, fullgraph=True, options={"measure": False})
    a = tangrad.tensor([0.5, -2.0, math.inf, -math.inf], dtype=dtype)
    for _ in range(3):
        assert fast(a).equal(function(a))
