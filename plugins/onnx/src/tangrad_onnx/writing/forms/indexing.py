"""Gathering and scattering."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad_onnx.errors import UnsupportedOperatorError
from tangrad_onnx.writing.forms.registry import form
from tangrad_onnx.writing.graph import Value, Writer


def _long(w: Writer, index: Value) -> str:
    return w.cast(index.name, index.dtype, tangrad.int64)


@form("gather")
def _gather(w: Writer, a: Any, out: Any) -> Any:
    if not a.self.rank:
        return w.op("Expand", a.self.name, w.shape(a.index.name))
    return w.op("GatherElements", a.self.name, _long(w, a.index), axis=a.dim % a.self.rank)


@form("index_select")
def _index_select(w: Writer, a: Any, out: Any) -> Any:
    if not a.self.rank:
        return a.self.name
    index = _long(w, a.index)
    index = w.reshape(index, [-1]) if a.index.rank == 0 else index
    return w.op("Gather", a.self.name, index, axis=a.dim % a.self.rank)


@form("embedding", whole=True)
def _embedding(w: Writer, a: Any, out: Any) -> Any:
    if a.max_norm is not None:
        raise UnsupportedOperatorError("embedding with max_norm writes into its weights")
    return w.op("Gather", a.weight.name, _long(w, a.input))


@form("index")
def _index(w: Writer, a: Any, out: Any) -> Any:
    given = list(a.indices)
    if any(x is not None and x.dtype in (tangrad.bool, tangrad.uint8) for x in given):
        return _masked(w, a, given)
    chosen = [i for i, x in enumerate(given) if x is not None]
    if len(chosen) == 1:
        at = chosen[0]
        return w.op("Gather", a.self.name, _long(w, given[at]), axis=at)
    rest = [i for i in range(a.self.rank) if i not in chosen]
    moved = w.op("Transpose", a.self.name, perm=[*chosen, *rest])
    found = w.op("GatherND", moved, _together(w, [given[i] for i in chosen]))
    rank = max(given[i].rank for i in chosen)
    if chosen == list(range(chosen[0], chosen[-1] + 1)) and chosen[0] > 0:
        # Adjacent indices leave their dimensions where they were.
        front = chosen[0]
        order = [*range(rank, rank + front), *range(rank), *range(rank + front, out.ndim)]
        found = w.op("Transpose", found, perm=order)
    return found


def _masked(w: Writer, a: Any, given: list[Any]) -> str:
    if given[0] is None or any(x is not None for x in given[1:]):
        raise UnsupportedOperatorError("a mask beside other indices")
    mask = w.cast(given[0].name, given[0].dtype, tangrad.bool)
    return str(w.op("GatherND", a.self.name, w.op("Transpose", w.op("NonZero", mask))))


def _together(w: Writer, given: list[Value]) -> str:
    """Return indices as one tensor of coordinates in its last axis."""
    names = [_long(w, x) for x in given]
    shape = w.shape(names[0])
    if len({x.rank for x in given}) > 1 or len({x.shape for x in given}) > 1:
        total = names[0]
        for name in names[1:]:
            total = w.op("Add", total, name)
        shape = w.shape(total)
    spread = [w.unsqueeze(w.op("Expand", name, shape), [-1]) for name in names]
    return str(w.op("Concat", *spread, axis=-1))


@form("_index_put", "index_put", "_index_put_")
def _index_put(w: Writer, a: Any, out: Any) -> Any:
    given = list(a.indices)
    if a.accumulate and w.opset < 16:
        raise UnsupportedOperatorError("sums of scattered values need opset 16")
    if len(given) == 1 and given[0] is not None and given[0].dtype is tangrad.bool:
        mask, behind = given[0].name, a.self.rank - given[0].rank
        if a.values.rank == 0:
            shown = w.unsqueeze(mask, list(range(given[0].rank, a.self.rank))) if behind else mask
            return w.op(
                "Where", shown, w.cast(a.values.name, a.values.dtype, out.dtype), a.self.name
            )
        at = w.op("Transpose", w.op("NonZero", mask))
        return _scattered(w, a, at, out)
    if any(x is None or x.dtype is tangrad.bool for x in given):
        raise UnsupportedOperatorError("writing by indices that leave out a dimension")
    return _scattered(w, a, _together(w, given), out)


def _scattered(w: Writer, a: Any, at: str, out: Any) -> str:
    found = w.op("GatherND", a.self.name, at)
    values = w.op("Expand", w.cast(a.values.name, a.values.dtype, out.dtype), w.shape(found))
    how = "add" if a.accumulate else None
    return str(w.op("ScatterND", a.self.name, at, values, reduction=how))


def _scatter(reduction: str | None, since: int = 13) -> Any:
    def call(w: Writer, a: Any, out: Any) -> Any:
        if reduction and w.opset < since:
            raise UnsupportedOperatorError(f"scattering by {reduction!r} needs opset {since}")
        index = _long(w, a.index)
        if hasattr(a, "src"):
            source = a.src.name
            if a.src.shape != a.index.shape:
                source = _corner(w, source, index, a.index.rank)
        else:
            source = w.op("Expand", w.constant(a.value, out.dtype), w.shape(index))
        how = reduction
        if hasattr(a, "largest"):
            how = "max" if a.largest else "min"
        if not a.self.rank:
            flat = [w.reshape(name, [-1]) for name in (a.self.name, index, source)]
            made = w.op("ScatterElements", *flat, axis=0, reduction=how)
            return w.reshape(made, [])
        axis = a.dim % a.self.rank
        return w.op("ScatterElements", a.self.name, index, source, axis=axis, reduction=how)

    return call


def _corner(w: Writer, source: str, index: str, rank: int) -> str:
    """Return the part of a source that an index covers."""
    zeros, axes = w.sizes([0] * rank), w.sizes(list(range(rank)))
    return str(w.op("Slice", source, zeros, w.shape(index), axes))


form("scatter_src", "scatter_src_", "scatter_value", "scatter_value_")(_scatter(None))
form("scatter_add", "scatter_add_")(_scatter("add", 16))
form("scatter_multiply", "scatter_multiply_")(_scatter("mul", 16))
form("scatter_extreme")(_scatter("max", 18))


def _along(w: Writer, a: Any, source: str, how: str | None) -> str:
    """Scatter whole slices along an axis."""
    axis = a.dim % a.self.rank
    index = _long(w, a.index)
    index = w.reshape(index, [1] * axis + [-1] + [1] * (a.self.rank - 1 - axis))
    index = w.op("Expand", index, w.shape(source))
    return str(w.op("ScatterElements", a.self.name, index, source, axis=axis, reduction=how))


@form("index_copy", "index_copy_")
def _index_copy(w: Writer, a: Any, out: Any) -> Any:
    if not a.self.rank:
        return a.source.name
    return _along(w, a, a.source.name, None)


@form("index_add", "index_add_")
def _index_add(w: Writer, a: Any, out: Any) -> Any:
    if w.opset < 16 or not a.self.rank:
        raise UnsupportedOperatorError("index_add needs opset 16 and a dimension")
    source = a.source.name
    if a.alpha != 1:
        source = w.op("Mul", source, w.constant(a.alpha, out.dtype))
    return _along(w, a, source, "add")


@form("index_fill_scalar", "index_fill_scalar_")
def _index_fill(w: Writer, a: Any, out: Any) -> Any:
    if not a.self.rank:
        return w.constant(a.value, out.dtype)
    axis = a.dim % a.self.rank
    index = w.reshape(_long(w, a.index), [-1])
    part = w.op("Gather", a.self.name, index, axis=axis)
    source = w.op("Expand", w.constant(a.value, out.dtype), w.shape(part))
    return _along(w, a, source, None)


@form("select_scatter")
def _select_scatter(w: Writer, a: Any, out: Any) -> Any:
    axis = a.dim % a.self.rank
    source = w.unsqueeze(w.cast(a.src.name, a.src.dtype, out.dtype), [axis])
    return put_slice(w, a.self, source, axis, a.index, 1, 1)


@form("slice_scatter")
def _slice_scatter(w: Writer, a: Any, out: Any) -> Any:
    axis = a.dim % a.self.rank
    source = w.cast(a.src.name, a.src.dtype, out.dtype)
    return put_slice(w, a.self, source, axis, a.start or 0, a.step, None)


def put_slice(
    w: Writer, x: Value, source: str, axis: int, start: Any, step: int, count: int | None
) -> str:
    """Return a tensor with a slice of an axis replaced."""
    shape = w.shape(source)
    length = w.op("Gather", shape, w.size(axis)) if count is None else w.size(count)
    at = w.op("Range", w.size(0), length, w.size(1))
    if step != 1:
        at = w.op("Mul", at, w.size(step))
    first: Any = start
    if isinstance(start, int) and start < 0:
        first = w.op("Add", w.op("Gather", w.shape(x.name), w.size(axis)), w.size(start))
    else:
        first = w.size(start)
    at = w.op("Add", at, first)
    at = w.reshape(at, [1] * axis + [-1] + [1] * (x.rank - 1 - axis))
    return str(w.op("ScatterElements", x.name, w.op("Expand", at, shape), source, axis=axis))


@form("nonzero_table")
def _nonzero_table(w: Writer, a: Any, out: Any) -> Any:
    return w.op("NonZero", w.cast(a.first.name, a.first.dtype, tangrad.bool))


@form("nonzero", "argwhere", whole=True)
def _nonzero(w: Writer, a: Any, out: Any) -> Any:
    rows = w.op("NonZero", w.cast(a.first.name, a.first.dtype, tangrad.bool))
    if getattr(a, "as_tuple", False):
        return tuple(w.op("Gather", rows, w.size(k), axis=0) for k in range(a.first.rank))
    return w.op("Transpose", rows)


@form("masked_select")
def _masked_select(w: Writer, a: Any, out: Any) -> Any:
    shape = w.shape(w.op("And", w.op("Equal", *[_bits(w, a)] * 2), a.mask.name))
    spread = [w.op("Expand", name, shape) for name in (a.self.name, a.mask.name)]
    flat = [w.reshape(name, [-1]) for name in spread]
    return w.op("Compress", *flat, axis=0)


def _bits(w: Writer, a: Any) -> str:
    return w.cast(a.self.name, a.self.dtype, tangrad.bool)


@form("one_hot", whole=True)
def _one_hot(w: Writer, a: Any, out: Any) -> Any:
    if a.num_classes == -1 or not a.self.rank:
        raise UnsupportedOperatorError("one_hot needs num_classes and a dimension")
    values = w.constant([0, 1], tangrad.int64)
    return w.op("OneHot", _long(w, a.self), w.size(a.num_classes), values)
