"""Define the views: ops whose result shares the storage of their input.

A view is described by its geometry alone: shape, stride and offset (in elements) of the
result as a function of those of the input. No element moves, so every device has every view.
"""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.ops.definition.define import at_all_sizes, composite, view
from tangrad.ops.definition.signature import Dim, Dims, MemoryFormat, Tensor
from tangrad.ops.views.geometry import (
    Geometry,
    Ints,
    front,
    infer_size,
    numel_of,
    sum_to_shape,
    view_stride,
)

# Shape -------------------------------------------------------------------------------------------


def _view_geometry(self: Any, size: Ints) -> Geometry:
    shape = infer_size(size, numel_of(self.shape))
    stride = view_stride(self.shape, self.stride, shape)
    if stride is None:
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one "
            "dimension spans across two contiguous subspaces). Use .reshape(...) instead. "
            f"Got size {list(size)} for shape {list(self.shape)} with stride {list(self.stride)}"
        )
    return shape, stride, self.offset


view_size = view(
    "view_size(Tensor self, int[] size) -> Tensor",
    c_implementation="view",
    geometry=_view_geometry,
    vjp={"self": lambda g, self_meta: g.reshape(self_meta.shape)},
    batch=lambda size_, dims, self, size: (front(self, dims[0]).reshape((size_, *size)), 0),
    function=False,
    method=False,
    oracle="view",
    samples=lambda s: [
        s(s.tensor(2, 3, 4), (6, 4)),
        s(s.tensor(2, 3, 4), (4, -1)),
        s(s.tensor(3, 4, strided=True), (3, 2, 2)),
        s(s.tensor(), (1, 1)),
        s(s.tensor(0, 3), (3, 0)),
        s(s.tensor(1, 6, 1), (2, 3)),
    ],
    errors=lambda s: [
        (s(s.tensor(4, 3, strided=True), (12,)), RuntimeError, "Use .reshape"),
        (s(s.tensor(2, 3), (4,)), RuntimeError, "invalid for input of size 6"),
        (s(s.tensor(2, 3), (-1, -1)), RuntimeError, "only one dimension can be inferred"),
        (s(s.tensor(2, 3), (-2, 3)), RuntimeError, "invalid shape dimension"),
        (s(s.tensor(0), (-1, 0)), RuntimeError, "ambiguous"),
    ],
    doc="""See the elements of a tensor in another shape, without copying.

    Args:
        size: the new shape; one entry may be -1 and is inferred.

    Raises:
        RuntimeError: the element count differs, or the stride of `self` does not allow it.
    """,
)


@composite(
    function=False,
    samples=lambda s: [s(s.tensor(2, 3), s.tensor(3, 2)), s(s.tensor(4), s.tensor(2, 2))],
)
def view_as(self: Tensor, other: Tensor) -> Tensor:
    """View a tensor in the shape of another."""
    return self.view(other.shape)


_unsafe_view = view(
    "_unsafe_view(Tensor self, int[] size) -> Tensor",
    c_implementation="view",
    forgets_base=True,
    geometry=_view_geometry,
    vjp={"self": lambda g, self_meta: g.reshape(self_meta.shape)},
    batch=lambda size_, dims, self, size: (front(self, dims[0]).reshape((size_, *size)), 0),
    method=False,
    oracle="ops.aten._unsafe_view",
    samples=lambda s: [s(s.tensor(2, 3, 4), (6, 4)), s(s.tensor(), (1, 1))],
    doc="See a temporary, which nobody else holds, in another shape; the result is no view.",
)


@composite(
    c_implementation="reshape",
    samples=lambda s: [
        s(s.tensor(2, 6), (3, 4)),
        s(s.tensor(4, 3, strided=True), (-1,)),
        s(s.tensor(2, 3, strided=True), (3, 2)),
        s(s.tensor(), (1,)),
        s(s.tensor(0, 2), (4, 0)),
    ],
    errors=lambda s: [
        (s(s.tensor(2, 3), (4,)), RuntimeError, "invalid for input of size 6"),
        (s(s.tensor(0), (-1, 0)), RuntimeError, "ambiguous"),
    ],
)
def reshape(self: Tensor, shape: Ints) -> Tensor:
    """Give a tensor another shape: a view where the stride allows it, else a copy.

    Args:
        shape: the new shape; one entry may be -1 and is inferred.
    """
    shape = infer_size(shape, self.numel())
    if view_stride(tuple(self.shape), tuple(self.stride()), shape) is None:
        copied = self.clone(memory_format=tangrad.contiguous_format)
        return tangrad._unsafe_view(copied, shape)
    return self.view(shape)


