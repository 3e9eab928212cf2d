"""Define the reductions into places that an index names: by element, by row, and by segments."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.ops.definition.define import composite, op
from tangrad.ops.definition.signature import Dim, Scalar, Tensor
from tangrad.ops.indexing.gather_scatter import (
    check_scatter,
    scatter_add,
    scatter_multiply,
    scatter_with,
    vector_front,
)
from tangrad.ops.indexing.index import put_at, require_integer_index
from tangrad.ops.indexing.index_along import check_index_write


def _extreme(np: Any, out: Any, places: Any, values: Any, largest: bool) -> None:
    if out.dtype == bool:
        (np.logical_or if largest else np.logical_and).at(out, places, values)
    else:
        (np.maximum if largest else np.minimum).at(out, places, values)


def _extreme_reference(np: Any, self: Any, dim: int, index: Any, src: Any, largest: bool) -> Any:
    def write(np: Any, out: Any, places: Any, values: Any) -> None:
        _extreme(np, out, places, values, largest)

    return scatter_with(write)(np, self, dim, index, src)


def _is_result(x: Any, result: Any) -> Any:
    return (x == result) | (x != x) & (result != result)


def _shares(self: Any, dim: int, index: Any, src: Any, result: Any) -> tuple[Any, Any]:
    """Give the part of the result's gradient that each element is due: equal ones share it."""
    ours = _is_result(self, result).to(result.dtype)
    theirs = _is_result(src[_extent(index, src)], result.gather(dim, index)).to(result.dtype)
    count = scatter_add(ours, dim, index, theirs)
    return ours / count, theirs / count.gather(dim, index)


def _extent(index: Any, src: Any) -> Any:
    return tuple(slice(n) for n in index.shape) if src.ndim else ()


def _grown(part: Any, shape: Any) -> Any:
    """Pad a gradient of the part of src that the index covers with zeros."""
    pad = [
        n
        for have, full in zip(reversed(part.shape), reversed(shape), strict=True)
        for n in (0, full - have)
    ]
    return tangrad.constant_pad_nd(part, tuple(pad), 0) if any(pad) else part


def _extreme_vjp(g: Any, self: Any, dim: int, index: Any, src: Any, result: Any) -> Any:
    ours, theirs = _shares(self, dim, index, src, result)
    return g * ours, _grown(g.gather(dim, index) * theirs, tuple(src.shape))


def _extreme_jvp(
    self: Any, self_t: Any, dim: int, index: Any, src: Any, src_t: Any, result: Any
) -> Any:
    ours, theirs = _shares(self, dim, index, src, result)
    tangent = tangrad.zeros_like(result) if self_t is None else self_t * ours
    if src_t is None:
        return tangent
    return scatter_add(tangent, dim, index, src_t[_extent(index, src_t)] * theirs)


def _extreme_batch(
    size: int, dims: Any, self: Any, dim: int, index: Any, src: Any, largest: bool
) -> Any:
    scalar = self.ndim == (dims[0] is not None)
    x, y = vector_front(self, dims[0], size), vector_front(src, dims[3], size)
    result = scatter_extreme(x, dim + 1, vector_front(index, dims[2], size), y, largest)
    return (result.squeeze(1) if scalar else result), 0


def _check_order(reduce: str, dtype: Any) -> None:
    if dtype.is_complex:
        raise NotImplementedError(f"{reduce} of {dtype} values is not implemented: no order")


def _check_extreme(self: Any, dim: int, index: Any, src: Any, largest: bool) -> None:
    check_scatter(self, dim, index, src)
    if index.numel():
        _check_order("amax" if largest else "amin", self.dtype)


scatter_extreme = op(
    "scatter_extreme(Tensor self, dim dim, Tensor index, Tensor src, bool largest) -> Tensor",
    check=_check_extreme,
    shape=lambda self: self.shape,
    reference=_extreme_reference,
    dtypes="bool integral floating",
    vjp={("self", "src"): _extreme_vjp},
    jvp=_extreme_jvp,
    batch=_extreme_batch,
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(3, 4), 0, s.integers(0, 3, 2, 4), s.tensor(2, 4), True),
        s(s.tensor(3, 4), 1, s.integers(0, 4, 3, 2), s.tensor(3, 3), False),
        s(s.tensor(3, 4, strided=True), 1, s.integers(0, 4, 3, 6), s.tensor(3, 6), True),
        s(s.tensor(), 0, s.integers(0, 1), s.tensor(), True),
        s(s.tensor(3), 0, s.integers(0, 3, 0), s.tensor(0), False),
    ],
    oracle=lambda torch, x, dim, index, src, largest: x.scatter_reduce(
        dim, index, src, "amax" if largest else "amin"
    ),
    doc="Take the extreme of what is in places along one dimension and of src; NaN prevails.",
)

