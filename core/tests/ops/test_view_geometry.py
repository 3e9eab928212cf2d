"""The C implementations of view geometry agree with the rules in the definitions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tangrad
from tangrad.ops.definition.registry import find

SIZES = st.integers(0, 4)
SHAPES = st.lists(SIZES, max_size=4).map(tuple)


@st.composite
def strided(draw: Any) -> Any:
    """Draw a tensor whose dimensions are permuted, sliced with steps and expanded."""
    shape = draw(SHAPES)
    count = 1
    for size in shape:
        count *= 2 * size + 1
    x = tangrad.arange(count).reshape([2 * size + 1 for size in shape])
    for dim, size in enumerate(shape):
        step = draw(st.integers(1, 2))
        x = x.narrow(dim, 0, step * size)[(slice(None),) * dim + (slice(None, None, step),)]
    return x.permute(draw(st.permutations(range(len(shape)))))


def outcome(call: Any) -> Any:
    """Give the geometry that a call makes, or the type of its error."""
    try:
        result = call()
    except (IndexError, RuntimeError, TypeError) as error:
        return type(error)
    if isinstance(result, tuple):
        shape, stride, offset = result
        return tuple(shape), tuple(stride), offset
    return tuple(result.shape), tuple(result.stride()), result.storage_offset()


def both(name: str, x: Any, *args: Any) -> tuple[Any, Any]:
    """Give what the compiled view makes of arguments, and what the definition's rule says."""
    op = find(name)
    missing = [p.default for p in op.definition.schema.params[1 + len(args) :]]
    return (
        outcome(lambda: op(x, *args)),
        outcome(lambda: op.definition.view_geometry((x, *args, *missing))),
    )


def meaningful(geometry: Any) -> Any:
    """Leave out what no element depends on: strides of sizes 0 and 1, all if there is none."""
    if isinstance(geometry, type):
        return geometry
    shape, stride, offset = geometry
    if 0 in shape:
        return shape
    return shape, [s for n, s in zip(shape, stride, strict=True) if n > 1], offset


@given(strided(), st.data())
@settings(max_examples=60, deadline=None)
def test_transpose(x: Any, data: Any) -> None:
    dims = st.integers(0, max(0, x.ndim - 1))
    compiled, rule = both("transpose", x, data.draw(dims), data.draw(dims))
    assert compiled == rule


@given(strided(), st.data())
@settings(max_examples=60, deadline=None)
def test_permute(x: Any, data: Any) -> None:
    compiled, rule = both("permute", x, tuple(data.draw(st.permutations(range(x.ndim)))))
    assert compiled == rule


@given(strided())
@settings(max_examples=40, deadline=None)
def test_t(x: Any) -> None:
    compiled, rule = both("t", x)
    assert compiled == rule


@given(strided(), st.data())
@settings(max_examples=60, deadline=None)
def test_select(x: Any, data: Any) -> None:
    dim, index = data.draw(st.integers(0, max(0, x.ndim - 1))), data.draw(st.integers(-6, 6))
    compiled, rule = both("select", x, dim, index)
    assert compiled == rule


@given(strided(), st.data())
@settings(max_examples=100, deadline=None)
def test_slice(x: Any, data: Any) -> None:
    bound = st.none() | st.integers(-6, 6)
    args = data.draw(st.integers(0, max(0, x.ndim - 1))), data.draw(bound), data.draw(bound)
    compiled, rule = both("slice", x, *args, data.draw(st.integers(-1, 3)))
    assert compiled == rule


@given(strided(), st.data())
@settings(max_examples=60, deadline=None)
def test_unsqueeze(x: Any, data: Any) -> None:
    compiled, rule = both("unsqueeze", x, data.draw(st.integers(0, x.ndim)))
    assert compiled == rule


@given(strided(), st.data())
@settings(max_examples=100, deadline=None)
def test_expand(x: Any, data: Any) -> None:
    size = [data.draw(st.sampled_from([-1, n, 3])) for n in x.shape]
    lead = data.draw(st.lists(st.integers(-1, 2), max_size=2))
    compiled, rule = both("expand", x, (*lead, *size))
    assert meaningful(compiled) == meaningful(rule)


@given(strided(), st.data())
@settings(max_examples=200, deadline=None)
def test_view(x: Any, data: Any) -> None:
    factors = [f for n in x.shape for f in ((2, n // 2) if n % 2 == 0 and n else (n,))]
    size = []
    for factor in factors:
        if size and data.draw(st.booleans()):
            size[-1] *= factor
        else:
            size.append(factor)
    if size and data.draw(st.booleans()):
        size[data.draw(st.integers(0, len(size) - 1))] = -1
    compiled, rule = both("view_size", x, tuple(size))
    assert meaningful(compiled) == meaningful(rule)


@pytest.mark.parametrize("size", [(-1, -1), (-2, 3), (4,), (5, -1), (0, -1)])
def test_view_refuses_what_the_rule_refuses(size: tuple[int, ...]) -> None:
    compiled, rule = both("view_size", tangrad.zeros(2, 3), size)
    assert compiled is rule is RuntimeError
