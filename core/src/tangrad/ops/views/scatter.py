"""Define the functional writes into views: a copy of a tensor, one part of it replaced.

`select_scatter(x, src, 0, 1)` is what `x[1] = src` would make of `x`, which stays as it is.
"""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.ops.definition.define import composite, op
from tangrad.ops.definition.signature import Dim, Tensor
from tangrad.ops.views.geometry import Ints, batched_front
from tangrad.ops.views.slicing import diagonal, select, slice_


def _check_part(name: str, part: Any, src: Any) -> None:
    if tuple(part.shape) != tuple(src.shape):
        raise RuntimeError(
            f"{name}: expected src to have a size equal to the slice of self. src size = "
            f"{list(src.shape)}, slice size = {list(part.shape)}"
        )


def _replaced(name: str, self: Any, src: Any, view: Any, *where: Any) -> Any:
    """Copy a tensor and write `src` into a view of the copy."""
    copy = self.clone()
    part = view(copy, *where)
    _check_part(name, part, src)
    part.copy_(src)
    return copy


def _or_zeros(tangent: Any, like: Any) -> Any:
    return tangrad.zeros_like(like) if tangent is None else tangent


def _is_kind(tensor: Any, other: Any) -> Any:
    return tensor if tensor.dtype == other.dtype else tensor.to(other.dtype)


select_scatter = op(
    "select_scatter(Tensor self, Tensor src, dim dim, int index) -> Tensor",
    shape=lambda self: self.shape,
    dtype=lambda self: self.dtype,
    out=False,
    decompose=lambda self, src, dim, index: _replaced(
        "select_scatter()", self, src, select, dim, index
    ),
    vjp={
        "self": lambda g, src_meta, dim, index: select_scatter(
            g, g.new_zeros(src_meta.shape), dim, index
        ),
        "src": lambda g, src_meta, dim, index: _is_kind(g.select(dim, index), src_meta),
    },
    jvp=lambda self, self_t, src, src_t, dim, index: select_scatter(
        _or_zeros(self_t, self), _or_zeros(src_t, src), dim, index
    ),
    batch=lambda size, dims, self, src, dim, index: (
        select_scatter(
            batched_front(self, dims[0], size), batched_front(src, dims[1], size), dim + 1, index
        ),
        0,
    ),
    samples=lambda s: [
        s(s.tensor(2, 3), s.tensor(3), 0, 1),
        s(s.tensor(2, 3), s.tensor(2), -1, -3),
        s(s.tensor(2, 3, strided=True), s.tensor(3, strided=True), 0, 0),
        s(s.tensor(3), s.tensor(), 0, 2),
        s(s.tensor(3, 0), s.tensor(0), 0, 1),
    ],
    errors=lambda s: [
        (s(s.tensor(2, 3), s.tensor(2), 0, 1), RuntimeError, "size equal to the slice"),
        (s(s.tensor(2, 3), s.tensor(3), 0, 2), IndexError, "out of range"),
        (s(s.tensor(2, 3), s.tensor(3), 2, 0), IndexError, "Dimension out of range"),
    ],
    doc="Copy a tensor with one index of one dimension replaced by `src`.",
)

slice_scatter = op(
    "slice_scatter(Tensor self, Tensor src, dim dim=0, int? start=None, int? end=None,"
    " int step=1) -> Tensor",
    shape=lambda self: self.shape,
    dtype=lambda self: self.dtype,
    decompose=lambda self, src, dim, start, end, step: _replaced(
        "slice_scatter()", self, src, slice_, dim, start, end, step
    ),
    strict_out_dtype=True,
    vjp={
        "self": lambda g, src_meta, dim, start, end, step: slice_scatter(
            g, g.new_zeros(src_meta.shape), dim, start, end, step
        ),
        "src": lambda g, src_meta, dim, start, end, step: _is_kind(
            slice_(g, dim, start, end, step), src_meta
        ),
    },
    jvp=lambda self, self_t, src, src_t, dim, start, end, step: slice_scatter(
        _or_zeros(self_t, self), _or_zeros(src_t, src), dim, start, end, step
    ),
    batch=lambda size, dims, self, src, dim, start, end, step: (
        slice_scatter(
            batched_front(self, dims[0], size),
            batched_front(src, dims[1], size),
            dim + 1,
            start,
            end,
            step,
        ),
        0,
    ),
    samples=lambda s: [
        s(s.tensor(5, 2), s.tensor(3, 2), 0, 1, 4),
        s(s.tensor(5, 2), s.tensor(3, 2), 0, None, None, 2),
        s(s.tensor(2, 5), s.tensor(2, 2), -1, -3, -1),
        s(s.tensor(2, 5, strided=True), s.tensor(2, 2, strided=True), 1, 0, 2),
        s(s.tensor(5), s.tensor(0), 0, 4, 2),
    ],
    errors=lambda s: [
        (s(s.tensor(5), s.tensor(4), 0, 0, 3), RuntimeError, "size equal to the slice"),
        (s(s.tensor(3), s.tensor(3), 0, 0, 3, 0), RuntimeError, "step must be positive"),
    ],
    doc="Copy a tensor with the indices start, start + step, ... of a dimension replaced.",
)