_SAME = {"max": "amax", "min": "amin"}
_REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")


def _identity(reduce: str, dtype: Any) -> Any:
    """Give the number that changes nothing: what a place holds whose own value does not count."""
    if reduce in ("sum", "mean"):
        return 0
    if reduce == "prod":
        return 1
    largest = reduce == "amin"
    if dtype == tangrad.bool:
        return largest
    if dtype.is_floating_point:
        return float("inf") if largest else -float("inf")
    limits = tangrad.iinfo(dtype)
    return limits.max if largest else limits.min


def _mean(total: Any, count: Any) -> Any:
    if total.dtype.is_floating_point or total.dtype.is_complex:
        return total / count
    return total.div(count, rounding_mode="floor")


def _reduced(self: Any, dim: int, index: Any, src: Any, reduce: str, include_self: bool) -> Any:
    check_scatter(self, dim, index, src)
    dtype = self.dtype
    if reduce == "mean" and dtype == tangrad.bool:
        raise NotImplementedError(f"mean of {dtype} values is not implemented; convert them first")
    if reduce in ("amax", "amin"):
        _check_order(reduce, dtype)
    base = self if include_self else self.scatter(dim, index, _identity(reduce, dtype))
    if reduce == "prod":
        return scatter_multiply(base, dim, index, src)
    if reduce in ("amax", "amin"):
        return scatter_extreme(base, dim, index, src, reduce == "amax")
    total = scatter_add(base, dim, index, src)
    if reduce == "sum":
        return total
    ones = tangrad.ones_like(self, requires_grad=False)
    count = ones if include_self else ones.scatter(dim, index, 0)
    count = scatter_add(count, dim, index, tangrad.ones_like(src, requires_grad=False))
    return _mean(total, count.masked_fill(count == 0, 1))


def _written(
    self: Any, dim: int, index: Any, src: Any, reduce: str, include_self: bool, op: Any
) -> Any:
    """Reduce into a tensor itself; derivatives read what it held before."""
    recorded = tangrad.is_grad_enabled() and (self.requires_grad or src.requires_grad)
    before = self.clone() if recorded else self
    return self.copy_(op(before, dim, index, src, reduce, include_self=include_self))


def _scatter_reduce_samples(s: Any) -> list[Any]:
    def args() -> tuple[Any, ...]:
        return s.tensor(3, 4), 0, s.integers(0, 3, 5, 4), s.tensor(5, 4)

    ordered = [] if s.is_complex else ["amax", "amin"]
    names = ["sum", "prod", *([] if s.is_bool else ["mean"]), *ordered]
    return [
        *(s(*args(), name) for name in names),
        *(s(*args(), name, include_self=False) for name in names),
        s(s.tensor(3, 4, strided=True), -1, s.integers(0, 4, 2, 2), s.tensor(3, 2), "sum"),
        s(s.tensor(), 0, s.integers(0, 1), s.tensor(), "prod"),
        s(s.tensor(3), 0, s.integers(0, 3, 0), s.tensor(0), "sum", include_self=False),
    ]


