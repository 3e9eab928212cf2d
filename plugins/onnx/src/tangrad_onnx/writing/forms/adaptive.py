"""Pooling to a number of windows, which begin and end where the sizes say."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import tangrad
from tangrad_onnx.writing.forms.layers import as_batch, for_each
from tangrad_onnx.writing.forms.registry import form
from tangrad_onnx.writing.graph import Size, Value, Writer


def _kernel(sizes: Any, counts: list[Any]) -> list[int] | None:
    """Return the size of the windows, None if they have several or it varies."""
    if any(isinstance(n, Size) for n in (*sizes, *counts)):
        return None
    if any(have % want for have, want in zip(sizes, counts, strict=True)):
        return None
    return [have // want for have, want in zip(sizes, counts, strict=True)]


def _windows(w: Writer, size: Any, count: Any) -> tuple[str, str]:
    """Return (count, size): whether a place lies in a window, and (count, 1): places in each."""
    at = w.unsqueeze(w.counted(count), [1])
    whole, parts, one = w.size(size), w.size(count), w.size(1)
    start = w.op("Div", w.op("Mul", at, whole), parts)
    before_end = w.op("Sub", w.op("Mul", w.op("Add", at, one), whole), one)
    end = w.op("Add", w.op("Div", before_end, parts), one)
    places = w.counted(size)
    inside = w.op("And", w.op("LessOrEqual", start, places), w.op("Less", places, end))
    return str(inside), str(w.op("Sub", end, start))


def _last(w: Writer, name: str, rank: int, axis: int) -> str:
    """Exchange an axis with the last one."""
    if axis == rank - 1:
        return name
    order = list(range(rank))
    order[axis], order[-1] = order[-1], order[axis]
    return str(w.op("Transpose", name, perm=order))


def _averages(w: Writer, x: Value, counts: list[Any]) -> str:
    name = x.name
    for axis, count in enumerate(counts, x.rank - len(counts)):
        inside, number = _windows(w, x.shape[axis], count)
        weights = w.op(
            "Div",
            w.cast(inside, tangrad.bool, x.dtype),
            w.cast(number, tangrad.int64, x.dtype),
        )
        rows = w.op("MatMul", _last(w, name, x.rank, axis), w.op("Transpose", weights))
        name = _last(w, rows, x.rank, axis)
    return name


def _maxima(w: Writer, x: Value, counts: list[Any]) -> tuple[str, str]:
    """Return the maxima of windows, and where they stand, counted over the axes; the last first."""
    name, at = x.name, None
    behind: Any = 1
    kind = x.dtype
    least = -math.inf if kind.is_floating_point else tangrad.iinfo(kind).min
    for axis, count in reversed(list(enumerate(counts, x.rank - len(counts)))):
        inside, _ = _windows(w, x.shape[axis], count)
        rows = w.unsqueeze(_last(w, name, x.rank, axis), [x.rank - 1])
        seen = w.op("Where", inside, rows, w.constant(least, kind))
        place = w.op("ArgMax", seen, axis=x.rank, keepdims=0)
        name = _last(w, w.reduce("ReduceMax", seen, [x.rank], False), x.rank, axis)
        whole = place if behind == 1 else w.op("Mul", place, w.size(behind))
        if at is not None:
            inner = w.op("GatherElements", _last(w, at, x.rank, axis), place, axis=x.rank - 1)
            whole = w.op("Add", whole, inner)
        at = _last(w, whole, x.rank, axis)
        behind = behind * x.shape[axis]
    return name, str(at)


def _adaptive_average(rank: int) -> Callable[..., Any]:
    def call(w: Writer, a: Any, out: Any) -> Any:
        x = a.input if hasattr(a, "input") else a.self
        wanted = for_each(a.output_size, rank)
        if all(isinstance(n, int) and n == 1 for n in wanted):
            return w.reduce("ReduceMean", x.name, range(x.rank - rank, x.rank), True)
        sizes = x.shape[-rank:]
        counts = [have if want is None else want for want, have in zip(wanted, sizes, strict=True)]
        kernel = _kernel(sizes, counts)
        if kernel is None:
            return _averages(w, x, counts)
        name, single = as_batch(w, x, rank)
        found = w.op("AveragePool", name, kernel_shape=kernel, strides=kernel)
        return w.squeeze(found, [0]) if single else found

    return call


for _rank in (1, 2, 3):
    form(f"adaptive_avg_pool{_rank}d", whole=True)(_adaptive_average(_rank))


@form("adaptive_max_pool")
def _adaptive_max_pool(w: Writer, a: Any, out: Any) -> Any:
    counts = list(a.output_size)
    sizes = a.self.shape[-len(counts) :]
    kernel = _kernel(sizes, counts)
    if kernel is None:
        return _maxima(w, a.self, counts)
    name, single = as_batch(w, a.self, len(counts))
    values, at = w.op("MaxPool", name, kernel_shape=kernel, strides=kernel, outputs=2)
    at = w.op("Mod", at, w.constant(np.array(math.prod(sizes), np.int64)))
    found = (values, at)
    return tuple(w.squeeze(part, [0]) for part in found) if single else found
