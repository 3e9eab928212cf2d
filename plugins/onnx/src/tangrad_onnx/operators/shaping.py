"""Operators that make values, and that change the shape or order of their elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tangrad
from tangrad import Tensor
from tangrad.nn import functional as F
from tangrad_onnx.limits import checked_count
from tangrad_onnx.operators.registry import operator
from tangrad_onnx.values import (
    NUMPY_TYPES,
    TENSOR_TYPES,
    has_tensor,
    item_size,
    to_array,
    to_ints,
    to_number,
    to_tensor,
)

_MOST_PARTS = 65536
_FEW = 64  # elements up to which a value made of sizes stays on the host


@operator(raw=True)
def Identity(x: Any) -> Any:
    return x


@operator(raw=True)
def Constant(*, value: Any) -> Any:
    return value


@operator(raw=True)
def Shape(x: Any, *, start: int = 0, end: int | None = None) -> Any:
    return np.array(tuple(x.shape)[start:end], np.int64)


@operator(raw=True)
def Size(x: Any) -> Any:
    return np.array(math.prod(x.shape), np.int64)


@operator(raw=True)
def ConstantOfShape(shape: Any, *, value: Any = None) -> Any:
    on_host = not isinstance(shape, Tensor)
    sizes = to_ints(shape)
    value = np.zeros(1, np.float32) if value is None else np.asarray(value)
    count = checked_count(sizes, value.itemsize)
    if (on_host and count <= _FEW) or not has_tensor(value.dtype):
        return np.full(sizes, value.reshape(-1)[0], dtype=value.dtype)
    return to_tensor(value).reshape(()).expand(sizes).clone()


@operator("Range", raw=True)
def Range(start: Any, limit: Any, delta: Any, *, stash_type: int = 1) -> Any:
    on_host = not any(isinstance(x, Tensor) for x in (start, limit, delta))
    start, limit, delta = (to_array(x).reshape(()) for x in (start, limit, delta))
    dtype = start.dtype
    if dtype.itemsize == 2 and dtype.kind not in "iu":
        stash = NUMPY_TYPES[stash_type]
        start, limit, delta = (x.astype(stash) for x in (start, limit, delta))
    if delta == 0:
        raise ValueError("Range: delta is 0")
    count = max(math.ceil((float(limit) - float(start)) / float(delta)), 0)
    if dtype.kind in "iu":
        count = max(-((int(start) - int(limit)) // int(delta)), 0)
    checked_count([count, 3])  # vectors that live at once
    values = np.arange(count).astype(start.dtype, copy=False)
    values *= delta
    values += start
    values = values.astype(dtype, copy=False)
    return values if on_host and count <= _FEW else to_tensor(values)


@operator(raw=True)
def EyeLike(x: Any, *, dtype: int | None = None, k: int = 0) -> Any:
    kind = x.dtype if dtype is None else TENSOR_TYPES[dtype]
    rows, columns = x.shape
    made = tangrad.zeros(rows, columns, dtype=kind, device=x.device)
    made.diagonal(k).fill_(1) if -rows < k < columns else None
    return made


@operator(moves=True, ints=(1,), host=lambda x, s, allowzero=0: x.reshape(_sizes(x, s, allowzero)))
def Reshape(x: Any, shape: list[int], *, allowzero: int = 0) -> Any:
    return x.reshape(_sizes(x, shape, allowzero))


def _sizes(x: Any, shape: list[int], allowzero: int) -> list[int]:
    if allowzero:
        return shape
    return [x.shape[i] if size == 0 else size for i, size in enumerate(shape)]


@operator(moves=True)
def Flatten(x: Any, *, axis: int = 1) -> Any:
    axis = axis + x.ndim if axis < 0 else axis
    rows = math.prod(x.shape[:axis])
    return x.reshape(rows, math.prod(x.shape[axis:]))


@operator(moves=True, ints=(1,), host=lambda x, axes=None: _squeezed(x, axes))
def Squeeze(x: Any, axes: Any = None) -> Any:
    return _squeezed(x, axes)


def _squeezed(x: Any, axes: Any) -> Any:
    if axes is None:
        axes = [i for i, size in enumerate(x.shape) if size == 1]
    axes = {axis % x.ndim for axis in axes}
    if any(x.shape[axis] != 1 for axis in axes):
        raise ValueError(f"Squeeze: axes {sorted(axes)} of shape {tuple(x.shape)} are not all 1")
    return x.reshape([size for i, size in enumerate(x.shape) if i not in axes])


@operator(moves=True, ints=(1,), host=lambda x, axes: _unsqueezed(x, axes))
def Unsqueeze(x: Any, axes: list[int]) -> Any:
    return _unsqueezed(x, axes)


def _unsqueezed(x: Any, axes: list[int]) -> Any:
    rank = x.ndim + len(axes)
    chosen = {axis % rank for axis in axes}
    if len(chosen) != len(axes):
        raise ValueError(f"Unsqueeze: axes {axes} name one twice")
    rest = iter(x.shape)
    return x.reshape([1 if i in chosen else next(rest) for i in range(rank)])


@operator(moves=True, host=lambda x, perm=None: np.transpose(x, perm))
def Transpose(x: Any, *, perm: Any = None) -> Any:
    return x.permute(perm if perm is not None else tuple(reversed(range(x.ndim))))


def _expanded(x: Any, shape: list[int]) -> tuple[int, ...]:
    sizes = tangrad.broadcast_shapes(tuple(x.shape), tuple(shape))
    checked_count(sizes, item_size(x))
    return tuple(sizes)


@operator(
    moves=True, ints=(1,), grows=_expanded, host=lambda x, shape: x + np.zeros(shape, x.dtype)
)
def Expand(x: Any, shape: list[int]) -> Any:
    return x.expand(_expanded(x, shape))


def _tiled(x: Any, repeats: list[int]) -> None:
    checked_count([size * n for size, n in zip(x.shape, repeats, strict=True)], item_size(x))


@operator(moves=True, ints=(1,), grows=_tiled, host=np.tile)
def Tile(x: Any, repeats: list[int]) -> Any:
    return x.repeat(repeats)


@operator(ints=(1, 2))
def TileAlong(x: Any, tiles: list[int], axis: list[int]) -> Any:
    """Repeat along one axis, as Tile did before opset 6."""
    repeats = [tiles[0] if i == axis[0] % x.ndim else 1 for i in range(x.ndim)]
    return Tile(x, repeats)


def _joined(*operands: Any, axis: int) -> None:
    checked_count([sum(math.prod(x.shape) for x in operands)], max(map(item_size, operands)))


@operator("Concat", moves=True, grows=_joined, host=lambda *xs, axis: np.concatenate(xs, axis))
def Concat(*operands: Any, axis: int) -> Any:
    kinds = {operand.dtype for operand in operands}
    if len(kinds) > 1:
        raise TypeError(f"Concat: operands have several dtypes: {sorted(map(str, kinds))}")
    return tangrad.cat(operands, axis)


def _split_sizes(size: int, parts: Any, count: int) -> list[int]:
    if parts is not None:
        if sum(parts) != size:
            raise ValueError(f"Split: parts of {parts} do not add up to {size}")
        return list(parts)
    if count > _MOST_PARTS:
        raise ValueError(f"Split: {count} parts; at most {_MOST_PARTS} are supported")
    part = -(-size // count)
    return [max(min(part, size - i * part), 0) for i in range(count)]


@operator(
    "Split",
    moves=True,
    ints=(1,),
    host=lambda x, parts=None, axis=0, num_outputs=1: tuple(
        np.split(x, np.cumsum(_split_sizes(x.shape[axis], parts, num_outputs))[:-1], axis)
    ),
)
def Split(x: Any, parts: Any = None, *, axis: int = 0, num_outputs: int = 1) -> Any:
    return tuple(tangrad.split(x, _split_sizes(x.shape[axis], parts, num_outputs), axis))


def slices(shape: Any, starts: Any, ends: Any, axes: Any, steps: Any) -> tuple[slice, ...]:
    """Return what Slice takes of each axis; its bounds are clamped as Python's are."""
    axes = list(range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    found = [slice(None)] * len(shape)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step < 0 and end < -shape[axis]:
            end = None
        found[axis] = slice(start, end, step)
    return tuple(found)


def _sliced_on_host(x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    return x[slices(x.shape, starts, ends, axes, steps)]


@operator(moves=True, ints=(1, 2, 3, 4), host=_sliced_on_host)
def Slice(x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    for dim, part in enumerate(slices(x.shape, starts, ends, axes, steps)):
        if part == slice(None):
            continue
        start, stop, step = part.indices(x.shape[dim])
        if step > 0:
            x = x[(slice(None),) * dim + (slice(start, max(stop, start), step),)]
        else:
            taken = tangrad.tensor(list(range(start, stop, step)), dtype=tangrad.int64)
            x = x.index_select(dim, taken.to(x.device))
    return x


@operator(moves=True, ints=(1, 3))
def Pad(
    x: Any, pads: list[int], value: Any = None, axes: Any = None, *, mode: str = "constant"
) -> Any:
    axes = list(range(x.ndim)) if axes is None else [axis % x.ndim for axis in axes]
    sizes = list(x.shape)
    for i, axis in enumerate(axes):
        sizes[axis] += sum(pads[i :: len(axes)])
    checked_count(sizes, x.element_size())
    for i, axis in enumerate(axes):
        before, after = pads[i], pads[i + len(axes)]
        if mode == "constant":
            widths = [0, 0] * (x.ndim - 1 - axis) + [before, after]
            x = F.pad(x, widths, value=0 if value is None else to_number(value))
        else:
            x = x.index_select(axis, _reflected(x.shape[axis], before, after, mode, x.device))
    return x


def _reflected(size: int, before: int, after: int, mode: str, device: Any) -> Tensor:
    at = np.arange(-before, size + after)
    if mode == "edge":
        at = np.clip(at, 0, size - 1)
    elif mode == "wrap":
        at = at % size
    elif mode == "reflect":
        period = max(2 * (size - 1), 1)
        at = at % period
        at = np.where(at >= size, period - at, at)
    else:
        raise ValueError(f"Pad: unknown mode {mode!r}")
    return tangrad.tensor(at.astype(np.int64), device=device)


@operator(moves=True, ints=(1,))
def CenterCropPad(x: Any, shape: list[int], *, axes: Any = None) -> Any:
    sizes = list(x.shape)
    for axis, wanted in zip(range(x.ndim) if axes is None else axes, shape, strict=True):
        sizes[axis] = wanted
    checked_count(sizes, x.element_size())
    for axis, wanted in zip(range(x.ndim) if axes is None else axes, shape, strict=True):
        size = x.shape[axis]
        if wanted <= size:
            x = x.narrow(axis, (size - wanted) // 2, wanted)
        else:
            before = (wanted - size) // 2
            widths = [0, 0] * (x.ndim - 1 - axis % x.ndim) + [before, wanted - size - before]
            x = F.pad(x, widths)
    return x


@operator(moves=True)
def DepthToSpace(x: Any, *, blocksize: int, mode: str = "DCR") -> Any:
    n, c, h, w = x.shape
    depth = c // blocksize**2
    if mode == "DCR":
        parts = x.reshape(n, blocksize, blocksize, depth, h, w).permute(0, 3, 4, 1, 5, 2)
    else:
        parts = x.reshape(n, depth, blocksize, blocksize, h, w).permute(0, 1, 4, 2, 5, 3)
    return parts.reshape(n, depth, h * blocksize, w * blocksize)


@operator(moves=True)
def SpaceToDepth(x: Any, *, blocksize: int, mode: str = "DCR") -> Any:
    n, c, h, w = x.shape
    parts = x.reshape(n, c, h // blocksize, blocksize, w // blocksize, blocksize)
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return parts.permute(order).reshape(n, -1, h // blocksize, w // blocksize)


@operator(moves=True, ints=(1,))
def Trilu(x: Any, k: Any = None, *, upper: int = 1) -> Any:
    return (tangrad.triu if upper else tangrad.tril)(x, k[0] if k else 0)


@operator(moves=True, ints=(1,))
def ReverseSequence(x: Any, lengths: list[int], *, batch_axis: int = 1, time_axis: int = 0) -> Any:
    by_batch = x.movedim((batch_axis, time_axis), (0, 1))
    steps = tangrad.arange(by_batch.shape[1], device=x.device)
    length = tangrad.tensor(lengths, device=x.device).unsqueeze(1)
    at = tangrad.where(steps < length, length - 1 - steps, steps)
    rows = tangrad.arange(by_batch.shape[0], device=x.device).unsqueeze(1)
    return by_batch[rows, at].movedim((0, 1), (batch_axis, time_axis))