@composite(
    strict_out_dtype=True,
    inplace=True,
    writes=lambda self, dim, index, src, reduce, include_self: _written(
        self, dim, index, src, reduce, include_self, scatter_reduce
    ),
    out=True,
    samples=_scatter_reduce_samples,
    errors=lambda s: [
        (s(s.tensor(3), 0, s.integers(3, 4, 1), s.tensor(1), "sum"), RuntimeError, "out of bounds"),
        (s(s.tensor(3), 0, s.integers(0, 1, 2), s.tensor(1), "sum"), RuntimeError, "no larger"),
        (s(s.tensor(3), 0, s.integers(0, 1, 1), s.tensor(1), "up"), RuntimeError, "must be"),
        (
            s(s.tensor(3), 0, s.integers(0, 1, 1), s.tensor(1, dtype="int64"), "sum"),
            RuntimeError,
            "dtype",
        ),
    ],
)
def scatter_reduce(
    self: Tensor, dim: Dim, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Reduce src into the places along one dimension that an index names.

    Args:
        index: where each element of src goes along `dim`; no larger than src.
        reduce: "sum", "prod", "mean" (of integers, rounded down), "amax" or "amin".
        include_self: whether what is in a place counts, too. Places that are not named stay.
    """
    reduce = _SAME.get(reduce, reduce)
    if reduce not in _REDUCTIONS:
        raise RuntimeError(
            f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}"
        )
    return _reduced(self, dim, index, src, reduce, include_self)


def _index_reduce_samples(s: Any) -> list[Any]:
    ordered = [] if s.is_complex else ["amax", "amin"]
    names = ["prod", *([] if s.is_bool else ["mean"]), *ordered]
    return [
        *(s(s.tensor(3, 4), 0, s.integers(0, 3, 5), s.tensor(5, 4), name) for name in names),
        *(
            s(s.tensor(3, 4), -1, s.integers(0, 4, 2), s.tensor(3, 2), name, include_self=False)
            for name in names
        ),
        s(s.tensor(3, 4, strided=True), 1, s.integers(0, 4, 2), s.tensor(3, 2), "prod"),
        s(s.tensor(), 0, s.integers(0, 1), s.tensor(), "prod"),
        s(s.tensor(3), 0, s.integers(0, 3, 0), s.tensor(0), "prod", include_self=False),
    ]


@composite(
    inplace=True,
    writes=lambda self, dim, index, source, reduce, include_self: _written(
        self, dim, index, source, reduce, include_self, index_reduce
    ),
    strict_out_dtype=True,
    out=True,
    samples=_index_reduce_samples,
    errors=lambda s: [
        (s(s.tensor(3), 0, s.integers(3, 4, 1), s.tensor(1), "prod"), IndexError, "out of"),
        (s(s.tensor(3), 0, s.integers(0, 1, 1), s.tensor(1), "sum"), RuntimeError, "one of prod"),
        (
            s(s.tensor(3), 0, s.integers(0, 1, 2), s.tensor(1), "prod"),
            (IndexError, RuntimeError),
            "Number of indices",
        ),
    ],
)
def index_reduce(
    self: Tensor, dim: Dim, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Reduce slices of source into the listed indices of one dimension.

    Args:
        index: a vector that says where each slice of source along `dim` goes.
        reduce: "prod", "mean" (of integers, rounded down), "amax" or "amin".
        include_self: whether what is in a place counts, too. Places that are not listed stay.
    """
    if reduce not in _REDUCTIONS[1:]:
        raise RuntimeError(
            f"index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got "
            f"{reduce}."
        )
    check_index_write("index_reduce", self, dim, index, source)
    shape = [1] * source.ndim
    if source.ndim:
        shape[dim] = -1
    places = index.reshape(shape).expand(source.shape)
    try:
        return _reduced(self, dim, places, source, reduce, include_self)
    except RuntimeError as error:
        if "out of bounds" not in str(error):
            raise
        # Kernels that cannot know for which of both they work name both.
        text = str(error).replace("scatter() or ", "").replace("scatter", "index_reduce")
        raise IndexError(text) from None


# Segments ----------------------------------------------------------------------------------------


def _lengths_of(lengths: Any, offsets: Any, data: Any, axis: int, unsafe: bool) -> tuple[Any, Any]:
    """Check the segments; give where each begins and how long it is."""
    given = lengths if offsets is None else offsets
    if given is None:
        raise RuntimeError("segment_reduce(): Either lengths or offsets must be defined.")
    if given.dtype not in (tangrad.int32, tangrad.int64):
        raise NotImplementedError(
            f"segment_reduce() of lengths or offsets of {given.dtype} is not implemented; "
            "give int64 or int32"
        )
    if given.ndim > data.ndim:
        raise RuntimeError(
            "segment_reduce(): Expected data.dim() >= lengths.dim(), got shapes "
            f"{list(data.shape)} and {list(given.shape)}"
        )
    if axis != given.ndim - 1:
        raise RuntimeError(
            f"segment_reduce(): Expected axis to be the last dimension of lengths but got {axis}."
        )
    given = given.to(tangrad.int64)
    if offsets is not None:
        starts = given.narrow(axis, 0, given.shape[axis] - 1)
        return starts, given.narrow(axis, 1, given.shape[axis] - 1) - starts
    if not unsafe:
        if given.numel() and int(given.min()) < 0:
            raise RuntimeError("lengths contains negative value!")
        if not bool((given.sum(axis) == data.shape[axis]).all()):
            raise RuntimeError(
                "segment_reduce(): Expected all rows of lengths along axis to sum to "
                f"data.size(lengths.dim()-1) = {data.shape[axis]} when !unsafe."
            )
    return given.cumsum(axis) - given, given


@composite(
    alias=("_segment_reduce",),
    method=False,
    dtypes="floating",
    samples=lambda s: [
        *(
            s(s.tensor(5), name, lengths=s.values([2, 0, 3], dtype="int64"))
            for name in ("sum", "mean", "max", "min", "prod")
        ),
        *(
            s(s.tensor(5, 2), name, offsets=s.values([0, 2, 2, 5], dtype="int64"), initial=2)
            for name in ("sum", "max", "prod")
        ),
        s(s.tensor(2, 3, 2), "mean", lengths=s.values([[1, 2], [0, 3]], dtype="int64"), axis=1),
        s(s.tensor(5), "sum", lengths=s.values([2, 1], dtype="int64"), unsafe=True),
        s(s.tensor(0), "sum", lengths=s.values([0, 0], dtype="int64")),
    ],
    errors=lambda s: [
        (s(s.tensor(3), "sum"), RuntimeError, "lengths or offsets"),
        (
            s(s.tensor(3), "sum", lengths=s.values([1, 1], dtype="int64")),
            RuntimeError,
            "sum to data.size",
        ),
        (s(s.tensor(3), "up", lengths=s.values([3], dtype="int64")), RuntimeError, "must be"),
        (
            s(s.tensor(3, dtype="int64"), "sum", lengths=s.values([3], dtype="int64")),
            NotImplementedError,
            "not implemented",
        ),
    ],
)
def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Scalar | None = None,
) -> Tensor:
    """Reduce consecutive segments of a dimension to one element each.

    Args:
        reduce: "sum", "mean", "max", "min" or "prod".
        lengths: how long each segment is; its last dimension is `axis` of the data.
        offsets: instead, where each begins, and where the last one ends.
        axis: the dimension.
        unsafe: whether lengths need not be checked to fill the dimension.
        initial: what each segment begins with, instead of the reduction's identity.
    """
    reduce = _SAME.get(reduce, reduce)
    if reduce not in _REDUCTIONS:
        raise RuntimeError(
            f"reduce argument must be either sum, prod, mean, max or min, got {reduce}"
        )
    if indices is not None:
        raise RuntimeError("segment_reduce(): indices based reduction is not supported yet.")
    if not data.dtype.is_floating_point:
        raise NotImplementedError(f"segment_reduce is not implemented for {data.dtype}")
    axis = axis + data.ndim if axis < 0 else axis
    starts, lengths = _lengths_of(lengths, offsets, data, axis, unsafe)
    count, size = lengths.shape[axis], data.shape[axis]
    ends = starts + lengths
    positions = tangrad.arange(size, device=data.device).expand((*data.shape[:axis], size))
    # What lies in no segment goes to one more, which is cut off.
    segment = tangrad.searchsorted(ends.contiguous(), positions.contiguous(), right=True)
    if offsets is not None and count:
        segment = segment.masked_fill(positions < starts.narrow(axis, 0, 1), count)
    rest = tuple(data.shape)[axis + 1 :]
    segment = segment.reshape((*segment.shape, *(1,) * len(rest))).expand(data.shape)
    kind = "sum" if reduce == "mean" else reduce
    begin = _identity(kind, data.dtype) if initial is None else initial
    base = data.new_full((*data.shape[:axis], count + 1, *rest), begin)
    result = _reduced(base, axis, segment, data, kind, True).narrow(axis, 0, count)
    if reduce != "mean":
        return result
    wide = lengths.reshape((*lengths.shape, *(1,) * len(rest))).to(data.dtype)
    return result / wide if initial is None else result / wide.clamp(min=1)


