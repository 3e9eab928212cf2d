"""Define the views of parts: one index, a range, a diagonal, windows, pieces."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import tangrad
from tangrad.ops.definition.define import at_all_sizes, composite, op, overload, view
from tangrad.ops.definition.signature import Dim, Tensor
from tangrad.ops.views.geometry import Geometry, Ints, dtype_name, front
from tangrad.tensor.on_storage import TYPE_NAMES

_MOST_PIECES = 2**24  # a tensor each: gigabytes

# Parts -------------------------------------------------------------------------------------------


def _without(values: Ints, dim: int) -> Ints:
    return (*values[:dim], *values[dim + 1 :])


def _replaced(values: Ints, dim: int, value: int) -> Ints:
    return (*values[:dim], value, *values[dim + 1 :])


def _select_geometry(self: Any, dim: int, index: int) -> Geometry:
    if not self.shape:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    size = self.shape[dim]
    if not -size <= index < size:
        raise IndexError(
            f"select(): index {index} out of range for tensor of size {list(self.shape)} "
            f"at dimension {dim}"
        )
    start = index + size if index < 0 else index
    offset = self.offset + start * self.stride[dim]
    return _without(self.shape, dim), _without(self.stride, dim), offset


select = view(
    "select(Tensor self, dim dim, int index) -> Tensor",
    c_implementation="select",
    geometry=_select_geometry,
    vjp={"self": lambda g, self_meta, dim, index: select_backward(g, self_meta.shape, dim, index)},
    batch="dims",
    samples=lambda s: [
        s(s.tensor(2, 3), 0, 1),
        s(s.tensor(2, 3), -1, -3),
        s(s.tensor(2, 3, 2, strided=True), 1, 2),
        s(s.tensor(3, 0), 0, 2),
    ],
    errors=lambda s: [
        (s(s.tensor(2, 3), 0, 2), IndexError, "out of range for tensor of size"),
        (s(s.tensor(), 0, 0), IndexError, "0-dim tensor"),
    ],
    doc="Take one index of one dimension, which disappears.",
)


def _select_into_zeros(np: Any, g: Any, shape: Ints, dim: int, index: int) -> Any:
    out = np.zeros(shape, g.dtype)
    out[(slice(None),) * dim + (index,)] = g
    return out


select_backward = op(
    "select_backward(Tensor g, int[] shape, int dim, int index) -> Tensor",
    shape=lambda shape: shape,
    reference=lambda np, g, shape, dim, index: _select_into_zeros(np, g, shape, dim, index),
    vjp={"g": lambda g, dim, index: g.select(dim, index)},
    linear=("g",),
    batch=lambda size, dims, g, shape, dim, index: (
        select_backward(front(g, dims[0]), (size, *shape), dim + 1, index),
        0,
    ),
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(3), (2, 3), 0, 1),
        s(s.tensor(2), (2, 3), 1, -1),
        s(s.tensor(), (3,), 0, 2),
    ],
    oracle=lambda torch, g, shape, dim, index: torch.select_scatter(
        torch.zeros(shape, dtype=g.dtype), g, dim, index
    ),
    doc="Put `g` at one index of one dimension of a tensor of zeros: the adjoint of `select`.",
)


def _slice_bounds(size: int, start: int | None, end: int | None, step: int) -> tuple[int, int]:
    """Give first index and number of indices of a slice."""
    if step <= 0:
        raise RuntimeError(f"slice step must be positive, got {step}")
    first = 0 if start is None else start
    stop = size if end is None else end
    first = first + size if first < 0 else first
    stop = stop + size if stop < 0 else stop
    first = 0 if first < 0 else size if first > size else first
    stop = first if stop < first else size if stop > size else stop
    return first, (stop - first + step - 1) // step


def _slice_geometry(self: Any, dim: int, start: int | None, end: int | None, step: int) -> Geometry:
    if not self.shape:
        raise RuntimeError("slice() cannot be applied to a 0-dim tensor.")
    first, length = _slice_bounds(self.shape[dim], start, end, step)
    return (
        _replaced(self.shape, dim, length),
        _replaced(self.stride, dim, self.stride[dim] * step),
        self.offset + first * self.stride[dim],
    )


slice_ = view(
    "slice(Tensor self, dim dim=0, int? start=None, int? end=None, int step=1) -> Tensor",
    c_implementation="slice",
    geometry=_slice_geometry,
    vjp={
        "self": lambda g, self_meta, dim, start, end, step: slice_backward(
            g, self_meta.shape, dim, start, end, step
        )
    },
    batch="dims",
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(5, 2), 0, 1, 4),
        s(s.tensor(5, 2), 0, None, None, 2),
        s(s.tensor(2, 5), -1, -3, -1),
        s(s.tensor(5), 0, 4, 2),
        s(s.tensor(5), 0, -9, 9, 3),
    ],
    oracle=lambda torch, x, *args: torch.ops.aten.slice(x, *args),
    errors=lambda s: [
        (s(s.tensor(3), 0, 0, 3, 0), RuntimeError, "step must be positive"),
        (s(s.tensor(), 0), (RuntimeError, IndexError), "0-dim tensor|Dimension specified"),
    ],
    doc="Take the indices start, start + step, ... below end of one dimension.",
)


def _slice_into_zeros(
    np: Any, g: Any, shape: Ints, dim: int, start: Any, end: Any, step: int
) -> Any:
    out = np.zeros(shape, g.dtype)
    first, _ = _slice_bounds(shape[dim], start, end, step)
    stop = first + g.shape[dim] * step
    out[(slice(None),) * dim + (slice(first, stop, step),)] = g
    return out


slice_backward = op(
    "slice_backward(Tensor g, int[] shape, int dim, int? start, int? end, int step) -> Tensor",
    shape=lambda shape: shape,
    reference=_slice_into_zeros,
    vjp={"g": lambda g, dim, start, end, step: slice_(g, dim, start, end, step)},
    linear=("g",),
    batch=lambda size, dims, g, shape, dim, start, end, step: (
        slice_backward(front(g, dims[0]), (size, *shape), dim + 1, start, end, step),
        0,
    ),
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(2, 2), (5, 2), 0, 1, 4, 2),
        s(s.tensor(0), (3,), 0, 3, None, 1),
        s(s.tensor(2, 2), (2, 4), 1, -2, None, 1),
    ],
    oracle=lambda torch, g, shape, *args: torch.slice_scatter(
        torch.zeros(shape, dtype=g.dtype), g, *args
    ),
    doc="Put `g` at a slice of one dimension of a tensor of zeros: the adjoint of slicing.",
)


@composite(
    samples=lambda s: [
        s(s.tensor(5, 2), 0, 1, 3),
        s(s.tensor(2, 5), -1, -2, 2),
        s(s.tensor(3), 0, 3, 0),
    ],
    errors=lambda s: [
        (s(s.tensor(3), 0, 1, 3), RuntimeError, "exceeds dimension size"),
        (s(s.tensor(3), 0, 4, 0), IndexError, "start out of range"),
        (s(s.tensor(3), 0, 0, -1), RuntimeError, "length must be non-negative"),
        (s(s.tensor(), 0, 0, 0), RuntimeError, "0-dim tensor"),
    ],
)
@at_all_sizes
def narrow(self: Tensor, dim: Dim, start: Any, length: int) -> Tensor:
    """Take `length` indices of one dimension, beginning at `start`."""
    if self.ndim == 0:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    if length < 0:
        raise RuntimeError(f"narrow(): length must be non-negative, got {length}")
    if isinstance(start, tangrad.Tensor) and (
        start.ndim or start.dtype.is_floating_point or start.dtype == tangrad.bool
    ):
        raise RuntimeError(
            "start must be an 0-dim integral Tensor, got "
            f"{dtype_name(start.dtype)}{list(start.shape)}"
        )
    start, size = int(start), self.shape[dim]
    if not -size <= start <= size:
        raise IndexError(
            f"start out of range (expected to be in range of [{-size}, {size}], but got {start})"
        )
    start = start + size if start < 0 else start
    if start + length > size:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({size}).")
    return slice_(self, dim, start, start + length, 1)


def _diagonal_geometry(self: Any, offset: int, dim1: int, dim2: int) -> Geometry:
    if dim1 == dim2:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    below, right = (-offset, 0) if offset < 0 else (0, offset)
    length = min(self.shape[dim1] - below, self.shape[dim2] - right)
    length = 0 if length < 0 else length
    rest = [d for d in range(len(self.shape)) if d not in (dim1, dim2)]
    shape = (*(self.shape[d] for d in rest), length)
    stride = (*(self.stride[d] for d in rest), self.stride[dim1] + self.stride[dim2])
    if length == 0:
        return shape, stride, self.offset
    return shape, stride, self.offset + below * self.stride[dim1] + right * self.stride[dim2]


diagonal = view(
    "diagonal(Tensor self, int offset=0, dim dim1=0, dim dim2=1) -> Tensor",
    c_implementation="diagonal",
    geometry=_diagonal_geometry,
    vjp={
        "self": lambda g, self_meta, offset, dim1, dim2: diagonal_backward(
            g, self_meta.shape, offset, dim1, dim2
        )
    },
    batch=lambda size, dims, self, offset, dim1, dim2: (
        front(self, dims[0]).diagonal(offset, dim1 + 1, dim2 + 1),
        0,
    ),
    samples=lambda s: [
        s(s.tensor(3, 3)),
        s(s.tensor(2, 4), 1),
        s(s.tensor(4, 2, 3), -1, 2, 0),
        s(s.tensor(2, 2), 5),
        s(s.tensor(3, 2, strided=True), -1),
    ],
    errors=lambda s: [
        (s(s.tensor(2, 2), 0, 1, 1), RuntimeError, "dimensions cannot be identical"),
        (s(s.tensor(2), 0, 0, 1), IndexError, "Dimension out of range"),
    ],
    doc="Take a diagonal of two dimensions; it becomes the last dimension.",
)


def _diagonal_into_zeros(np: Any, g: Any, shape: Ints, offset: int, dim1: int, dim2: int) -> Any:
    out = np.zeros(shape, g.dtype)
    rows = np.arange(g.shape[-1]) + max(0, -offset)
    columns = np.arange(g.shape[-1]) + max(0, offset)
    moved = np.moveaxis(out, (dim1, dim2), (-2, -1))
    moved[..., rows, columns] = g
    return out


diagonal_backward = op(
    "diagonal_backward(Tensor g, int[] shape, int offset, int dim1, int dim2) -> Tensor",
    shape=lambda shape: shape,
    reference=_diagonal_into_zeros,
    vjp={"g": lambda g, offset, dim1, dim2: g.diagonal(offset, dim1, dim2)},
    linear=("g",),
    batch=lambda size, dims, g, shape, offset, dim1, dim2: (
        diagonal_backward(front(g, dims[0]), (size, *shape), offset, dim1 + 1, dim2 + 1),
        0,
    ),
    function=False,
    method=False,
    samples=lambda s: [s(s.tensor(3), (3, 3), 0, 0, 1), s(s.tensor(2, 2), (3, 2, 3), -1, 2, 0)],
    oracle=lambda torch, g, shape, *args: torch.diagonal_scatter(
        torch.zeros(shape, dtype=g.dtype), g, *args
    ),
    doc="Put `g` on a diagonal of a tensor of zeros: the adjoint of `diagonal`.",
)


def _unfold_geometry(self: Any, dimension: int, size: int, step: int) -> Geometry:
    length = self.shape[dimension] if self.shape else 1
    if size < 0:
        raise RuntimeError(f"size is {size} but must be >= 0")
    if size > length:
        raise RuntimeError(
            f"maximum size for tensor at dimension {dimension} is {length} but size is {size}"
        )
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    if not self.shape:
        return (size,), (1,), self.offset
    moved = self.stride[dimension]
    shape = (*_replaced(self.shape, dimension, (length - size) // step + 1), size)
    return shape, (*_replaced(self.stride, dimension, step * moved), moved), self.offset


unfold = view(
    "unfold(Tensor self, dim dimension, int size, int step) -> Tensor",
    c_implementation="unfold",
    geometry=_unfold_geometry,
    vjp={
        "self": lambda g, self_meta, dimension, size, step: unfold_backward(
            g, self_meta.shape, dimension, size, step
        )
    },
    batch=lambda n, dims, self, dimension, size, step: (
        (front(self, dims[0]).unfold(dimension + 1, size, step), 0)
        if self.ndim > 1
        else (self.unsqueeze(1).expand((n, size)), 0)
    ),
    function=False,
    samples=lambda s: [
        s(s.tensor(7), 0, 3, 2),
        s(s.tensor(2, 6), -1, 3, 1),
        s(s.tensor(3, 4, strided=True), 1, 2, 3),
        s(s.tensor(), 0, 1, 1),
    ],
    errors=lambda s: [
        (s(s.tensor(3), 0, 4, 1), RuntimeError, "maximum size"),
        (s(s.tensor(3), 0, 2, 0), RuntimeError, "must be > 0"),
    ],
    doc="Slide a window of `size` along a dimension; the window becomes the last dimension.",
)


def _unfold_into_zeros(np: Any, g: Any, shape: Ints, dimension: int, size: int, step: int) -> Any:
    out = np.zeros(shape, g.dtype)
    if not shape:
        return g.sum().astype(g.dtype).reshape(())
    moved = np.moveaxis(out, dimension, -1)
    windows = np.moveaxis(g, dimension, -2)
    stop = windows.shape[-2] * step
    for k in range(size):
        moved[..., k : k + stop : step][..., : windows.shape[-2]] += windows[..., k]
    return out


unfold_backward = op(
    "unfold_backward(Tensor g, int[] shape, int dimension, int size, int step) -> Tensor",
    shape=lambda shape: shape,
    reference=_unfold_into_zeros,
    vjp={"g": lambda g, dimension, size, step: g.unfold(dimension, size, step)},
    linear=("g",),
    batch=lambda n, dims, g, shape, dimension, size, step: (
        (unfold_backward(front(g, dims[0]), (n, *shape), dimension + 1, size, step), 0)
        if shape
        else (front(g, dims[0]).sum(1), 0)
    ),
    function=False,
    method=False,
    samples=lambda s: [s(s.tensor(3, 3), (7,), 0, 3, 2), s(s.tensor(2, 4, 3), (2, 6), 1, 3, 1)],
    oracle=lambda torch, g, *args: torch.ops.aten.unfold_backward(g, *args),
    doc="Sum windows back to where they were taken: the adjoint of `unfold`.",
)


# Several parts -----------------------------------------------------------------------------------


def _filled(grads: Sequence[Any], shapes: Sequence[Ints], self_meta: Any) -> list[Any]:
    """Replace absent cotangents by zeros."""
    present = next(g for g in grads if g is not None)
    return [
        present.new_zeros(shape) if g is None else g for g, shape in zip(grads, shapes, strict=True)
    ]


def _pieces(self: Any, dim: int, sizes: Sequence[int]) -> list[Geometry]:
    pieces: list[Geometry] = []
    start = 0
    for length in sizes:
        offset = self.offset + start * self.stride[dim]
        pieces.append((_replaced(self.shape, dim, length), self.stride, offset))
        start = start + length
    return pieces


@at_all_sizes
def _equal_sizes(self: Any, split_size: int, dim: int) -> list[int]:
    if not self.shape:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    total = self.shape[dim]
    if split_size < 0:
        raise RuntimeError(
            f"split expects split_size be non-negative, but got split_size={split_size}"
        )
    if split_size == 0:
        if total == 0:
            return [0]
        raise RuntimeError(f"split_size can only be 0 if dimension size is 0, but got {total}")
    count = max(1, (total + split_size - 1) // split_size)
    return [min(split_size, total - i * split_size) for i in range(count)]


def _given_sizes(self: Any, sizes: Ints, dim: int) -> Ints:
    if not self.shape:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    total = self.shape[dim]
    if any(n < 0 for n in sizes):
        raise RuntimeError(
            "split_with_sizes expects split_sizes have only non-negative entries, "
            f"but got {list(sizes)}"
        )
    if sum(sizes) != total:
        raise RuntimeError(
            f"split_with_sizes expects split_sizes to sum exactly to {total} (input tensor's "
            f"size at dimension {dim}), but got split_sizes={list(sizes)}"
        )
    return sizes


def _split_vjp(grads: Any, self_meta: Any, sizes: Sequence[int], dim: int) -> Any:
    shapes = [_replaced(tuple(self_meta.shape), dim, n) for n in sizes]
    return tangrad.cat(_filled(grads, shapes, self_meta), dim)


split_size = view(
    "split_size(Tensor self, int split_size_or_sections, dim dim=0) -> Tensor[]",
    c_implementation="split_size",
    names={"split_size": "split_size_or_sections"},
    geometry=lambda self, split_size_or_sections, dim: _pieces(
        self, dim, _equal_sizes(self, split_size_or_sections, dim)
    ),
    vjp={
        "self": lambda grads, self_meta, split_size_or_sections, dim: _split_vjp(
            grads, self_meta, _equal_sizes(self_meta, split_size_or_sections, dim), dim
        )
    },
    batch="dims",
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(5, 2), 2),
        s(s.tensor(2, 6), 3, -1),
        s(s.tensor(2, 3, strided=True), 2, 1),
        s(s.tensor(0, 2), 2),
    ],
    oracle="split",
    errors=lambda s: [
        (s(s.tensor(3), -1), RuntimeError, "non-negative"),
        (s(s.tensor(3), 0), RuntimeError, "can only be 0"),
        (s(s.tensor(), 1), RuntimeError, "at least a 1-dimensional"),
    ],
    doc="Cut a dimension into pieces of one size; the last may be smaller.",
)

split_with_sizes = view(
    "split_with_sizes(Tensor self, int[] split_size_or_sections, dim dim=0) -> Tensor[]",
    c_implementation="split_with_sizes",
    names={"split_sizes": "split_size_or_sections", "split_size": "split_size_or_sections"},
    geometry=lambda self, split_size_or_sections, dim: _pieces(
        self, dim, _given_sizes(self, split_size_or_sections, dim)
    ),
    vjp={
        "self": lambda grads, self_meta, split_size_or_sections, dim: _split_vjp(
            grads, self_meta, split_size_or_sections, dim
        )
    },
    batch="dims",
    samples=lambda s: [s(s.tensor(5, 2), (1, 4)), s(s.tensor(2, 6), (3, 0, 3), -1)],
    oracle="split",
    errors=lambda s: [
        (s(s.tensor(3), (1, 1)), RuntimeError, "sum exactly to 3"),
        (s(s.tensor(3), (4, -1)), RuntimeError, "non-negative"),
    ],
    doc="Cut a dimension into pieces of the given sizes.",
)

split = overload("split", "split_size", "split_with_sizes")


@composite(
    samples=lambda s: [s(s.tensor(5, 2), 2), s(s.tensor(2, 6), 3, -1), s(s.tensor(0, 2), 3)],
    errors=lambda s: [
        (s(s.tensor(3), 0), RuntimeError, "to be greater than 0"),
        (s(s.tensor(), 1), RuntimeError, "at least a 1-dimensional"),
    ],
)
def chunk(self: Tensor, chunks: int, dim: Dim = 0) -> Sequence[Tensor]:
    """Cut a dimension into at most `chunks` pieces of equal size."""
    if self.ndim == 0:
        raise RuntimeError("chunk expects at least a 1-dimensional tensor")
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    size = self.shape[dim]
    if size == 0:
        if chunks > _MOST_PIECES:
            raise RuntimeError(f"chunk: {chunks} chunks are more than memory can hold")
        return split_with_sizes(self, (0,) * chunks, dim)
    return split_size(self, (size + chunks - 1) // chunks, dim)


def refuse_bools(name: str, where: Any) -> None:
    """Refuse a bool among the numbers that say where to cut: 1 was hardly meant."""
    if isinstance(where, bool) or (
        isinstance(where, (list, tuple)) and any(isinstance(w, bool) for w in where)
    ):
        raise TypeError(
            f"{name}(): argument 'indices_or_sections' (position 2) must be int or tuple of ints, "
            f"got {where!r}"
        )


@composite(
    names=dict.fromkeys(
        ("sections", "indices", "tensor_indices_or_sections"), "indices_or_sections"
    ),
    samples=lambda s: [s(s.tensor(7, 2), 3), s(s.tensor(2, 6), (1, 4), -1), s(s.tensor(4), (2, 9))],
    errors=lambda s: [
        (s(s.tensor(3), 0), RuntimeError, "larger than 0"),
        (s(s.tensor(), 1), RuntimeError, "at least a 1-dimensional"),
        (s(s.tensor(3), True), TypeError, "tensor_split"),
    ],
)
def tensor_split(self: Tensor, indices_or_sections: Any, dim: Dim = 0) -> Sequence[Tensor]:
    """Cut a dimension at given indices, or into sections that differ by at most one."""
    refuse_bools("tensor_split", indices_or_sections)
    if self.ndim == 0:
        raise RuntimeError(
            "tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims"
        )
    if hasattr(indices_or_sections, "tolist"):
        if indices_or_sections.dtype is not tangrad.int64:
            name = indices_or_sections.dtype.name
            raise RuntimeError(
                "tensor_split expected tensor_indices_or_sections to have dtype of long, but got "
                f"{TYPE_NAMES.get(name, name)}"
            )
        if indices_or_sections.ndim > 1:
            raise RuntimeError(
                "tensor_split expected tensor_indices_or_sections to be a zero-dimensional or "
                f"one-dimensional tensor, but got a tensor with {indices_or_sections.ndim} dims"
            )
        indices_or_sections = indices_or_sections.tolist()
    size = self.shape[dim]
    if isinstance(indices_or_sections, int):
        if indices_or_sections <= 0:
            raise RuntimeError(
                f"number of sections must be larger than 0, got {indices_or_sections}"
            )
        if indices_or_sections > _MOST_PIECES:
            raise RuntimeError(
                f"tensor_split: {indices_or_sections} sections are more than memory can hold"
            )
        small, larger = divmod(size, indices_or_sections)
        indices_or_sections = [small * i + min(i, larger) for i in range(1, indices_or_sections)]
    # One by one: unlike the pieces of `split`, these may be written in place.
    cuts = [None, *indices_or_sections, None]
    return tuple(slice_(self, dim, a, b, 1) for a, b in pairwise(cuts))


def _unbind_geometry(self: Any, dim: int) -> list[Geometry]:
    if not self.shape:
        raise IndexError("Dimension specified as 0 but tensor has no dimensions")
    return [_select_geometry(self, dim, i) for i in range(self.shape[dim])]


unbind = view(
    "unbind(Tensor self, dim dim=0) -> Tensor[]",
    c_implementation="unbind",
    geometry=_unbind_geometry,
    vjp={
        "self": lambda grads, self_meta, dim: tangrad.stack(
            _filled(grads, [_without(tuple(self_meta.shape), dim)] * len(grads), self_meta), dim
        )
    },
    batch="dims",
    samples=lambda s: [
        s(s.tensor(3, 2)),
        s(s.tensor(2, 3), -1),
        s(s.tensor(3, 2, strided=True), 1),
    ],
    errors=lambda s: [(s(s.tensor()), IndexError, "no dimensions|Dimension")],
    doc="Take every index of a dimension: a tuple of tensors without it.",
)