diagonal_scatter = op(
    "diagonal_scatter(Tensor self, Tensor src, int offset=0, dim dim1=0, dim dim2=1) -> Tensor",
    shape=lambda self: self.shape,
    dtype=lambda self: self.dtype,
    out=False,
    decompose=lambda self, src, offset, dim1, dim2: _replaced(
        "diagonal_scatter()", self, src, diagonal, offset, dim1, dim2
    ),
    vjp={
        "self": lambda g, src_meta, offset, dim1, dim2: diagonal_scatter(
            g, g.new_zeros(src_meta.shape), offset, dim1, dim2
        ),
        "src": lambda g, src_meta, offset, dim1, dim2: _is_kind(
            g.diagonal(offset, dim1, dim2), src_meta
        ),
    },
    jvp=lambda self, self_t, src, src_t, offset, dim1, dim2: diagonal_scatter(
        _or_zeros(self_t, self), _or_zeros(src_t, src), offset, dim1, dim2
    ),
    batch=lambda size, dims, self, src, offset, dim1, dim2: (
        diagonal_scatter(
            batched_front(self, dims[0], size),
            batched_front(src, dims[1], size),
            offset,
            dim1 + 1,
            dim2 + 1,
        ),
        0,
    ),
    samples=lambda s: [
        s(s.tensor(3, 3), s.tensor(3)),
        s(s.tensor(2, 4), s.tensor(2), 1),
        s(s.tensor(4, 2, 3), s.tensor(2, 3), -1, 2, 0),
        s(s.tensor(3, 2, strided=True), s.tensor(2), -1),
        s(s.tensor(2, 2), s.tensor(0), 5),
    ],
    errors=lambda s: [
        (s(s.tensor(3, 3), s.tensor(2)), RuntimeError, "size equal to the slice"),
        (s(s.tensor(2, 2), s.tensor(2), 0, 1, 1), RuntimeError, "dimensions cannot be identical"),
    ],
    doc="Copy a tensor with a diagonal of two dimensions replaced by `src`.",
)


def _reach(shape: Ints, stride: Ints, offset: int) -> int:
    """Give one more than the last storage element that a geometry sees."""
    if any(size == 0 for size in shape):
        return offset
    return offset + 1 + sum((n - 1) * step for n, step in zip(shape, stride, strict=True))


@composite(
    samples=lambda s: [
        s(s.tensor(3, 4), s.tensor(2, 3), (2, 3), (4, 1)),
        s(s.tensor(2, 3), s.tensor(3, 2), (3, 2), (1, 3)),
        s(s.tensor(6), s.tensor(2), (2,), (3,), 1),
        s(s.tensor(4), s.tensor(0, 2), (0, 2), (1, 1)),
        s(s.tensor(), s.tensor(), (), ()),
        s(s.tensor(), s.tensor(1), (1,), (1,)),
    ],
    errors=lambda s: [
        (s(s.tensor(4), s.tensor(3), (2,), (1,)), RuntimeError, "size equal to the slice"),
        (s(s.tensor(4), s.tensor(5), (5,), (1,)), RuntimeError, "out of bounds"),
        (s(s.tensor(4), s.tensor(2, 2), (2, 2), (1,)), RuntimeError, "mismatch in length"),
    ],
)
def as_strided_scatter(
    self: Tensor, src: Tensor, size: Ints, stride: Ints, storage_offset: int | None = None
) -> Tensor:
    """Copy a tensor, its storage included, with what `as_strided` shows replaced by `src`.

    Where the view shows an element more than once, one of the values remains.
    """
    start = self.storage_offset()
    offset = start if storage_offset is None else storage_offset
    _check_part("as_strided_scatter()", self.as_strided(size, stride, storage_offset), src)
    low = min(start, offset)
    own = tuple(self.shape), tuple(self.stride()), start
    extent = max(_reach(*own), _reach(size, stride, offset)) - low
    places = tangrad.arange(extent, device=self.device)
    written = places.as_strided(size, stride, offset - low).flatten()
    read = places.as_strided(own[0], own[1], start - low)
    storage = self.as_strided((extent,), (1,), low)
    storage = storage.index_copy(0, written, src.flatten().to(self.dtype))
    return storage.index_select(0, read.flatten()).reshape(own[0])


@composite(
    samples=lambda s: [s(s.tensor(3, 2), s.tensor(3, 2), 0, 0, 3)],
    errors=lambda s: [(s(s.tensor(2), s.tensor(3)), RuntimeError, "out of bounds")],
)
def slice_inverse(
    self: Tensor,
    src: Tensor,
    dim: Dim = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Tensor:
    """See the storage of a slice through the geometry of `src`, the tensor it was taken from."""
    return self.as_strided(tuple(src.shape), tuple(src.stride()), src.storage_offset())