@composite(function=False, samples=lambda s: [s(s.tensor(2, 3), s.tensor(3, 2))])
def reshape_as(self: Tensor, other: Tensor) -> Tensor:
    """Reshape a tensor to the shape of another."""
    return self.reshape(other.shape)


@composite(
    c_implementation="contiguous",
    function=False,
    samples=lambda s: [
        s(s.tensor(2, 3)),
        s(s.tensor(3, 2, strided=True)),
        s(s.tensor(0, 2)),
        s(s.tensor()),
    ],
)
def contiguous(self: Tensor, memory_format: MemoryFormat | None = None) -> Tensor:
    """Return the tensor itself if it lies densely in the memory format, else a copy that does."""
    memory_format = memory_format or tangrad.contiguous_format
    if self.is_contiguous(memory_format=memory_format):
        return self
    if memory_format is tangrad.preserve_format:
        raise RuntimeError(
            f"contiguous: preserve_format says no format that the strides {self.stride()} of shape "
            f"{list(self.shape)} could be brought to; name one, or leave it out"
        )
    return self.clone(memory_format=memory_format)


@composite(
    c_implementation="flatten",
    samples=lambda s: [
        s(s.tensor(2, 3, 2)),
        s(s.tensor(2, 3, 2), 1),
        s(s.tensor(2, 3, 2, strided=True), 0, -2),
        s(s.tensor()),
        s(s.tensor(2, 0, 3), 1),
    ],
    errors=lambda s: [
        (s(s.tensor(2, 3), 1, 0), RuntimeError, "start_dim cannot come after end_dim"),
        (s(s.tensor(2, 3), 2), IndexError, "Dimension out of range"),
    ],
)
@at_all_sizes
def flatten(self: Tensor, start_dim: Dim = 0, end_dim: Dim = -1) -> Tensor:
    """Merge the dimensions from `start_dim` to `end_dim`, both included, into one."""
    if start_dim > end_dim:
        raise RuntimeError(
            "flatten() has invalid args: start_dim cannot come after end_dim, "
            f"got {start_dim} and {end_dim}"
        )
    if self.ndim == 0:
        return self.reshape((1,))
    if start_dim == end_dim:
        return self
    shape = tuple(self.shape)
    merged = numel_of(shape[start_dim : end_dim + 1])
    return self.reshape((*shape[:start_dim], merged, *shape[end_dim + 1 :]))


@composite(
    samples=lambda s: [
        s(s.tensor(2, 6), 1, (2, 3)),
        s(s.tensor(2, 6), -1, (3, -1)),
        s(s.tensor(3, 4, strided=True), 1, (2, 2)),
    ],
    errors=lambda s: [
        (s(s.tensor(2, 6), 1, (4, 2)), RuntimeError, "don't multiply up"),
        (s(s.tensor(2, 6), 1, ()), RuntimeError, "sizes must be non-empty"),
    ],
)
def unflatten(self: Tensor, dim: Dim, sizes: Ints) -> Tensor:
    """Split one dimension into several, the inverse of `flatten`; one size may be -1."""
    if not sizes:
        raise RuntimeError("unflatten: sizes must be non-empty")
    shape = tuple(self.shape)
    try:
        parts = infer_size(sizes, shape[dim])
    except RuntimeError as error:
        raise RuntimeError(
            f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of "
            f"dim {dim} ({shape[dim]}) in the input tensor"
        ) from error
    return self.view((*shape[:dim], *parts, *shape[dim + 1 :]))


@composite(samples=lambda s: [s(s.tensor(2, 3)), s(s.tensor(3, 2, strided=True)), s(s.tensor())])
def ravel(self: Tensor) -> Tensor:
    """Flatten a tensor to one contiguous dimension."""
    return self.contiguous().view((-1,)) if numel_of(self.shape) else self.reshape((0,))


alias = view(
    "alias(Tensor self) -> Tensor",
    geometry=lambda self: (self.shape, self.stride, self.offset),
    vjp={"self": lambda g: g},
    batch="dims",
    function=False,
    method=False,
    samples=lambda s: [s(s.tensor(2, 3)), s(s.tensor(3, 2, strided=True)), s(s.tensor())],
    oracle=lambda torch, x: x.view_as(x),
    doc="Make a new tensor with the same storage and geometry.",
)


# Order of dimensions -----------------------------------------------------------------------------


def _swap(values: Ints, dim0: int, dim1: int) -> Ints:
    swapped = list(values)
    if swapped:
        swapped[dim0], swapped[dim1] = swapped[dim1], swapped[dim0]
    return tuple(swapped)


