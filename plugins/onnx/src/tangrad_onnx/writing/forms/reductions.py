"""Reductions, running sums, sorting."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tangrad
from tangrad_onnx.writing.forms.registry import form
from tangrad_onnx.writing.graph import Value, Writer


def _dims(a: Any, x: Value) -> list[int]:
    dim = getattr(a, "dim", None)
    if isinstance(dim, int):
        dim = [dim]
    if dim is None or (len(dim) == 0):
        return list(range(x.rank))
    return sorted(d % x.rank for d in dim) if x.rank else []


def _summed(operator: str) -> Callable[..., Any]:
    def call(w: Writer, a: Any, out: Any) -> Any:
        name = w.cast(a.self.name, a.self.dtype, out.dtype)
        keep = bool(getattr(a, "keepdim", False))
        return w.reduce(operator, name, _dims(a, a.self), keep)

    return call


form("sum")(_summed("ReduceSum"))
form("mean")(_summed("ReduceMean"))
form("logsumexp")(_summed("ReduceLogSumExp"))


@form("prod")
def _prod(w: Writer, a: Any, out: Any) -> Any:
    name = w.cast(a.self.name, a.self.dtype, out.dtype)
    return w.reduce("ReduceProd", name, _dims(a, a.self), bool(a.keepdim))


def _extreme(operator: str) -> Callable[..., Any]:
    def call(w: Writer, a: Any, out: Any) -> Any:
        wide = tangrad.int32 if out.dtype is tangrad.bool else out.dtype
        name = w.cast(a.self.name, a.self.dtype, wide)
        keep = bool(getattr(a, "keepdim", False))
        return w.cast(w.reduce(operator, name, _dims(a, a.self), keep), wide, out.dtype)

    return call


form("amax", "max_all")(_extreme("ReduceMax"))
form("amin", "min_all")(_extreme("ReduceMin"))


@form("any")
def _any(w: Writer, a: Any, out: Any) -> Any:
    return _tested(w, a, out, "ReduceMax")


@form("all")
def _all(w: Writer, a: Any, out: Any) -> Any:
    return _tested(w, a, out, "ReduceMin")


def _tested(w: Writer, a: Any, out: Any, operator: str) -> Any:
    bits = w.cast(w.cast(a.self.name, a.self.dtype, tangrad.bool), tangrad.bool, tangrad.int32)
    if a.dim is None or len(a.dim):  # of no dimensions each element is its own answer
        bits = w.reduce(operator, bits, _dims(a, a.self), bool(a.keepdim))
    return w.cast(bits, tangrad.int32, out.dtype)


def _extreme_with_index(operator: str, at: str) -> Callable[..., Any]:
    def call(w: Writer, a: Any, out: Any) -> Any:
        if not a.self.rank:
            return a.self.name, w.constant(0, tangrad.int64)
        dim = a.dim % a.self.rank
        keep = int(bool(a.keepdim))
        return (
            w.reduce(operator, a.self.name, [dim], bool(keep)),
            w.op(at, a.self.name, axis=dim, keepdims=keep),
        )

    return call


form("max_dim")(_extreme_with_index("ReduceMax", "ArgMax"))
form("min_dim")(_extreme_with_index("ReduceMin", "ArgMin"))


def _place(operator: str) -> Callable[..., Any]:
    def call(w: Writer, a: Any, out: Any) -> Any:
        if not a.self.rank:
            return w.constant(0, tangrad.int64)
        if a.dim is not None:
            return w.op(operator, a.self.name, axis=a.dim % a.self.rank, keepdims=int(a.keepdim))
        found = w.op(operator, w.reshape(a.self.name, [-1]), axis=0, keepdims=0)
        return w.reshape(found, [1] * a.self.rank) if a.keepdim else found

    return call


form("argmax")(_place("ArgMax"))
form("argmin")(_place("ArgMin"))


@form("aminmax")
def _aminmax(w: Writer, a: Any, out: Any) -> Any:
    dims, keep = _dims(a, a.self), bool(a.keepdim)
    return tuple(w.reduce(name, a.self.name, dims, keep) for name in ("ReduceMin", "ReduceMax"))


def _spread(w: Writer, a: Any) -> tuple[str, str]:
    """Return variance and mean, the axes kept."""
    x, dims = a.self, _dims(a, a.self)
    mean = w.reduce("ReduceMean", x.name, dims, True)
    distance = w.op("Sub", x.name, mean)
    total = w.reduce("ReduceSum", w.op("Mul", distance, distance), dims, True)
    shape = w.op("Gather", w.shape(x.name), w.sizes(dims))
    count = w.cast(w.op("ReduceProd", shape, keepdims=0), tangrad.int64, x.dtype)
    rest = w.op("Sub", count, w.constant(a.correction, x.dtype))
    rest = w.op("Max", rest, w.constant(0, x.dtype))
    return w.op("Div", total, rest), mean


def _kept(w: Writer, a: Any, name: str) -> str:
    return name if a.keepdim else w.squeeze(name, _dims(a, a.self)) if a.self.rank else name


@form("var_corrected")
def _var(w: Writer, a: Any, out: Any) -> Any:
    return _kept(w, a, _spread(w, a)[0])


@form("std_corrected")
def _std(w: Writer, a: Any, out: Any) -> Any:
    return _kept(w, a, w.op("Sqrt", _spread(w, a)[0]))


@form("var_mean_corrected")
def _var_mean(w: Writer, a: Any, out: Any) -> Any:
    return tuple(_kept(w, a, name) for name in _spread(w, a))


@form("std_mean_corrected")
def _std_mean(w: Writer, a: Any, out: Any) -> Any:
    spread, mean = _spread(w, a)
    return _kept(w, a, w.op("Sqrt", spread)), _kept(w, a, mean)


@form("nansum")
def _nansum(w: Writer, a: Any, out: Any) -> Any:
    name = a.self.name
    if a.self.dtype.is_floating_point:
        name = w.op("Where", w.op("IsNaN", name), w.constant(0, a.self.dtype), name)
    return w.reduce("ReduceSum", w.cast(name, a.self.dtype, out.dtype), _dims(a, a.self), a.keepdim)


@form("count_nonzero", "norm_count")
def _count(w: Writer, a: Any, out: Any) -> Any:
    bits = w.cast(w.cast(a.self.name, a.self.dtype, tangrad.bool), tangrad.bool, out.dtype)
    return w.reduce("ReduceSum", bits, _dims(a, a.self), bool(getattr(a, "keepdim", False)))


@form("norm_euclidean")
def _euclidean(w: Writer, a: Any, out: Any) -> Any:
    name = w.cast(a.self.name, a.self.dtype, out.dtype)
    return (
        w.reduce("ReduceL2", name, _dims(a, a.self), a.keepdim)
        if a.self.rank
        else w.op("Abs", name)
    )


@form("norm_power")
def _norm(w: Writer, a: Any, out: Any) -> Any:
    size = w.op("Abs", w.cast(a.self.name, a.self.dtype, out.dtype))
    dims, keep = _dims(a, a.self), bool(a.keepdim)
    if math.isinf(a.p):
        return w.reduce("ReduceMax" if a.p > 0 else "ReduceMin", size, dims, keep)
    if a.p == 0:
        present = w.cast(w.cast(size, out.dtype, tangrad.bool), tangrad.bool, out.dtype)
        return w.reduce("ReduceSum", present, dims, keep)
    total = w.reduce("ReduceSum", w.op("Pow", size, w.constant(a.p, out.dtype)), dims, keep)
    return w.op("Pow", total, w.constant(1 / a.p, out.dtype))


@form("cumsum")
def _cumsum(w: Writer, a: Any, out: Any) -> Any:
    name = w.cast(a.self.name, a.self.dtype, out.dtype)
    if not a.self.rank:
        return name
    return w.op("CumSum", name, w.size(a.dim % a.self.rank))


@form("topk")
def _topk(w: Writer, a: Any, out: Any) -> Any:
    count = w.sizes([a.k])
    if not a.self.rank:
        return a.self.name, w.constant(0, tangrad.int64)
    return w.op(
        "TopK",
        a.self.name,
        count,
        axis=a.dim % a.self.rank,
        largest=int(a.largest),
        sorted=int(a.sorted),
        outputs=2,
    )


@form("sort")
def _sort(w: Writer, a: Any, out: Any) -> Any:
    if not a.self.rank:
        return a.self.name, w.constant(0, tangrad.int64)
    dim = a.dim % a.self.rank
    wide = tangrad.int32 if a.self.dtype in (tangrad.bool, tangrad.uint8, tangrad.int8) else None
    name = w.cast(a.self.name, a.self.dtype, wide or a.self.dtype)
    count = w.op("Gather", w.shape(a.self.name), w.sizes([dim]))
    values, at = w.op("TopK", name, count, axis=dim, largest=int(a.descending), outputs=2)
    return w.cast(values, wide or a.self.dtype, a.self.dtype), at
