"""Functions of the standard that search, sort and tell apart."""

from __future__ import annotations

from typing import Any, NamedTuple

import tangrad
from tangrad_array_api import dtypes
from tangrad_array_api.array import Array, as_operand, operands, wrap
from tangrad_array_api.manipulation import promoted


def extremum(compute: Any, name: str, x: Array, axis: int | None, keepdims: bool) -> Array:
    """Return the first place of an extremum."""
    dtypes.require(name, "real numeric", x)
    if axis is None:
        found = compute(x.tensor.reshape(-1), 0)
        return wrap(found.reshape((1,) * x.ndim) if keepdims else found)
    return wrap(compute(x.tensor, axis, keepdim=keepdims))


def argmax(x: Array, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    """Return where the greatest elements are, the first of equal ones."""
    dtypes.require("argmax", "any", x)
    return extremum(tangrad.argmax, "argmax", x, axis, keepdims)


def argmin(x: Array, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    """Return where the smallest elements are, the first of equal ones."""
    dtypes.require("argmin", "any", x)
    return extremum(tangrad.argmin, "argmin", x, axis, keepdims)


def nonzero(x: Array, /) -> tuple[Array, ...]:
    """Return where elements are not zero, an array for every dimension.

    Raises:
        ValueError: If the array has no dimensions.
    """
    dtypes.require("nonzero", "any", x)
    if not x.ndim:
        raise ValueError("nonzero: the array has at least one dimension")
    return tuple(map(wrap, tangrad.nonzero(x.tensor, as_tuple=True)))


def searchsorted(
    x1: Array, x2: Array, /, *, side: str = "left", sorter: Array | None = None
) -> Array:
    """Return where the values of x2 belong in x1, sorted or sorted by `sorter`.

    Raises:
        ValueError: If side is neither "left" nor "right", or x1 is not one-dimensional.
    """
    dtypes.require("searchsorted", "real numeric", x1, x2)
    if side not in ("left", "right"):
        raise ValueError(f"searchsorted: side is 'left' or 'right', got {side!r}")
    if x1.ndim != 1:
        raise ValueError(f"searchsorted: x1 has one dimension, got {x1.ndim}")
    sequence, values = promoted([x1, x2])
    if sorter is not None:
        sequence = tangrad.index_select(sequence, 0, sorter.tensor.to(tangrad.int64))
    return wrap(tangrad.searchsorted(sequence.contiguous(), values.contiguous(), side=side))


def where(condition: Array, x1: Any, x2: Any, /) -> Array:
    """Return elements of x1 where the condition holds, and of x2 elsewhere."""
    dtypes.require("where", "boolean", condition)
    if isinstance(x1, Array) or isinstance(x2, Array):
        return wrap(tangrad.where(condition.tensor, *operands("where", "any", x1, x2)))
    kind = tangrad.bool
    if not (isinstance(x1, bool) and isinstance(x2, bool)):
        kind = tangrad.int64 if isinstance(x1, int) and isinstance(x2, int) else None
        kind = kind or tangrad.get_default_dtype()
        if isinstance(x1, complex) or isinstance(x2, complex):
            kind = tangrad.get_default_dtype().to_complex()
    both = (as_operand(each, kind, condition.device) for each in (x1, x2))
    return wrap(tangrad.where(condition.tensor, *both))


def argsort(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """Return the order that sorts along an axis; NaN counts as the greatest."""
    dtypes.require("argsort", "real numeric", x)
    return wrap(tangrad.sort(x.tensor, axis, descending, stable=stable)[1])


def sort(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """Return elements sorted along an axis; NaN counts as the greatest."""
    dtypes.require("sort", "real numeric", x)
    return wrap(tangrad.sort(x.tensor, axis, descending, stable=stable)[0])


class UniqueAll(NamedTuple):
    """Distinct values, where each is first, which each element is, how often each is there."""

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    """Distinct values, how often each is there."""

    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    """Distinct values, which each element is."""

    values: Array
    inverse_indices: Array


def order_of(flat: Any) -> Any:
    """Return the stable order of elements; complex ones by their real part first."""
    if flat.dtype.is_complex:
        order = tangrad.sort(flat.imag, stable=True)[1]
        return order[tangrad.sort(flat.real[order], stable=True)[1]]
    return tangrad.sort(flat, stable=True)[1]


def unique_all(x: Array, /) -> UniqueAll:
    """Return the distinct values, sorted, and all about them; every NaN is a value of its own."""
    dtypes.require("unique_all", "any", x)
    flat = x.tensor.reshape(-1)
    count = flat.shape[0]
    order = order_of(flat)
    sorted_ = flat[order]
    starts = tangrad.ones(count, dtype=tangrad.bool, device=flat.device)
    starts[1:] = sorted_[1:] != sorted_[:-1]
    first = tangrad.nonzero(starts).reshape(-1)
    end = tangrad.full((1,), count, dtype=tangrad.int64, device=flat.device)
    inverse = tangrad.empty(count, dtype=tangrad.int64, device=flat.device)
    inverse[order] = tangrad.cumsum(starts.to(tangrad.int64), 0) - 1
    return UniqueAll(
        wrap(sorted_[first]),
        wrap(order[first]),
        wrap(inverse.reshape(x.shape)),
        wrap(tangrad.diff(tangrad.cat([first, end]))),
    )


def unique_counts(x: Array, /) -> UniqueCounts:
    """Return the distinct values, sorted, and how often each is there."""
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: Array, /) -> UniqueInverse:
    """Return the distinct values, sorted, and which of them each element is."""
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: Array, /) -> Array:
    """Return the distinct values, sorted."""
    return unique_all(x).values