transpose = view(
    "transpose(Tensor self, dim dim0, dim dim1) -> Tensor",
    c_implementation="transpose",
    geometry=lambda self, dim0, dim1: (
        _swap(self.shape, dim0, dim1),
        _swap(self.stride, dim0, dim1),
        self.offset,
    ),
    vjp={"self": lambda g, dim0, dim1: g.transpose(dim0, dim1)},
    batch="dims",
    alias=("swapaxes", "swapdims"),
    inplace=True,
    samples=lambda s: [
        s(s.tensor(2, 3, 4), 0, 2),
        s(s.tensor(2, 3, 4), -1, 1),
        s(s.tensor(2, 3), 1, 1),
        s(s.tensor(), 0, -1),
        s(s.tensor(0, 3), 0, 1),
    ],
    errors=lambda s: [(s(s.tensor(2, 3), 0, 5), IndexError, "Dimension out of range")],
    doc="Swap two dimensions.",
)


def _t_geometry(self: Any) -> Geometry:
    if len(self.shape) > 2:
        raise RuntimeError(
            f"t() expects a tensor with <= 2 dimensions, but self is {len(self.shape)}D; use "
            "transpose or mT"
        )
    return tuple(reversed(self.shape)), tuple(reversed(self.stride)), self.offset


def _t_batch(size: int, dims: Any, self: Any) -> Any:
    x = front(self, dims[0])
    if x.ndim > 3:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {x.ndim - 1}D")
    return (x.transpose(1, 2) if x.ndim == 3 else x), 0


t = view(
    "t(Tensor self) -> Tensor",
    c_implementation="t",
    geometry=_t_geometry,
    vjp={"self": lambda g: g.t()},
    batch=_t_batch,
    inplace=True,
    samples=lambda s: [s(s.tensor(2, 3)), s(s.tensor(3)), s(s.tensor()), s(s.tensor(0, 2))],
    errors=lambda s: [(s(s.tensor(2, 3, 1)), RuntimeError, "expects a tensor with <= 2 dim")],
    doc="Transpose a matrix; a vector or scalar stays as it is.",
)


def _permute_geometry(self: Any, dims: Ints) -> Geometry:
    ndim = len(self.shape)
    if len(dims) != ndim:
        raise RuntimeError(
            "permute(): number of dimensions in the tensor input does not match the "
            "length of the desired ordering of dimensions i.e. "
            f"input.dim() = {ndim} is not equal to len(dims) = {len(dims)}"
        )
    return tuple(self.shape[d] for d in dims), tuple(self.stride[d] for d in dims), self.offset


def _inverse(dims: Ints) -> Ints:
    return tuple(sorted(range(len(dims)), key=lambda i: dims[i]))


permute = view(
    "permute(Tensor self, dim[] dims) -> Tensor",
    c_implementation="permute",
    geometry=_permute_geometry,
    vjp={"self": lambda g, dims: g.permute(_inverse(dims))},
    batch=lambda size, bdims, self, dims: (
        front(self, bdims[0]).permute((0, *(d + 1 for d in dims))),
        0,
    ),
    samples=lambda s: [
        s(s.tensor(2, 3, 4), (2, 0, 1)),
        s(s.tensor(2, 3, 4), (-1, 1, -3)),
        s(s.tensor(), ()),
        s(s.tensor(2, 0), (1, 0)),
    ],
    errors=lambda s: [
        (s(s.tensor(2, 3), (0,)), RuntimeError, "number of dimensions"),
        (s(s.tensor(2, 3), (0, 0)), RuntimeError, "duplicate dims|multiple times"),
        (s(s.tensor(2, 3), (0, 2)), IndexError, "Dimension out of range"),
    ],
    doc="Reorder the dimensions: dimension i of the result is dimension dims[i] of `self`.",
)


@composite(
    c_implementation="movedim",
    alias=("moveaxis",),
    samples=lambda s: [
        s(s.tensor(2, 3, 4), 0, 2),
        s(s.tensor(2, 3, 4), (0, 1), (-1, 0)),
        s(s.tensor(), (), ()),
    ],
    errors=lambda s: [
        (s(s.tensor(2, 3), (0, 1), (0,)), RuntimeError, "same number of dims"),
        (s(s.tensor(2, 3), (0, 0), (0, 1)), RuntimeError, "repeated dim|multiple times"),
        (s(s.tensor(2, 3), (0, 1), (1, 1)), RuntimeError, "repeated dim|multiple times"),
    ],
)
def movedim(self: Tensor, source: Dims, destination: Dims) -> Tensor:
    """Move dimensions to new positions; the others keep their order."""
    if len(source) != len(destination):
        raise RuntimeError(
            f"movedim: Invalid source or destination dims: source ({list(source)} dims) should "
            f"contain the same number of dims as destination ({list(destination)} dims)"
        )
    order: list[int] = [-1] * self.ndim
    if self.ndim == 0:
        return self.permute(())
    for origin, target in zip(source, destination, strict=True):
        order[target] = origin
    rest = iter([d for d in range(self.ndim) if d not in source])
    return self.permute(tuple(next(rest) if d < 0 else d for d in order))


