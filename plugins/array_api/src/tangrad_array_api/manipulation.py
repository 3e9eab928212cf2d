"""Functions of the standard that rearrange, take and join."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tangrad
from tangrad_array_api import dtypes
from tangrad_array_api.array import Array, bare, wrap


def promoted(arrays: Sequence[Array]) -> list[Any]:
    """Return the tensors of arrays in the dtype that they promote to."""
    common = dtypes.result_type(*arrays)
    return [each.tensor.to(common) for each in arrays]


def broadcast_arrays(*arrays: Array) -> list[Array]:
    """Broadcast arrays against each other."""
    if not arrays:
        return []
    dtypes.require("broadcast_arrays", "any", *arrays)
    return list(map(wrap, tangrad.broadcast_tensors(*(each.tensor for each in arrays))))


def broadcast_to(x: Array, /, shape: tuple[int, ...]) -> Array:
    """Broadcast an array to a shape."""
    dtypes.require("broadcast_to", "any", x)
    return wrap(tangrad.broadcast_to(x.tensor, shape))


def concat(arrays: Sequence[Array], /, *, axis: int | None = 0) -> Array:
    """Join arrays along an axis, or flattened.

    Raises:
        ValueError: If arrays have no dimensions and an axis is given.
    """
    tensors = promoted(arrays)
    if axis is None:
        return wrap(tangrad.cat([each.reshape(-1) for each in tensors]))
    if any(each.ndim != tensors[0].ndim for each in tensors) or not tensors[0].ndim:
        raise ValueError("concat: arrays have one number of dimensions, at least 1")
    return wrap(tangrad.cat(tensors, axis))


def stack(arrays: Sequence[Array], /, *, axis: int = 0) -> Array:
    """Join arrays along a new axis."""
    return wrap(tangrad.stack(promoted(arrays), axis))


def unstack(x: Array, /, *, axis: int = 0) -> tuple[Array, ...]:
    """Return the arrays along an axis."""
    dtypes.require("unstack", "any", x)
    return tuple(map(wrap, tangrad.unbind(x.tensor, axis)))


def expand_dims(x: Array, /, axis: int) -> Array:
    """Return a view with an axis of size one."""
    dtypes.require("expand_dims", "any", x)
    return wrap(tangrad.unsqueeze(x.tensor, axis))


def squeeze(x: Array, /, axis: int | tuple[int, ...]) -> Array:
    """Return a view without axes of size one.

    Raises:
        ValueError: If an axis is of another size.
    """
    dtypes.require("squeeze", "any", x)
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    for each in axes:
        if not -x.ndim <= each < x.ndim:
            raise IndexError(f"squeeze: axis {each} is not one of {x.ndim}")
        if x.shape[each] != 1:
            raise ValueError(f"squeeze: axis {each} is of size {x.shape[each]}, not 1")
    return wrap(tangrad.squeeze(x.tensor, axes))


def flip(x: Array, /, *, axis: int | tuple[int, ...] | None = None) -> Array:
    """Reverse the order along axes, or all."""
    dtypes.require("flip", "any", x)
    if axis is None:
        axis = tuple(range(x.ndim))
    return wrap(tangrad.flip(x.tensor, (axis,) if isinstance(axis, int) else tuple(axis)))


def moveaxis(
    x: Array, source: int | tuple[int, ...], destination: int | tuple[int, ...], /
) -> Array:
    """Move axes to other places."""
    dtypes.require("moveaxis", "any", x)
    return wrap(tangrad.moveaxis(x.tensor, source, destination))


def permute_dims(x: Array, /, axes: tuple[int, ...]) -> Array:
    """Reorder the axes."""
    dtypes.require("permute_dims", "any", x)
    return wrap(tangrad.permute(x.tensor, tuple(axes)))


def repeat(x: Array, repeats: Any, /, *, axis: int | None = None) -> Array:
    """Repeat every element along an axis, or of the flattened array.

    Raises:
        TypeError: If repeats are not integers.
    """
    counts = repeats
    if isinstance(repeats, Array):
        dtypes.require("repeat", "integer", repeats)
        counts = repeats.tensor.to(tangrad.int64)
    tensor = x.tensor.reshape(-1) if axis is None else x.tensor
    if isinstance(counts, tangrad.Tensor) and counts.numel() == 1:
        counts = int(counts.item())
    return wrap(tangrad.repeat_interleave(tensor, counts, dim=0 if axis is None else axis))


def reshape(x: Array, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Array:
    """Return the elements in another shape; `copy` as for `asarray`.

    Raises:
        ValueError: If copy is False and a copy is needed.
    """
    dtypes.require("reshape", "any", x)
    found = tangrad.reshape(x.tensor, shape)
    shared = found.numel() == 0 or found.data_ptr() == x.tensor.data_ptr()
    if copy is False and not shared:
        raise ValueError(f"reshape: {x.shape} in {shape} needs a copy, and copy is False")
    return wrap(found.clone() if copy and shared else found)


def roll(
    x: Array, /, shift: int | tuple[int, ...], *, axis: int | tuple[int, ...] | None = None
) -> Array:
    """Roll elements along axes, or of the flattened array."""
    dtypes.require("roll", "any", x)
    if x.ndim == 0:
        return wrap(x.tensor.clone())
    if isinstance(axis, tuple) and isinstance(shift, int):
        shift = (shift,) * len(axis)
    return wrap(tangrad.roll(x.tensor, shift, axis))


def tile(x: Array, repetitions: tuple[int, ...], /) -> Array:
    """Repeat the array along its axes."""
    dtypes.require("tile", "any", x)
    return wrap(tangrad.tile(x.tensor, tuple(repetitions)))


def from_the_end(indices: Array, size: int) -> Any:
    """Return indices with the negative ones counted from the end."""
    found = bare(indices).to(tangrad.int64)
    return tangrad.where(found < 0, found + size, found)


def take(x: Array, indices: Array, /, *, axis: int | None = None) -> Array:
    """Return the elements of an axis that are at the indices, one-dimensional.

    Raises:
        ValueError: If the axis is left out for more than one dimension.
    """
    dtypes.require("take", "any", x)
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"take: an array of {x.ndim} dimensions needs an axis")
        axis = 0
    chosen = from_the_end(indices, x.shape[axis])
    return wrap(tangrad.index_select(x.tensor, axis, chosen))


def take_along_axis(x: Array, indices: Array, /, *, axis: int = -1) -> Array:
    """Return the elements along an axis that indices of as many dimensions tell.

    Raises:
        ValueError: If the numbers of dimensions differ.
    """
    dtypes.require("take_along_axis", "any", x)
    if x.ndim != indices.ndim:
        raise ValueError(
            f"take_along_axis: indices have {indices.ndim} dimensions and the array {x.ndim}"
        )
    chosen = from_the_end(indices, x.shape[axis])
    return wrap(tangrad.take_along_dim(x.tensor, chosen, axis))
