"""Views, copies, and what makes tensors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tangrad
from tangrad_onnx.errors import UnsupportedOperatorError
from tangrad_onnx.writing.forms.registry import form
from tangrad_onnx.writing.graph import Size, Value, Writer

_LAST = 2**63 - 1


@form("view_size", "_unsafe_view", "reshape")
def _view(w: Writer, a: Any, out: Any) -> Any:
    return w.reshape(a.self.name, a.size if hasattr(a, "size") else a.shape)


@form("permute")
def _permute(w: Writer, a: Any, out: Any) -> Any:
    if not a.self.rank:
        return a.self.name
    return w.op("Transpose", a.self.name, perm=[dim % a.self.rank for dim in a.dims])


@form("transpose", "swapaxes", "swapdims", "t")
def _transpose(w: Writer, a: Any, out: Any) -> Any:
    rank = a.self.rank
    if rank < 2:
        return a.self.name
    one = getattr(a, "dim0", getattr(a, "axis0", 0)) % rank
    other = getattr(a, "dim1", getattr(a, "axis1", 1)) % rank
    order = list(range(rank))
    order[one], order[other] = other, one
    return w.op("Transpose", a.self.name, perm=order)


@form("expand")
def _expand(w: Writer, a: Any, out: Any) -> Any:
    sizes = [1 if size == -1 else size for size in a.size]
    return w.op("Expand", a.self.name, w.sizes(sizes))


@form("unsqueeze")
def _unsqueeze(w: Writer, a: Any, out: Any) -> Any:
    return w.unsqueeze(a.self.name, [a.dim % (a.self.rank + 1)])


@form("squeeze")
def _squeeze(w: Writer, a: Any, out: Any) -> Any:
    rank = a.self.rank
    dims = range(rank) if a.dim is None else [dim % rank for dim in a.dim] if rank else []
    dims = [dim for dim in dims if a.self.shape[dim] == 1]
    return w.squeeze(a.self.name, dims) if dims else a.self.name


@form("select")
def _select(w: Writer, a: Any, out: Any) -> Any:
    return w.op("Gather", a.self.name, w.size(a.index), axis=a.dim % a.self.rank)


@form("slice")
def _slice(w: Writer, a: Any, out: Any) -> Any:
    start = 0 if a.start is None else a.start
    end = _LAST if a.end is None else a.end
    return w.slice(a.self.name, a.dim % a.self.rank, start, end, a.step)


@form("split_size", "unsafe_split")
def _split(w: Writer, a: Any, out: Any) -> Any:
    dim = a.dim % a.self.rank
    size = getattr(a, "split_size_or_sections", None) or a.split_size
    if isinstance(size, Size):
        raise UnsupportedOperatorError("a split into parts of a size that varies")
    whole = a.self.shape[dim]
    parts = [min(size, whole - at) for at in range(0, whole, size)] or [0]
    if len(parts) == 1:
        return (a.self.name,)
    return w.op("Split", a.self.name, w.sizes(parts), axis=dim, outputs=len(parts))


@form("split_with_sizes", "unsafe_split_with_sizes")
def _split_sizes(w: Writer, a: Any, out: Any) -> Any:
    sizes = a.split_size_or_sections
    if len(sizes) == 1:
        return (a.self.name,)
    return w.op("Split", a.self.name, w.sizes(sizes), axis=a.dim % a.self.rank, outputs=len(sizes))


@form("unbind")
def _unbind(w: Writer, a: Any, out: Any) -> Any:
    dim = a.dim % a.self.rank
    return tuple(w.op("Gather", a.self.name, w.size(i), axis=dim) for i in range(a.self.shape[dim]))


@form("diagonal")
def _diagonal(w: Writer, a: Any, out: Any) -> Any:
    order, at = _places_of_diagonal(w, a.self, a)
    moved = w.op("Transpose", a.self.name, perm=order)
    found = w.op("GatherND", moved, at)
    return w.op("Transpose", found, perm=[*range(1, a.self.rank - 1), 0])


def put_diagonal(w: Writer, whole: Value, name: str, a: Any) -> str:
    """Return a tensor with others on a diagonal."""
    order, at = _places_of_diagonal(w, whole, a)
    moved = w.op("Transpose", whole.name, perm=order)
    source = w.op("Transpose", name, perm=[whole.rank - 2, *range(whole.rank - 2)])
    made = w.op("ScatterND", moved, at, source)
    return str(w.op("Transpose", made, perm=np.argsort(order).tolist()))


def _places_of_diagonal(w: Writer, x: Value, a: Any) -> tuple[list[int], str]:
    """Return dimensions with those of the diagonal first, and its places in these."""
    dim1, dim2 = a.dim1 % x.rank, a.dim2 % x.rank
    rest = [dim for dim in range(x.rank) if dim not in (dim1, dim2)]
    rows, columns = x.shape[dim1], x.shape[dim2]
    ends = rows - max(-a.offset, 0), columns - max(a.offset, 0)
    if any(isinstance(end, Size) for end in ends):
        both = [w.size(end) for end in ends]
        count: Any = Size(w, lambda: str(w.op("Max", w.op("Min", *both), w.size(0))))
    else:
        count = max(0, min(ends))
        if not rows or not columns:
            raise UnsupportedOperatorError("a diagonal of nothing")
    return [dim1, dim2, *rest], diagonal_places(w, count, a.offset)


def diagonal_places(w: Writer, count: Any, offset: int) -> str:
    """Return (count, 2): the places of a diagonal."""
    first = np.array([max(-offset, 0), max(offset, 0)], np.int64)
    return str(w.op("Add", w.unsqueeze(w.counted(count), [1]), w.constant(first)))


@form("unfold")
def _unfold(w: Writer, a: Any, out: Any) -> Any:
    dim = a.dimension % a.self.rank
    starts = w.counted(a.self.shape[dim] - (a.size - 1), a.step)
    at = w.op("Add", w.unsqueeze(starts, [1]), w.counted(a.size))
    found = w.op("Gather", a.self.name, at, axis=dim)
    order = [i for i in range(a.self.rank + 1) if i != dim + 1]
    return w.op("Transpose", found, perm=[*order, dim + 1])


@form("as_strided")
def _as_strided(w: Writer, a: Any, out: Any) -> Any:
    at: Any = np.array(a.storage_offset or 0)
    for size, stride in zip(a.size, a.stride, strict=True):
        at = at[..., None] + np.arange(size) * stride
    flat = w.reshape(a.self.name, [-1])
    return w.op("Gather", flat, w.constant(at.astype(np.int64)))


@form("_neg_view")
def _negative(w: Writer, a: Any, out: Any) -> Any:
    return w.op("Neg", a.self.name)


@form(
    "_conj",
    "alias",
    "detach",
    "clone",
    "contiguous",
    "lift_fresh",
    "resolve_conj",
    "resolve_neg",
    "positive",
)
def _same(w: Writer, a: Any, out: Any) -> Any:
    return a.self.name


@form("_to_copy")
def _to_copy(w: Writer, a: Any, out: Any) -> Any:
    return w.cast(a.self.name, a.self.dtype, out.dtype)


@form("cat", "concat", "concatenate")
def _cat(w: Writer, a: Any, out: Any) -> Any:
    parts = [part for part in a.tensors if not (part.rank == 1 and part.shape == (0,))]
    names = [w.cast(part.name, part.dtype, out.dtype) for part in parts]
    if not names:
        return w.cast(a.tensors[0].name, a.tensors[0].dtype, out.dtype)
    return w.op("Concat", *names, axis=a.dim % max(out.ndim, 1))


@form("flip")
def _flip(w: Writer, a: Any, out: Any) -> Any:
    dims = [dim % a.self.rank for dim in a.dims]
    if not dims:
        return a.self.name
    count = len(dims)
    vectors = [[-1] * count, [-_LAST] * count, dims, [-1] * count]
    return w.op("Slice", a.self.name, *(w.sizes(vector) for vector in vectors))


def _amounts(pad: Any, rank: int) -> tuple[list[Any], list[Any]]:
    """Return what is added before and after, for each dimension."""
    before: list[Any] = [0] * rank
    after: list[Any] = [0] * rank
    for i in range(len(pad) // 2):
        before[rank - 1 - i], after[rank - 1 - i] = pad[2 * i], pad[2 * i + 1]
    return before, after


@form("constant_pad_nd")
def _pad(w: Writer, a: Any, out: Any) -> Any:
    before, after = _amounts(a.pad, a.self.rank)
    number = w.constant(a.value, out.dtype)
    if out.dtype is tangrad.bool:
        wide = w.cast(a.self.name, tangrad.bool, tangrad.int32)
        number = w.constant(int(a.value), tangrad.int32)
        padded = w.op("Pad", wide, w.sizes([*before, *after]), number)
        return w.cast(padded, tangrad.int32, tangrad.bool)
    return w.op("Pad", a.self.name, w.sizes([*before, *after]), number)


@form("_pad_by_places")
def _pad_by_places(w: Writer, a: Any, out: Any) -> Any:
    before, after = _amounts(a.pad, a.self.rank)
    wide = tangrad.int32 if out.dtype is tangrad.bool else out.dtype
    name = w.cast(a.self.name, out.dtype, wide)
    added = [[max(n, 0) if isinstance(n, int) else n for n in side] for side in (before, after)]
    if (
        a.mode == "circular"
    ):  # what is cut off does not come again; "wrap" is younger than most files
        name = _cut(w, name, before, after)
        for dim, amounts in enumerate(zip(*added, strict=True)):
            name = _wrapped(w, name, dim, *amounts)
    else:
        if any(n != 0 for n in (*added[0], *added[1])):
            mode = {"reflect": "reflect", "replicate": "edge"}[a.mode]
            name = w.op("Pad", name, w.sizes([*added[0], *added[1]]), mode=mode)
        name = _cut(w, name, before, after)
    return w.cast(name, wide, out.dtype)


def _cut(w: Writer, name: str, before: list[Any], after: list[Any]) -> str:
    """Cut off what is added in negative amounts."""
    for dim, amounts in enumerate(zip(before, after, strict=True)):
        first, last = (min(n, 0) if isinstance(n, int) else 0 for n in amounts)
        if first or last:
            name = _sliced(w, name, dim, -first, last or _LAST)
    return name


def _sliced(w: Writer, name: str, dim: int, start: Any, stop: Any) -> str:
    return str(w.op("Slice", name, w.sizes([start]), w.sizes([stop]), w.sizes([dim])))


def _wrapped(w: Writer, name: str, dim: int, before: Any, after: Any) -> str:
    parts = [name]
    if before != 0:
        parts.insert(0, _sliced(w, name, dim, -before, _LAST))
    if after != 0:
        parts.append(_sliced(w, name, dim, 0, after))
    return str(w.op("Concat", *parts, axis=dim)) if len(parts) > 1 else name


def _part(upper: int) -> Any:
    def call(w: Writer, a: Any, out: Any) -> Any:
        name, dtype = a.self.name, a.self.dtype
        wide = tangrad.int64 if dtype is tangrad.bool else dtype
        part = w.op("Trilu", w.cast(name, dtype, wide), w.size(a.diagonal), upper=upper)
        return w.cast(part, wide, dtype)

    return call


form("tril")(_part(0))
form("triu")(_part(1))


def filled(w: Writer, sizes: Any, value: Any, dtype: Any) -> str:
    """Return a tensor of one number."""
    number = value.name if isinstance(value, Value) else w.constant(value, dtype)
    if isinstance(value, Value):
        number = w.cast(number, value.dtype, dtype)
    return str(w.op("Expand", number, w.sizes([sizes] if isinstance(sizes, int) else list(sizes))))


@form("full", whole=True)
def _full(w: Writer, a: Any, out: Any) -> Any:
    return filled(w, a.size, a.fill_value, out.dtype)


@form("zeros", "new_zeros", whole=True)
def _zeros(w: Writer, a: Any, out: Any) -> Any:
    return filled(w, a.size, 0, out.dtype)


@form("ones", "new_ones", whole=True)
def _ones(w: Writer, a: Any, out: Any) -> Any:
    return filled(w, a.size, 1, out.dtype)


@form("empty", "new_empty", "empty_strided", "empty_permuted")
def _empty(w: Writer, a: Any, out: Any) -> Any:
    return filled(w, a.size, 0, out.dtype)


@form("new_full", whole=True)
def _new_full(w: Writer, a: Any, out: Any) -> Any:
    return filled(w, a.size, a.fill_value, out.dtype)


def _like(value: Any) -> Any:
    def call(w: Writer, a: Any, out: Any) -> Any:
        number = w.constant(a.fill_value if value is None else value, out.dtype)
        return w.op("Expand", number, w.shape(a.first.name))

    return call


form("zeros_like", "empty_like", whole=True)(_like(0))
form("ones_like", whole=True)(_like(1))
form("full_like", whole=True)(_like(None))


@form("arange_end", "arange_step", whole=True)
def _arange(w: Writer, a: Any, out: Any) -> Any:
    start, step = getattr(a, "start", 0), getattr(a, "step", 1)
    ends = [start, a.end, step]
    if any(isinstance(x, Size) for x in ends):
        wide = tangrad.int64 if all(isinstance(x, (int, Size)) for x in ends) else tangrad.float64
        return w.cast(w.op("Range", *(_number(w, x, wide) for x in ends)), wide, out.dtype)
    count = max(math.ceil((a.end - start) / step), 0)
    wide = np.arange(count) * step + start
    return w.constant(wide, out.dtype)


@form("fill_")
def _fill(w: Writer, a: Any, out: Any) -> Any:
    value = a.value
    if isinstance(value, Value):
        number = w.cast(value.name, value.dtype, out.dtype)
    else:
        number = w.constant(value, out.dtype)
    return w.op("Expand", number, w.shape(a.self.name))


@form("zero_")
def _zero(w: Writer, a: Any, out: Any) -> Any:
    return w.op("Expand", w.constant(0, out.dtype), w.shape(a.self.name))


@form("copy_")
def _copy(w: Writer, a: Any, out: Any) -> Any:
    if isinstance(a.src, Value):
        source = w.cast(a.src.name, a.src.dtype, out.dtype)
    else:
        source = w.constant(a.src, out.dtype)
    return w.op("Expand", source, w.shape(a.self.name))


@form("_sequence")
def _sequence(w: Writer, a: Any, out: Any) -> Any:
    count = w.op("ReduceProd", w.shape(a.self.name), keepdims=0)
    steps = w.op("Range", w.size(0), count, w.size(1))
    wide = tangrad.int64 if not out.dtype.is_floating_point else out.dtype
    start, step = (_number(w, x, wide) for x in (a.start, a.step))
    steps = w.op("Mul", w.cast(steps, tangrad.int64, wide), step)
    return w.cast(w.op("Add", steps, start), wide, out.dtype)


def _number(w: Writer, value: Any, dtype: Any) -> str:
    if isinstance(value, Size):
        return w.cast(value.name, tangrad.int64, dtype)
    return w.constant(value, dtype)


@form("scalar_tensor", whole=True)
def _scalar(w: Writer, a: Any, out: Any) -> Any:
    return w.constant(a.s, out.dtype)


@form("repeat", whole=True)
def _repeat(w: Writer, a: Any, out: Any) -> Any:
    name = a.self.name
    missing = len(a.repeats) - a.self.rank
    if missing:
        name = w.unsqueeze(name, list(range(missing)))
    return w.op("Tile", name, w.sizes(a.repeats))


@form("_spaced")
def _spaced(w: Writer, a: Any, out: Any) -> Any:
    """Count from both ends up to the middle, as the library does."""
    wide = tangrad.float64
    start, end = (_number(w, x, wide) for x in (a.start, a.end))
    count = w.size(a.self.shape[0])
    last = w.op("Sub", count, w.size(1))
    parts = w.cast(w.op("Max", last, w.size(1)), tangrad.int64, wide)
    step = w.op("Div", w.op("Sub", end, start), parts)
    place = w.op("Range", w.size(0), count, w.size(1))
    half = w.op("Max", w.op("Div", count, w.size(2)), w.size(1))
    up, down = (w.cast(x, tangrad.int64, wide) for x in (place, w.op("Sub", place, last)))
    up, down = (w.op("Add", w.op("Mul", x, step), y) for x, y in ((up, start), (down, end)))
    return w.cast(w.op("Where", w.op("Less", place, half), up, down), wide, out.dtype)


@form("eye", whole=True)
def _eye(w: Writer, a: Any, out: Any) -> Any:
    rows = a.n
    columns = getattr(a, "m", None)
    down, across = (w.counted(n) for n in (rows, rows if columns is None else columns))
    equal = w.op("Equal", w.unsqueeze(down, [1]), across)
    return w.cast(equal, tangrad.bool, out.dtype)