# Dimensions of size one --------------------------------------------------------------------------


def _expand_geometry(self: Any, size: Ints, implicit: bool) -> Geometry:
    extra = len(size) - len(self.shape)
    if extra < 0:
        raise RuntimeError(
            f"expand: the number of sizes provided ({len(size)}) must be greater or equal to the "
            f"number of dimensions in the tensor ({len(self.shape)}); sizes {list(size)}, "
            f"tensor shape {list(self.shape)}"
        )
    shape: list[int] = []
    stride: list[int] = []
    for dim, wanted in enumerate(size):
        if dim < extra:
            length, step = _expand_leading(wanted, dim, size, self.shape), 0
        else:
            have, step = self.shape[dim - extra], self.stride[dim - extra]
            length = have if wanted == -1 else wanted
            if length != have:
                _check_expandable(length, have, dim, size, self.shape)
                step = 0
        shape.append(length)
        stride.append(step)
    for dim in reversed(range(extra if self.shape else 0)):
        if shape[dim] == 1:
            stride[dim] = shape[dim + 1] * stride[dim + 1]
    return tuple(shape), tuple(stride), self.offset


def _expand_leading(wanted: int, dim: int, size: Ints, shape: Ints) -> int:
    if wanted >= 0:
        return wanted
    raise RuntimeError(
        f"The expanded size of the tensor ({wanted}) isn't allowed in a leading, non-existing "
        f"dimension {dim}.  Target sizes: {list(size)}.  Tensor sizes: {list(shape)}"
    )


def _check_expandable(length: int, have: int, dim: int, size: Ints, shape: Ints) -> None:
    if have == 1 and length >= 0:
        return
    raise RuntimeError(
        f"The expanded size of the tensor ({length}) must match the existing size ({have}) at "
        f"non-singleton dimension {dim}.  Target sizes: {list(size)}.  "
        f"Tensor sizes: {list(shape)}"
    )


def _expand_batch(size_: int, dims: Any, self: Any, size: Ints, implicit: bool) -> Any:
    x = front(self, dims[0])
    missing = len(size) - (x.ndim - 1)
    if missing > 0:
        x = x.reshape((x.shape[0], *(1,) * missing, *tuple(x.shape)[1:]))
        size = tuple(1 if i < missing and n == 1 else n for i, n in enumerate(size))
    return x.expand((-1, *size)), 0


expand = view(
    "expand(Tensor self, int[] size, *, bool implicit=False) -> Tensor",
    c_implementation="expand",
    geometry=_expand_geometry,
    vjp={"self": lambda g, self_meta: sum_to_shape(g, self_meta.shape)},
    batch=_expand_batch,
    function=False,
    samples=lambda s: [
        s(s.tensor(3, 1), (3, 4)),
        s(s.tensor(3, 1), (2, -1, 4)),
        s(s.tensor(), (2, 3)),
        s(s.tensor(3, 1, strided=True), (3, 2)),
        s(s.tensor(1), (0,)),
    ],
    errors=lambda s: [
        (s(s.tensor(2, 3), (2, 4)), RuntimeError, "must match the existing size"),
        (s(s.tensor(2, 3), (3,)), RuntimeError, "number of sizes provided"),
        (s(s.tensor(3), (-1, 3)), RuntimeError, "leading, non-existing dimension"),
    ],
    doc="""Repeat dimensions of size one to `size` without copying (stride zero).

    Args:
        size: the new shape; -1 keeps a size; leading entries make new dimensions.
    """,
)


@composite(
    function=False,
    samples=lambda s: [s(s.tensor(3, 1), s.tensor(3, 2)), s(s.tensor(), s.tensor(2))],
)
def expand_as(self: Tensor, other: Tensor) -> Tensor:
    """Expand a tensor to the shape of another."""
    return self.expand(other.shape)


