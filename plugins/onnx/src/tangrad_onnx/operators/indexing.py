"""Operators that gather, scatter, sort and search."""

from __future__ import annotations

from typing import Any

import numpy as np

import tangrad
from tangrad import Tensor
from tangrad_onnx.limits import checked_count
from tangrad_onnx.operators.registry import operator
from tangrad_onnx.values import has_tensor, item_size, to_array, to_number, to_tensor


def _within(indices: Any, size: int) -> Any:
    """Return indices without negative ones, refusing those outside of an axis."""
    return tangrad.where(indices < 0, indices + size, indices).to(tangrad.int64)


def _gathered(x: Any, indices: Any, *, axis: int = 0) -> None:
    axis = axis % max(x.ndim, 1)
    checked_count([*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]], item_size(x))


@operator(moves=True, grows=_gathered, host=lambda x, at, axis=0: np.take(x, at, axis))
def Gather(x: Any, indices: Any, *, axis: int = 0) -> Any:
    taken = _within(indices, x.shape[axis])
    if taken.ndim == 1:
        return x.index_select(axis, taken)
    axis = axis % x.ndim
    found = x.index_select(axis, taken.reshape(-1))
    return found.reshape((*x.shape[:axis], *taken.shape, *x.shape[axis + 1 :]))


@operator("GatherElements", moves=True)
def GatherElements(x: Any, indices: Any, *, axis: int = 0) -> Any:
    return tangrad.gather(x, axis, _within(indices, x.shape[axis]))


def _gathered_rows(x: Any, indices: Any, *, batch_dims: int = 0) -> None:
    behind = x.shape[batch_dims + indices.shape[-1] :]
    checked_count([*indices.shape[:-1], *behind], item_size(x))


@operator(moves=True, grows=_gathered_rows)
def GatherND(x: Any, indices: Any, *, batch_dims: int = 0) -> Any:
    depth = indices.shape[-1]
    leading = indices.shape[:batch_dims]
    at: list[Any] = []
    for i, size in enumerate(leading):
        behind = indices.ndim - 2 - i
        at.append(tangrad.arange(size, device=x.device).reshape(-1, *([1] * behind)))
    for i in range(depth):
        at.append(_within(indices[..., i], x.shape[batch_dims + i]))
    return x[tuple(at)] if at else x


_REDUCED = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@operator("ScatterElements", "Scatter", moves=True)
def ScatterElements(
    x: Any, indices: Any, updates: Any, *, axis: int = 0, reduction: str = "none"
) -> Any:
    at = _within(indices, x.shape[axis])
    if reduction == "none":
        return x.scatter(axis, at, updates)
    return x.scatter_reduce(axis, at, updates, _REDUCED[reduction], include_self=True)


@operator(moves=True)
def ScatterND(x: Any, indices: Any, updates: Any, *, reduction: str = "none") -> Any:
    depth = indices.shape[-1]
    rows = int(np.prod(x.shape[:depth]))
    flat = x.reshape(rows, -1)
    at = tangrad.zeros(indices.shape[:-1], dtype=tangrad.int64, device=x.device)
    for i in range(depth):
        at = at * x.shape[i] + _within(indices[..., i], x.shape[i])
    at = at.reshape(-1, 1).expand(-1, flat.shape[1])
    source = updates.reshape(at.shape)
    if reduction == "none":
        return flat.scatter(0, at, source).reshape(x.shape)
    how = _REDUCED[reduction]
    return flat.scatter_reduce(0, at, source, how, include_self=True).reshape(x.shape)


@operator(moves=True)
def Compress(x: Any, condition: Any, *, axis: int | None = None) -> Any:
    if axis is None:
        x, axis = x.reshape(-1), 0
    return x.index_select(axis, tangrad.nonzero(condition).reshape(-1))


@operator(raw=True)
def NonZero(x: Any) -> Any:
    if not isinstance(x, Tensor):
        return tangrad.tensor(np.array(np.nonzero(to_array(x)), np.int64))
    if not x.ndim:
        return tangrad.zeros(1, int(bool(x)), dtype=tangrad.int64)
    return tangrad.nonzero(x).t()


