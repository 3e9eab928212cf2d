"""Ops that are written by comparing or counting positions, and losses."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

import tangrad
from tangrad_onnx.errors import UnsupportedOperatorError
from tangrad_onnx.writing.forms.registry import form
from tangrad_onnx.writing.forms.shapes import diagonal_places
from tangrad_onnx.writing.graph import Value, Writer


@form("_searchsorted")
def _searchsorted(w: Writer, a: Any, out: Any) -> Any:
    """Count the elements that lie before each value."""
    bounds, values = a.sorted_sequence, a.self
    row = w.unsqueeze(bounds.name, [bounds.rank - 1])
    column = w.unsqueeze(values.name, [values.rank])
    if bounds.rank == 1:
        row = bounds.name
    before = w.op("LessOrEqual" if a.right else "Less", row, column)
    ones = w.cast(before, tangrad.bool, tangrad.int64)
    return w.cast(w.reduce("ReduceSum", ones, [values.rank], False), tangrad.int64, out.dtype)


def _before(w: Writer, a: Any, fill: float, out: Any) -> str:
    """Return (..., n, n): for each position those up to it, and `fill` for others; axis last."""
    dim, rank = a.dim % a.self.rank, a.self.rank
    name = w.cast(a.self.name, a.self.dtype, out.dtype)
    if dim != rank - 1:
        name = w.op("Transpose", name, perm=_swapped(rank, dim))
    count = w.op("Gather", w.shape(name), w.size(rank - 1))
    steps = w.op("Range", w.size(0), count, w.size(1))
    seen = w.op("LessOrEqual", steps, w.unsqueeze(steps, [1]))
    return str(w.op("Where", seen, w.unsqueeze(name, [rank - 1]), w.constant(fill, out.dtype)))


def _swapped(rank: int, dim: int) -> list[int]:
    order = list(range(rank))
    order[dim], order[rank - 1] = order[rank - 1], order[dim]
    return order


def _back(w: Writer, a: Any, name: str) -> str:
    rank, dim = a.self.rank, a.dim % a.self.rank
    if dim == rank - 1:
        return name
    return str(w.op("Transpose", name, perm=_swapped(rank, dim)))


@form("cumprod")
def _cumprod(w: Writer, a: Any, out: Any) -> Any:
    if not a.self.rank:
        return w.cast(a.self.name, a.self.dtype, out.dtype)
    if w.opset >= 26:
        name = w.cast(a.self.name, a.self.dtype, out.dtype)
        return w.op("CumProd", name, w.size(a.dim % a.self.rank))
    products = w.reduce("ReduceProd", _before(w, a, 1, out), [a.self.rank], False)
    return _back(w, a, products)


@form("logcumsumexp")
def _logcumsumexp(w: Writer, a: Any, out: Any) -> Any:
    if not a.self.rank:
        return a.self.name
    seen = _before(w, a, -math.inf, out)
    return _back(w, a, w.reduce("ReduceLogSumExp", seen, [a.self.rank], False))


def _running_extreme(reduction: str, place: str, fill: float) -> Callable[..., Any]:
    def call(w: Writer, a: Any, out: Any) -> Any:
        rank, dtype = a.self.rank, a.self.dtype
        if not rank:
            return a.self.name, w.constant(0, tangrad.int64)
        if not dtype.is_floating_point:
            raise UnsupportedOperatorError("running extremes of integers")
        seen = _before(w, a, fill, SimpleNamespace(dtype=dtype))
        at = w.op(place, seen, axis=rank, keepdims=0, select_last_index=1)
        return _back(w, a, w.reduce(reduction, seen, [rank], False)), _back(w, a, at)

    return call


form("cummax")(_running_extreme("ReduceMax", "ArgMax", -math.inf))
form("cummin")(_running_extreme("ReduceMin", "ArgMin", math.inf))


@form("median_all")
def _median(w: Writer, a: Any, out: Any) -> Any:
    flat = w.reshape(a.self.name, [-1])
    count = w.shape(flat)
    values, _ = w.op("TopK", flat, count, largest=0, outputs=2)
    middle = w.op("Div", w.op("Sub", count, w.sizes([1])), w.sizes([2]))
    return w.reshape(w.op("Gather", values, middle), [])


@form("masked_scatter")
def _masked_scatter(w: Writer, a: Any, out: Any) -> Any:
    mask = w.op("Expand", a.mask.name, w.shape(a.self.name))
    flat = w.cast(w.reshape(mask, [-1]), tangrad.bool, tangrad.int64)
    number = w.op("Sub", w.op("CumSum", flat, w.size(0)), w.size(1))
    number = w.op("Max", number, w.size(0))
    taken = w.op("Gather", w.reshape(a.source.name, [-1]), number)
    return w.op("Where", mask, w.op("Reshape", taken, w.shape(a.self.name)), a.self.name)


def _chosen(w: Writer, a: Any) -> tuple[str, str]:
    """Return the scores of the targets, and where a target is not ignored."""
    target = w.cast(a.target.name, a.target.dtype, tangrad.int64)
    ignored = w.op("Equal", target, w.size(a.ignore_index))
    axis = 1 if a.self.rank > 1 else 0
    safe = w.unsqueeze(w.op("Where", ignored, w.size(0), target), [axis])
    found = w.op("GatherElements", a.self.name, safe, axis=axis)
    return w.op("Neg", w.squeeze(found, [axis])), w.op("Not", ignored)


@form("nll_loss_elements")
def _nll_elements(w: Writer, a: Any, out: Any) -> Any:
    loss, counted = _chosen(w, a)
    scale = w.cast(counted, tangrad.bool, a.self.dtype)
    if a.weight is not None:
        target = w.cast(a.target.name, a.target.dtype, tangrad.int64)
        safe = w.op("Where", counted, target, w.size(0))
        scale = w.op("Mul", scale, w.op("Gather", a.weight.name, safe))
    zero = w.constant(0, a.self.dtype)
    return w.op("Where", counted, w.op("Mul", loss, scale), zero), scale


@form("nll_loss_total")
def _nll_total(w: Writer, a: Any, out: Any) -> Any:
    loss, counted = _chosen(w, a)
    loss = w.op("Where", counted, loss, w.constant(0, a.self.dtype))
    dims = list(range(a.target.rank))
    total = w.reduce("ReduceSum", loss, dims, False)
    count = w.reduce("ReduceSum", w.cast(counted, tangrad.bool, a.self.dtype), dims, False)
    mean = w.op("Div", total, count) if a.mean else total
    return mean, w.cast(count, a.self.dtype, tangrad.int64)


@form("linalg_slogdet")
def _slogdet(w: Writer, a: Any, out: Any) -> Any:
    det = w.op("Det", a.first.name)
    return w.op("Sign", det), w.op("Log", w.op("Abs", det)), None


@form("scaled_gradient")
def _same(w: Writer, a: Any, out: Any) -> Any:
    return a.first.name


@form("im2col")
def _im2col(w: Writer, a: Any, out: Any) -> Any:
    pads = [0, 0, *a.padding] * 2
    single = a.input.rank == 3
    x = w.unsqueeze(a.input.name, [0]) if single else a.input.name
    x = w.op("Pad", x, w.sizes(pads))
    for i, axis in enumerate((2, 4)):
        size = a.input.shape[i - 2] + 2 * a.padding[i]
        reach = a.dilation[i] * (a.kernel_size[i] - 1) + 1
        starts = w.counted(size - (reach - 1), a.stride[i])
        inside = np.arange(a.kernel_size[i], dtype=np.int64)[:, None] * a.dilation[i]
        x = w.op("Gather", x, w.op("Add", w.constant(inside), starts), axis=axis)
    x = w.op("Transpose", x, perm=[0, 1, 2, 4, 3, 5])
    rows = a.input.shape[-3] * math.prod(a.kernel_size)
    made = w.reshape(x, [0, rows, -1], copies=True)
    return w.squeeze(made, [0]) if single else made


@form("col2im")
def _col2im(w: Writer, a: Any, out: Any) -> Any:
    if w.opset < 18:
        raise UnsupportedOperatorError("Col2Im needs opset 18")
    return w.op(
        "Col2Im",
        a.input.name,
        w.sizes(a.output_size),
        w.sizes(a.kernel_size),
        dilations=list(a.dilation),
        pads=list(a.padding) * 2,
        strides=list(a.stride),
    )


@form("_affine_positions")
def _affine_positions(w: Writer, a: Any, out: Any) -> Any:
    axes = []
    for size in a.size[2:]:
        at = np.linspace(-1, 1, size) if a.align_corners else (np.arange(size) * 2 + 1) / size - 1
        axes.append(at if size > 1 else np.zeros(1))
    grid = np.meshgrid(*axes, indexing="ij")
    points = np.stack([*reversed(grid), np.ones_like(grid[0])], -1)
    rows = w.constant(points.reshape(1, -1, points.shape[-1]), a.theta.dtype)
    found = w.op("MatMul", rows, w.op("Transpose", a.theta.name, perm=[0, 2, 1]))
    return w.reshape(found, [0, *a.size[2:], len(a.size) - 2], copies=True)


@form("diagonal_backward")
def _diagonal_backward(w: Writer, a: Any, out: Any) -> Any:
    """Write a diagonal into zeros, which is how diagonal matrices are made."""
    given: Value = a.first
    rank = out.ndim
    dim1, dim2 = a.dim1 % rank, a.dim2 % rank
    rest = [dim for dim in range(rank) if dim not in (dim1, dim2)]
    order = [dim1, dim2, *rest]
    at = diagonal_places(w, given.shape[-1], a.offset)
    zeros = w.op("Expand", w.constant(0, out.dtype), w.sizes([a.shape[d] for d in order]))
    source = w.op("Transpose", given.name, perm=[len(rest), *range(len(rest))])
    made = w.op("ScatterND", zeros, at, source)
    return w.op("Transpose", made, perm=[order.index(dim) for dim in range(rank)])


@form("_batch_norm")
def _batch_norm(w: Writer, a: Any, out: Any) -> Any:
    """Normalize by given statistics, or by those of the batch."""
    x: Value = a.input
    shape = [1, -1] + [1] * (x.rank - 2)
    if a.training:
        dims = [dim for dim in range(x.rank) if dim != 1]
        mean = w.reduce("ReduceMean", x.name, dims, True)
        distance = w.op("Sub", x.name, mean)
        var = w.reduce("ReduceMean", w.op("Mul", distance, distance), dims, True)
    else:
        mean, var = (w.reshape(p.name, shape) for p in (a.mean, a.var))
        distance = w.op("Sub", x.name, mean)
    y = w.op("Div", distance, w.op("Sqrt", w.op("Add", var, w.constant(a.eps, x.dtype))))
    if a.weight is not None:
        y = w.op("Mul", y, w.reshape(a.weight.name, shape))
    if a.bias is not None:
        y = w.op("Add", y, w.reshape(a.bias.name, shape))
    return y, w.reshape(mean, [-1]), w.reshape(var, [-1])


@form("checked_variance")
def _variance(w: Writer, a: Any, out: Any) -> Any:
    return w.op("Max", a.self.name, w.constant(a.eps, out.dtype))
