"""Statistical and utility functions of the standard."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad_array_api import dtypes
from tangrad_array_api.array import Array, wrap
from tangrad_array_api.manipulation import promoted

Axis = int | tuple[int, ...] | None


def axes_of(x: Array, axis: Axis) -> tuple[int, ...]:
    """Return the axes to be reduced; all for None."""
    if axis is None:
        return tuple(range(x.ndim))
    return (axis,) if isinstance(axis, int) else tuple(axis)


def over_axes(compute: Any, x: Array, axis: Axis, keepdims: bool) -> Any:
    """Reduce one axis after the other, for functions that take one only."""
    axes = sorted(each + x.ndim if each < 0 else each for each in axes_of(x, axis))
    if len(set(axes)) < len(axes):
        raise ValueError(f"axes are given once, got {axis}")
    found = x.tensor
    for each in reversed(axes):
        found = compute(found, each, keepdims)
    return found


def widened(x: Array, dtype: Any) -> Any:
    """Return the dtype that elements are added up in: no integer narrower than the default."""
    if dtype is not None:
        return dtype
    kind = dtypes.kind_of(x.dtype)
    return {"signed": tangrad.int64, "unsigned": tangrad.uint64}.get(kind, x.dtype)


def sum(x: Array, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Array:
    """Return sums; integers are added up in the default integer's width."""
    dtypes.require("sum", "numeric", x)
    kind = widened(x, dtype)
    tensor = x.tensor.to(kind)
    if axis == ():
        return wrap(tensor)
    return wrap(tangrad.sum(tensor, axes_of(x, axis), keepdim=keepdims, dtype=kind))


def prod(x: Array, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Array:
    """Return products; integers are multiplied in the default integer's width."""
    dtypes.require("prod", "numeric", x)
    kind = widened(x, dtype)
    tensor = wrap(x.tensor.to(kind))

    def one(t: Any, dim: int, keep: bool) -> Any:
        return tangrad.prod(t, dim, keepdim=keep, dtype=kind)

    return wrap(over_axes(one, tensor, axis, keepdims))


def max(x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """Return the greatest elements; NaN where there is one."""
    dtypes.require("max", "real numeric", x)
    if axis == ():
        return wrap(x.tensor.clone())
    return wrap(tangrad.amax(x.tensor, axes_of(x, axis), keepdim=keepdims))


def min(x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """Return the smallest elements; NaN where there is one."""
    dtypes.require("min", "real numeric", x)
    if axis == ():
        return wrap(x.tensor.clone())
    return wrap(tangrad.amin(x.tensor, axes_of(x, axis), keepdim=keepdims))


def mean(x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """Return means."""
    dtypes.require("mean", "floating", x)
    if axis == ():
        return wrap(x.tensor.clone())
    return wrap(tangrad.mean(x.tensor, axes_of(x, axis), keepdim=keepdims))


def var(
    x: Array, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False
) -> Array:
    """Return variances, of degrees of freedom reduced by the correction."""
    dtypes.require("var", "real floating", x)
    axes = axes_of(x, axis)
    centred = x.tensor - tangrad.mean(x.tensor, axes, keepdim=True) if axes else x.tensor * 0
    count = 1
    for each in axes:
        count *= x.shape[each]
    squares = centred * centred
    total = tangrad.sum(squares, axes, keepdim=keepdims) if axes else squares
    left = count - correction
    return wrap(total / (left if left > 0 else 0))


def std(
    x: Array, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False
) -> Array:
    """Return standard deviations, of degrees of freedom reduced by the correction."""
    dtypes.require("std", "real floating", x)
    return wrap(tangrad.sqrt(var(x, axis=axis, correction=correction, keepdims=keepdims).tensor))


def cumulative(
    name: str, x: Array, axis: int | None, dtype: Any, include_initial: bool, first: int
) -> Array:
    """Return running totals, after the neutral element if it is included."""
    dtypes.require(name, "numeric", x)
    if axis is None:
        if x.ndim > 1:
            raise ValueError(f"{name}: an array of {x.ndim} dimensions needs an axis")
        axis = 0
    kind = widened(x, dtype)
    compute = tangrad.cumprod if first else tangrad.cumsum
    tensor = x.tensor.to(kind)
    if not tensor.ndim:
        tensor = tensor.reshape(1)
    found = compute(tensor, axis, dtype=kind)
    if include_initial:
        shape = list(tensor.shape)
        shape[axis] = 1
        initial = tangrad.full(shape, first, dtype=kind, device=tensor.device)
        found = tangrad.cat([initial, found], axis)
    return wrap(found)


def cumulative_sum(
    x: Array, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Array:
    """Return running sums along an axis, after zero if it is included.

    Raises:
        ValueError: If the axis is left out for more than one dimension.
    """
    dtypes.require("cumulative_sum", "any", x)
    return cumulative("cumulative_sum", x, axis, dtype, include_initial, 0)


def cumulative_prod(
    x: Array, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Array:
    """Return running products along an axis, after one if it is included.

    Raises:
        ValueError: If the axis is left out for more than one dimension.
    """
    dtypes.require("cumulative_prod", "any", x)
    return cumulative("cumulative_prod", x, axis, dtype, include_initial, 1)


def all(x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """Tell whether all elements are true."""
    dtypes.require("all", "any", x)
    found = x.tensor.to(tangrad.bool)
    axes = axes_of(x, axis)
    return wrap(tangrad.all(found, axes, keepdim=keepdims) if axes else found)


def any(x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """Tell whether any element is true."""
    dtypes.require("any", "any", x)
    found = x.tensor.to(tangrad.bool)
    axes = axes_of(x, axis)
    return wrap(tangrad.any(found, axes, keepdim=keepdims) if axes else found)


def count_nonzero(x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """Count the elements that are not zero."""
    dtypes.require("count_nonzero", "any", x)
    found = (x.tensor != 0).to(tangrad.int64)
    axes = axes_of(x, axis)
    return wrap(tangrad.sum(found, axes, keepdim=keepdims) if axes else found)


def diff(
    x: Array,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: Array | None = None,
    append: Array | None = None,
) -> Array:
    """Return differences of neighbours along an axis, n times.

    Raises:
        ValueError: If n is negative.
    """
    dtypes.require("diff", "numeric", x)
    if n < 0:
        raise ValueError(f"diff: n is not negative, got {n}")
    given = [each for each in (prepend, x, append) if each is not None]
    found = tangrad.cat(promoted(given), axis) if len(given) > 1 else x.tensor.clone()
    return wrap(tangrad.diff(found, n, axis)) if n else wrap(found)