@composite(
    samples=lambda s: [s(s.tensor(3, 1), (2, 3, 4)), s(s.tensor(), (2,))],
    errors=lambda s: [(s(s.tensor(2, 3), (2, 4)), RuntimeError, "must match the existing size")],
)
def broadcast_to(self: Tensor, size: Ints) -> Tensor:
    """Broadcast a tensor to a shape, as a view."""
    return self.expand(size)


@composite(
    function=False,
    samples=lambda s: [
        s(s.tensor(2, 3, 2), (3, 1)),
        s(s.tensor(2, 3, 2), (3, 2)),
        s(s.tensor(2, 3), ()),
        s(s.tensor(), ()),
        s(s.tensor(2, 3), (2, 3)),
    ],
    errors=lambda s: [(s(s.tensor(2, 3), (2, 2)), RuntimeError, "not expandable")],
)
@at_all_sizes
def sum_to_size(self: Tensor, size: Ints) -> Tensor:
    """Sum a tensor to a shape that broadcasts to its own."""
    if not size:
        return self.sum()
    shape = tuple(self.shape)
    extra = len(shape) - len(size)
    if extra > 0 and shape[extra:] == tuple(size):
        return self.sum(tuple(range(extra)))
    fits = extra >= 0 and all(n in (1, m) for n, m in zip(size, shape[extra:], strict=True))
    if not fits:
        raise RuntimeError(
            f"size {list(size)} is not expandable to size {list(self.shape)} of the tensor"
        )
    kept = shape[extra:]
    summed = [d + extra for d, (n, m) in enumerate(zip(size, kept, strict=True)) if n != m]
    dims = (*range(extra), *summed)
    return self.sum(dims, keepdim=True).reshape(size) if dims else self


def _squeezed(self: Any, dim: Ints | None) -> list[int]:
    """List the dimensions that stay."""
    shape = self.shape
    chosen = range(len(shape)) if dim is None else dim
    return [d for d in range(len(shape)) if not (d in chosen and shape[d] == 1)]


def _squeeze_geometry(self: Any, dim: Ints | None) -> Geometry:
    kept = _squeezed(self, dim)
    return tuple(self.shape[d] for d in kept), tuple(self.stride[d] for d in kept), self.offset


def _squeeze_batch(size: int, dims: Any, self: Any, dim: Ints | None) -> Any:
    x = front(self, dims[0])
    chosen = range(x.ndim - 1) if dim is None else dim
    return x.squeeze(tuple(d + 1 for d in chosen if x.ndim > 1)), 0


squeeze = view(
    "squeeze(Tensor self, dim[]? dim=None) -> Tensor",
    c_implementation="squeeze",
    geometry=_squeeze_geometry,
    vjp={"self": lambda g, self_meta: g.reshape(self_meta.shape)},
    batch=_squeeze_batch,
    inplace=True,
    samples=lambda s: [
        s(s.tensor(1, 3, 1)),
        s(s.tensor(1, 3, 1), -1),
        s(s.tensor(2, 3), 0),
        s(s.tensor(1, 3, 1, 1), (0, 2)),
        s(s.tensor()),
        s(s.tensor(1, 0)),
    ],
    errors=lambda s: [
        (s(s.tensor(1, 2), 2), IndexError, "Dimension out of range"),
        (s(s.tensor(1, 2), (0, 0)), RuntimeError, "appears multiple times"),
    ],
    doc="Drop the dimensions of size one: all, or those of `dim` that have size one.",
)


def _unsqueeze_geometry(self: Any, dim: int) -> Geometry:
    last = dim == len(self.shape)
    step = 1 if last else self.shape[dim] * self.stride[dim]
    shape = (*self.shape[:dim], 1, *self.shape[dim:])
    return shape, (*self.stride[:dim], step, *self.stride[dim:]), self.offset


unsqueeze = view(
    "unsqueeze(Tensor self, dim dim) -> Tensor",
    c_implementation="unsqueeze",
    extra_dims=1,
    geometry=_unsqueeze_geometry,
    vjp={"self": lambda g, self_meta: g.reshape(self_meta.shape)},
    batch=lambda size, dims, self, dim: (front(self, dims[0]).unsqueeze(dim + 1), 0),
    inplace=True,
    samples=lambda s: [
        s(s.tensor(2, 3), 0),
        s(s.tensor(2, 3), -1),
        s(s.tensor(3, 2, strided=True), 1),
        s(s.tensor(), 0),
        s(s.tensor(0, 2), 1),
    ],
    errors=lambda s: [(s(s.tensor(2, 3), 3), IndexError, "Dimension out of range")],
    doc="Insert a dimension of size one before dimension `dim`.",
)