@composite(
    inplace=True,
    strict_out="in place",
    samples=lambda s: [
        s(s.tensor(2, 3), s.values([0, -1], dtype="int64"), s.tensor(2)),
        s(s.tensor(2, 3, strided=True), s.integers(-6, 6, 2, 2), s.tensor(4), True),
        s(s.tensor(), s.integers(0, 1, 1), s.tensor(1)),
        s(s.tensor(3), s.integers(0, 3, 0), s.tensor(0)),
    ],
    errors=lambda s: [
        (s(s.tensor(3), s.integers(3, 4, 1), s.tensor(1)), IndexError, "out of"),
        (s(s.tensor(3), s.integers(0, 1, 2), s.tensor(1)), IndexError, "same number of elements"),
        (s(s.tensor(3), s.integers(0, 1, 1, dtype="int32"), s.tensor(1)), RuntimeError, "int64"),
        (s(s.tensor(3), s.integers(0, 1, 1), s.tensor(1, dtype="int64")), RuntimeError, "dtype"),
    ],
)
def put(self: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """Write the elements of source to flat positions.

    Args:
        index: positions in the flattened tensor, of any shape; negative ones count from the end.
        source: as many elements as `index` has.
        accumulate: add to what is there; a position named twice is then added to twice.
    """
    require_integer_index("put_", index, ("int64",))
    if self.dtype != source.dtype:
        raise RuntimeError(
            "put_(): self and source expected to have the same dtype, but got self.dtype = "
            f"{self.dtype} and source.dtype = {source.dtype}"
        )
    if index.numel() != source.numel():
        raise IndexError(
            "put_(): Expected source and index to have the same number of elements, but got "
            f"source.numel() = {source.numel()}, index.numel() = {index.numel()}"
        )
    flat = put_at(self.reshape((-1,)), [index.reshape((-1,))], source.reshape((-1,)), accumulate)
    return flat.reshape(self.shape)