@operator(raw=True)
def OneHot(indices: Any, depth: Any, values: Any, *, axis: int = -1) -> Any:
    count = int(to_number(depth))
    at = to_tensor(indices)
    at = at if at.dtype is tangrad.int64 else at.to(tangrad.int64)
    axis = axis % (at.ndim + 1)
    checked_count([max(count, 0), *at.shape])
    inside = (at >= -count) & (at < count)
    at = tangrad.where(at < 0, at + count, at).unsqueeze(axis)
    hot = tangrad.arange(count, device=at.device).reshape(-1, *([1] * (at.ndim - 1 - axis))) == at
    hot = hot & inside.unsqueeze(axis)
    if isinstance(values, np.ndarray) and not has_tensor(values.dtype):
        return values[hot.numpy().astype(np.int64)]
    values = to_tensor(values, at.device)
    return tangrad.where(hot, values[1], values[0])


@operator("TopK", ints=(1,))
def TopK(x: Any, k: list[int], *, axis: int = -1, largest: int = 1, sorted: int = 1) -> Any:
    # Equal elements come in the order of their indices, as a stable sort leaves them.
    values, at = tangrad.sort(x, dim=axis, descending=bool(largest), stable=True)
    if k[0] > x.shape[axis] or k[0] < 0:
        raise ValueError(f"TopK: {k[0]} of {x.shape[axis]} elements are asked for")
    return values.narrow(axis, 0, k[0]), at.narrow(axis, 0, k[0])


@operator(raw=True)
def Unique(x: Any, *, axis: int | None = None, sorted: int = 1) -> Any:
    array = to_array(x)
    if array.dtype == object:
        array = array.astype(str)
    values, first, back, counts = np.unique(
        array, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    back = back.reshape(-1)
    if not sorted:
        order = np.argsort(first, kind="stable")
        values = np.take(values, order, axis or 0)
        first, counts = first[order], counts[order]
        back = np.argsort(order, kind="stable")[back]
    values = values.astype(object) if values.dtype.kind == "U" else to_tensor(values)
    return (values, *(tangrad.tensor(part.astype(np.int64)) for part in (first, back, counts)))


@operator(raw=True)
def NonMaxSuppression(
    boxes: Any,
    scores: Any,
    most: Any = None,
    iou_threshold: Any = None,
    score_threshold: Any = None,
    *,
    center_point_box: int = 0,
) -> Any:
    """Choose, for each class, boxes of high scores that overlap little, as `boxes` of indices."""
    corners = to_array(boxes).astype(np.float32)
    if center_point_box:
        centre, half = corners[..., :2], corners[..., 2:] / 2
        corners = np.concatenate([centre - half, centre + half], -1)
    low = np.minimum(corners[..., :2], corners[..., 2:])
    high = np.maximum(corners[..., :2], corners[..., 2:])
    limit = int(to_number(most.reshape(-1)[0])) if most is not None else 0
    overlap = float(to_number(iou_threshold.reshape(-1)[0])) if iou_threshold is not None else 0.0
    least = None if score_threshold is None else float(to_number(score_threshold.reshape(-1)[0]))
    chosen: list[tuple[int, int, int]] = []
    values = to_array(scores)
    for batch in range(values.shape[0]):
        for kind in range(values.shape[1]):
            row = values[batch, kind]
            order = np.argsort(-row, kind="stable")
            ahead = order if least is None else order[row[order] > least]
            kept: list[int] = []
            while len(ahead) and len(kept) < limit:
                best, ahead = ahead[0], ahead[1:]
                kept.append(int(best))
                share = _overlap(low[batch], high[batch], best, ahead)
                ahead = ahead[share <= overlap]
            chosen += [(batch, kind, at) for at in kept]
    return tangrad.tensor(np.array(chosen, np.int64).reshape(-1, 3))


def _overlap(low: Any, high: Any, one: Any, others: Any) -> Any:
    """Return intersection over union of one box with others."""
    sides = np.minimum(high[one], high[others]) - np.maximum(low[one], low[others])
    common = np.prod(np.maximum(sides, 0), -1)
    total = np.prod(high[one] - low[one]) + np.prod(high[others] - low[others], -1) - common
    return np.where(total > 0, common / np.where(total > 0, total, 1), 0)


@operator()
def TensorScatter(
    cache: Any, update: Any, at: Any = None, *, axis: int = -2, mode: str = "linear"
) -> Any:
    axis = axis % cache.ndim
    moved = cache.movedim(axis, 1)
    new = update.movedim(axis, 1)
    batch, steps = new.shape[:2]
    start = tangrad.zeros(batch, dtype=tangrad.int64, device=cache.device) if at is None else at
    places = start.reshape(-1, 1) + tangrad.arange(steps, device=cache.device)
    if mode == "circular":
        places = places % moved.shape[1]
    rows = tangrad.arange(batch, device=cache.device).reshape(-1, 1).expand(batch, steps)
    return moved.index_put((rows, places), new).movedim(1, axis)
