"""Define the views: ops whose result shares the storage of their input.

A view is described by its geometry alone: shape, stride and offset (in elements) of the
result as a function of those of the input. No element moves, so every device has every view.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tangrad import ops
from tangrad.ops.define import composite, op, overload, view

Ints = tuple[int, ...]
Geometry = tuple[Ints, Ints, int]


def numel_of(shape: Sequence[int]) -> int:
    """Multiply the sizes of a shape."""
    count = 1
    for size in shape:
        count = count * size
    return count


def contiguous_stride(shape: Sequence[int]) -> Ints:
    """Give the row-major stride of a shape; empty dimensions count as one."""
    stride: list[int] = []
    step = 1
    for size in reversed(tuple(shape)):
        stride.append(step)
        step = step * (1 if size == 0 else size)
    return tuple(reversed(stride))


def infer_size(shape: Sequence[int], numel: int) -> Ints:
    """Replace the one -1 of a requested shape by the size that holds `numel` elements."""
    listed = list(shape)
    unknown = [i for i, size in enumerate(shape) if size == -1]
    if any(size < -1 for size in shape):
        bad = next(size for size in shape if size < -1)
        raise RuntimeError(f"invalid shape dimension {bad} in the requested shape {listed}")
    if len(unknown) > 1:
        raise RuntimeError(f"only one dimension can be inferred, got shape {listed}")
    known = numel_of([size for size in shape if size != -1])
    invalid = RuntimeError(f"shape '{listed}' is invalid for input of size {numel}")
    if not unknown:
        if known != numel:
            raise invalid
        return tuple(shape)
    if known == 0:
        if numel != 0:
            raise invalid
        raise RuntimeError(
            f"cannot reshape tensor of 0 elements into shape {listed} because the unspecified "
            "dimension size -1 can be any value and is ambiguous"
        )
    if numel % known != 0:
        raise invalid
    return tuple(numel // known if size == -1 else size for size in shape)


def _chunks(shape: Ints, stride: Ints) -> Iterator[tuple[int, int]]:
    """Yield, last first, (elements, innermost stride) of each run of mergeable dimensions."""
    elements, base = 1, stride[-1]
    for dim in reversed(range(len(shape))):
        elements = elements * shape[dim]
        outer = dim - 1
        if outer >= 0 and (shape[outer] == 1 or stride[outer] == elements * base):
            continue
        yield elements, base
        if outer >= 0:
            elements, base = 1, stride[outer]


def view_stride(shape: Ints, stride: Ints, new_shape: Ints) -> Ints | None:
    """Give the stride under which a strided block can be seen in another shape.

    Returns None if no stride does it, that is if a new dimension would span two runs of
    dimensions that are not contiguous to each other.
    """
    if numel_of(shape) == 0:
        return stride if tuple(shape) == tuple(new_shape) else contiguous_stride(new_shape)
    if not shape:
        return (1,) * len(new_shape)
    found: list[int] = []
    dim = len(new_shape) - 1
    for elements, base in _chunks(shape, stride):
        covered = 1
        while dim >= 0 and (covered < elements or new_shape[dim] == 1):
            found.append(covered * base)
            covered = covered * new_shape[dim]
            dim -= 1
        if covered != elements:
            return None
    return tuple(reversed(found)) if dim < 0 else None


def _front(x: Any, dim: int | None) -> Any:
    return x if dim is None else x.movedim(dim, 0)


def wrap_new_dim(dim: int, ndim: int) -> int:
    """Normalise the number of a dimension that is about to be inserted."""
    if not -ndim - 1 <= dim <= ndim:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-ndim - 1}, {ndim}], "
            f"but got {dim})"
        )
    return dim + ndim + 1 if dim < 0 else dim


def sum_to_shape(g: Any, shape: Sequence[int]) -> Any:
    """Sum out the dimensions by which `shape` was broadcast to the shape of `g`."""
    extra = g.ndim - len(shape)
    grown = [
        extra + i for i, size in enumerate(shape) if size == 1 and g.shape[extra + i] != 1
    ]
    if grown:
        g = g.sum(tuple(grown), keepdim=True)
    return g.sum(tuple(range(extra))) if extra else g


# Shape -----------------------------------------------------------------------------------------


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


view_ = view(
    "view(Tensor self, int[] size) -> Tensor",
    geometry=_view_geometry,
    vjp={"self": lambda g, self_meta: g.reshape(self_meta.shape)},
    batch=lambda size_, dims, self, size: (_front(self, dims[0]).view((size_, *size)), 0),
    function=False,
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
    "view_as(Tensor self, Tensor other) -> Tensor",
    function=False,
    samples=lambda s: [s(s.tensor(2, 3), s.tensor(3, 2)), s(s.tensor(4), s.tensor(2, 2))],
)
def view_as(self: Any, other: Any) -> Any:
    """View a tensor in the shape of another."""
    return self.view(other.shape)


@composite(
    "reshape(Tensor self, int[] shape) -> Tensor",
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
def reshape(self: Any, shape: Ints) -> Any:
    """Give a tensor another shape: a view where the stride allows it, else a copy.

    Args:
        shape: the new shape; one entry may be -1 and is inferred.
    """
    shape = infer_size(shape, numel_of(self.shape))
    if view_stride(tuple(self.shape), tuple(self.stride()), shape) is None:
        self = self.clone(memory_format=ops.contiguous_format)
    return self.view(shape)


@composite(
    "reshape_as(Tensor self, Tensor other) -> Tensor",
    function=False,
    samples=lambda s: [s(s.tensor(2, 3), s.tensor(3, 2))],
)
def reshape_as(self: Any, other: Any) -> Any:
    """Reshape a tensor to the shape of another."""
    return self.reshape(other.shape)


@composite(
    "contiguous(Tensor self, *, memory_format? memory_format=None) -> Tensor",
    function=False,
    samples=lambda s: [s(s.tensor(2, 3)), s(s.tensor(3, 2, strided=True)), s(s.tensor(0, 2)), s(s.tensor())],
)
def contiguous(self: Any, memory_format: Any) -> Any:
    """Return the tensor itself if it lies densely in the memory format, else a copy that does."""
    memory_format = memory_format or ops.contiguous_format
    if self.is_contiguous(memory_format=memory_format):
        return self
    return self.clone(memory_format=memory_format)


@composite(
    "flatten(Tensor self, dim start_dim=0, dim end_dim=-1) -> Tensor",
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
def flatten(self: Any, start_dim: int, end_dim: int) -> Any:
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
    "unflatten(Tensor self, dim dim, int[] sizes) -> Tensor",
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
def unflatten(self: Any, dim: int, sizes: Ints) -> Any:
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


@composite(
    "ravel(Tensor self) -> Tensor",
    samples=lambda s: [s(s.tensor(2, 3)), s(s.tensor(3, 2, strided=True)), s(s.tensor())],
)
def ravel(self: Any) -> Any:
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


# Order of dimensions ---------------------------------------------------------------------------


def _swap(values: Ints, dim0: int, dim1: int) -> Ints:
    swapped = list(values)
    if swapped:
        swapped[dim0], swapped[dim1] = swapped[dim1], swapped[dim0]
    return tuple(swapped)


transpose = view(
    "transpose(Tensor self, dim dim0, dim dim1) -> Tensor",
    geometry=lambda self, dim0, dim1: (
        _swap(self.shape, dim0, dim1),
        _swap(self.stride, dim0, dim1),
        self.offset,
    ),
    vjp={"self": lambda g, dim0, dim1: g.transpose(dim0, dim1)},
    batch="dims",
    alias=("swapaxes", "swapdims"),
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
            "t() expects a tensor with <= 2 dimensions, but self is "
            f"{len(self.shape)}D; use transpose or mT"
        )
    return tuple(reversed(self.shape)), tuple(reversed(self.stride)), self.offset


def _t_batch(size: int, dims: Any, self: Any) -> Any:
    x = _front(self, dims[0])
    if x.ndim > 3:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {x.ndim - 1}D")
    return (x.transpose(1, 2) if x.ndim == 3 else x), 0


t = view(
    "t(Tensor self) -> Tensor",
    geometry=_t_geometry,
    vjp={"self": lambda g: g.t()},
    batch=_t_batch,
    samples=lambda s: [s(s.tensor(2, 3)), s(s.tensor(3)), s(s.tensor()), s(s.tensor(0, 2))],
    errors=lambda s: [(s(s.tensor(2, 3, 1)), RuntimeError, "expects a tensor with <= 2 dim")],
    doc="Transpose a matrix; a vector or scalar stays as it is.",
)


def _permute_geometry(self: Any, dims: Ints) -> Geometry:
    ndim = len(self.shape)
    if len(dims) != ndim:
        raise RuntimeError(
            "permute(sparse_coo): number of dimensions in the tensor input does not match the "
            "length of the desired ordering of dimensions i.e. "
            f"input.dim() = {ndim} is not equal to len(dims) = {len(dims)}"
        )
    if len(set(dims)) != ndim:
        raise RuntimeError(f"permute(): duplicate dims are not allowed, got {list(dims)}")
    return tuple(self.shape[d] for d in dims), tuple(self.stride[d] for d in dims), self.offset


def _inverse(dims: Ints) -> Ints:
    return tuple(sorted(range(len(dims)), key=lambda i: dims[i]))


permute = view(
    "permute(Tensor self, dim[] dims) -> Tensor",
    geometry=_permute_geometry,
    vjp={"self": lambda g, dims: g.permute(_inverse(dims))},
    batch=lambda size, bdims, self, dims: (
        _front(self, bdims[0]).permute((0, *(d + 1 for d in dims))),
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
        (s(s.tensor(2, 3), (0, 0)), RuntimeError, "duplicate dims"),
        (s(s.tensor(2, 3), (0, 2)), IndexError, "Dimension out of range"),
    ],
    doc="Reorder the dimensions: dimension i of the result is dimension dims[i] of `self`.",
)


@composite(
    "movedim(Tensor self, dim[] source, dim[] destination) -> Tensor",
    alias=("moveaxis",),
    samples=lambda s: [
        s(s.tensor(2, 3, 4), 0, 2),
        s(s.tensor(2, 3, 4), (0, 1), (-1, 0)),
        s(s.tensor(), (), ()),
    ],
    errors=lambda s: [
        (s(s.tensor(2, 3), (0, 1), (0,)), RuntimeError, "same number of elements"),
        (s(s.tensor(2, 3), (0, 0), (0, 1)), RuntimeError, "repeated dim in `source`"),
        (s(s.tensor(2, 3), (0, 1), (1, 1)), RuntimeError, "repeated dim in `destination`"),
    ],
)
def movedim(self: Any, source: Ints, destination: Ints) -> Any:
    """Move dimensions to new positions; the others keep their order."""
    if len(source) != len(destination):
        raise RuntimeError(
            "movedim: Invalid source or destination dims: source and destination must contain "
            f"the same number of elements, got {list(source)} and {list(destination)}"
        )
    for name, dims in (("source", source), ("destination", destination)):
        if len(set(dims)) != len(dims):
            raise RuntimeError(f"movedim: repeated dim in `{name}` ({list(dims)})")
    order: list[int] = [-1] * self.ndim
    if self.ndim == 0:
        return self.permute(())
    for origin, target in zip(source, destination, strict=True):
        order[target] = origin
    rest = iter([d for d in range(self.ndim) if d not in source])
    return self.permute(tuple(next(rest) if d < 0 else d for d in order))


# Dimensions of size one ------------------------------------------------------------------------


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
    for dim in reversed(range(extra)):
        if shape[dim] == 1:
            following = dim + 1 < len(shape)
            stride[dim] = shape[dim + 1] * stride[dim + 1] if following else 1
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
    x = _front(self, dims[0])
    missing = len(size) - (x.ndim - 1)
    if missing > 0:
        x = x.reshape((x.shape[0], *(1,) * missing, *tuple(x.shape)[1:]))
        size = tuple(1 if i < missing and n == 1 else n for i, n in enumerate(size))
    return x.expand((-1, *size)), 0


expand = view(
    "expand(Tensor self, int[] size, *, bool implicit=False) -> Tensor",
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
    "expand_as(Tensor self, Tensor other) -> Tensor",
    function=False,
    samples=lambda s: [s(s.tensor(3, 1), s.tensor(3, 2)), s(s.tensor(), s.tensor(2))],
)
def expand_as(self: Any, other: Any) -> Any:
    """Expand a tensor to the shape of another."""
    return self.expand(other.shape)


@composite(
    "broadcast_to(Tensor self, int[] size) -> Tensor",
    samples=lambda s: [s(s.tensor(3, 1), (2, 3, 4)), s(s.tensor(), (2,))],
    errors=lambda s: [(s(s.tensor(2, 3), (2, 4)), RuntimeError, "must match the existing size")],
)
def broadcast_to(self: Any, size: Ints) -> Any:
    """Broadcast a tensor to a shape, as a view."""
    return self.expand(size)


@composite(
    "sum_to_size(Tensor self, int[] size) -> Tensor",
    function=False,
    samples=lambda s: [
        s(s.tensor(2, 3, 2), (3, 1)),
        s(s.tensor(2, 3), ()),
        s(s.tensor(2, 3), (2, 3)),
    ],
    errors=lambda s: [(s(s.tensor(2, 3), (2, 2)), RuntimeError, "not expandable")],
)
def sum_to_size(self: Any, size: Ints) -> Any:
    """Sum a tensor to a shape that broadcasts to its own."""
    extra = self.ndim - len(size)
    fits = extra >= 0 and all(
        n in (1, m) for n, m in zip(size, tuple(self.shape)[extra:], strict=True)
    )
    if not fits:
        raise RuntimeError(
            f"size {list(size)} is not expandable to size {list(self.shape)} of the tensor"
        )
    return sum_to_shape(self, size)


def _squeezed(self: Any, dim: Ints | None) -> list[int]:
    """List the dimensions that stay."""
    shape = self.shape
    chosen = range(len(shape)) if dim is None else dim
    if dim is not None and len(set(dim)) != len(dim):
        twice = next(d for d in dim if list(dim).count(d) > 1)
        raise RuntimeError(f"dim {twice} appears multiple times in the list of dims {list(dim)}")
    return [d for d in range(len(shape)) if not (d in chosen and shape[d] == 1)]


def _squeeze_geometry(self: Any, dim: Ints | None) -> Geometry:
    kept = _squeezed(self, dim)
    return tuple(self.shape[d] for d in kept), tuple(self.stride[d] for d in kept), self.offset


def _squeeze_batch(size: int, dims: Any, self: Any, dim: Ints | None) -> Any:
    x = _front(self, dims[0])
    chosen = range(x.ndim - 1) if dim is None else dim
    return x.squeeze(tuple(d + 1 for d in chosen if x.ndim > 1)), 0


squeeze = view(
    "squeeze(Tensor self, dim[]? dim=None) -> Tensor",
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
    dim = wrap_new_dim(dim, len(self.shape))
    last = dim == len(self.shape)
    step = 1 if last else self.shape[dim] * self.stride[dim]
    shape = (*self.shape[:dim], 1, *self.shape[dim:])
    return shape, (*self.stride[:dim], step, *self.stride[dim:]), self.offset


unsqueeze = view(
    "unsqueeze(Tensor self, int dim) -> Tensor",
    geometry=_unsqueeze_geometry,
    vjp={"self": lambda g, self_meta: g.reshape(self_meta.shape)},
    batch=lambda size, dims, self, dim: (
        _front(self, dims[0]).unsqueeze(wrap_new_dim(dim, self.ndim - 1) + 1),
        0,
    ),
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


# Parts -----------------------------------------------------------------------------------------


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
    geometry=_select_geometry,
    vjp={
        "self": lambda g, self_meta, dim, index: ops.select_backward(
            g, self_meta.shape, dim, index
        )
    },
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
        ops.select_backward(_front(g, dims[0]), (size, *shape), dim + 1, index),
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


def _slice_geometry(
    self: Any, dim: int, start: int | None, end: int | None, step: int
) -> Geometry:
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
    geometry=_slice_geometry,
    vjp={
        "self": lambda g, self_meta, dim, start, end, step: ops.slice_backward(
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
        (s(s.tensor(), 0), RuntimeError, "0-dim tensor|Dimension specified"),
    ],
    doc="Take the indices start, start + step, ... below end of one dimension.",
)


def _slice_into_zeros(np: Any, g: Any, shape: Ints, dim: int, start: Any, end: Any, step: int) -> Any:
    out = np.zeros(shape, g.dtype)
    first, _ = _slice_bounds(shape[dim], start, end, step)
    stop = first + g.shape[dim] * step
    out[(slice(None),) * dim + (slice(first, stop, step),)] = g
    return out


slice_backward = op(
    "slice_backward(Tensor g, int[] shape, int dim, int? start, int? end, int step) -> Tensor",
    shape=lambda shape: shape,
    reference=_slice_into_zeros,
    vjp={"g": lambda g, dim, start, end, step: ops.slice(g, dim, start, end, step)},
    linear=("g",),
    batch=lambda size, dims, g, shape, dim, start, end, step: (
        ops.slice_backward(_front(g, dims[0]), (size, *shape), dim + 1, start, end, step),
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
    "narrow(Tensor self, dim dim, any start, int length) -> Tensor",
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
def narrow(self: Any, dim: int, start: Any, length: int) -> Any:
    """Take `length` indices of one dimension, beginning at `start`."""
    if self.ndim == 0:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    if length < 0:
        raise RuntimeError(f"narrow(): length must be non-negative, got {length}")
    start, size = int(start), self.shape[dim]
    if not -size <= start <= size:
        raise IndexError(
            f"start out of range (expected to be in range of [{-size}, {size}], but got {start})"
        )
    start = start + size if start < 0 else start
    if start + length > size:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({size}).")
    return ops.slice(self, dim, start, start + length, 1)


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
    geometry=_diagonal_geometry,
    vjp={
        "self": lambda g, self_meta, offset, dim1, dim2: ops.diagonal_backward(
            g, self_meta.shape, offset, dim1, dim2
        )
    },
    batch=lambda size, dims, self, offset, dim1, dim2: (
        _front(self, dims[0]).diagonal(offset, dim1 + 1, dim2 + 1),
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
        ops.diagonal_backward(_front(g, dims[0]), (size, *shape), offset, dim1 + 1, dim2 + 1),
        0,
    ),
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(3), (3, 3), 0, 0, 1),
        s(s.tensor(2, 2), (3, 2, 3), -1, 2, 0),
    ],
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
    geometry=_unfold_geometry,
    vjp={
        "self": lambda g, self_meta, dimension, size, step: ops.unfold_backward(
            g, self_meta.shape, dimension, size, step
        )
    },
    batch=lambda n, dims, self, dimension, size, step: (
        (_front(self, dims[0]).unfold(dimension + 1, size, step), 0)
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


def _unfold_into_zeros(
    np: Any, g: Any, shape: Ints, dimension: int, size: int, step: int
) -> Any:
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
        (ops.unfold_backward(_front(g, dims[0]), (n, *shape), dimension + 1, size, step), 0)
        if shape
        else (_front(g, dims[0]).sum(1), 0)
    ),
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(3, 3), (7,), 0, 3, 2),
        s(s.tensor(2, 4, 3), (2, 6), 1, 3, 1),
    ],
    oracle=lambda torch, g, *args: torch.ops.aten.unfold_backward(g, *args),
    doc="Sum windows back to where they were taken: the adjoint of `unfold`.",
)


# Several parts ---------------------------------------------------------------------------------


def _filled(grads: Sequence[Any], shapes: Sequence[Ints], self_meta: Any) -> list[Any]:
    """Replace absent cotangents by zeros."""
    present = next(g for g in grads if g is not None)
    return [
        present.new_zeros(shape) if g is None else g
        for g, shape in zip(grads, shapes, strict=True)
    ]


def _pieces(self: Any, dim: int, sizes: Sequence[int]) -> list[Geometry]:
    pieces: list[Geometry] = []
    start = 0
    for length in sizes:
        offset = self.offset + start * self.stride[dim]
        pieces.append((_replaced(self.shape, dim, length), self.stride, offset))
        start = start + length
    return pieces


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
    return ops.cat(_filled(grads, shapes, self_meta), dim)


split_size = view(
    "split_size(Tensor self, int split_size_or_sections, dim dim=0) -> Tensor[]",
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
    geometry=lambda self, split_size_or_sections, dim: _pieces(
        self, dim, _given_sizes(self, split_size_or_sections, dim)
    ),
    vjp={
        "self": lambda grads, self_meta, split_size_or_sections, dim: _split_vjp(
            grads, self_meta, split_size_or_sections, dim
        )
    },
    batch="dims",
    samples=lambda s: [
        s(s.tensor(5, 2), (1, 4)),
        s(s.tensor(2, 6), (3, 0, 3), -1),
    ],
    oracle="split",
    errors=lambda s: [
        (s(s.tensor(3), (1, 1)), RuntimeError, "sum exactly to 3"),
        (s(s.tensor(3), (4, -1)), RuntimeError, "non-negative"),
    ],
    doc="Cut a dimension into pieces of the given sizes.",
)

split = overload("split", "split_size", "split_with_sizes")


@composite(
    "chunk(Tensor self, int chunks, dim dim=0) -> Tensor[]",
    samples=lambda s: [s(s.tensor(5, 2), 2), s(s.tensor(2, 6), 3, -1), s(s.tensor(0, 2), 3)],
    errors=lambda s: [
        (s(s.tensor(3), 0), RuntimeError, "to be greater than 0"),
        (s(s.tensor(), 1), RuntimeError, "at least a 1-dimensional"),
    ],
)
def chunk(self: Any, chunks: int, dim: int) -> Any:
    """Cut a dimension into at most `chunks` pieces of equal size."""
    if self.ndim == 0:
        raise RuntimeError("chunk expects at least a 1-dimensional tensor")
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    size = self.shape[dim]
    if size == 0:
        return split_with_sizes(self, (0,) * chunks, dim)
    return split_size(self, (size + chunks - 1) // chunks, dim)


@composite(
    "tensor_split(Tensor self, any indices_or_sections, dim dim=0) -> Tensor[]",
    samples=lambda s: [
        s(s.tensor(7, 2), 3),
        s(s.tensor(2, 6), (1, 4), -1),
        s(s.tensor(4), (2, 9)),
    ],
    errors=lambda s: [
        (s(s.tensor(3), 0), RuntimeError, "larger than 0"),
        (s(s.tensor(), 1), RuntimeError, "at least a one-dimensional"),
    ],
)
def tensor_split(self: Any, indices_or_sections: Any, dim: int) -> Any:
    """Cut a dimension at given indices, or into sections that differ by at most one."""
    if self.ndim == 0:
        raise RuntimeError("tensor_split expected at least a one-dimensional tensor")
    if hasattr(indices_or_sections, "tolist"):
        indices_or_sections = indices_or_sections.tolist()
    size = self.shape[dim]
    if isinstance(indices_or_sections, int):
        if indices_or_sections <= 0:
            raise RuntimeError(
                f"number of sections must be larger than 0, got {indices_or_sections}"
            )
        small, larger = divmod(size, indices_or_sections)
        lengths = [small + (i < larger) for i in range(indices_or_sections)]
        return split_with_sizes(self, tuple(lengths), dim)
    cuts = [None, *indices_or_sections, None]
    return tuple(ops.slice(self, dim, a, b, 1) for a, b in zip(cuts, cuts[1:], strict=False))


def _unbind_geometry(self: Any, dim: int) -> list[Geometry]:
    if not self.shape:
        raise IndexError("Dimension specified as 0 but tensor has no dimensions")
    return [_select_geometry(self, dim, i) for i in range(self.shape[dim])]


unbind = view(
    "unbind(Tensor self, dim dim=0) -> Tensor[]",
    geometry=_unbind_geometry,
    vjp={
        "self": lambda grads, self_meta, dim: ops.stack(
            _filled(grads, [_without(tuple(self_meta.shape), dim)] * len(grads), self_meta), dim
        )
    },
    batch="dims",
    samples=lambda s: [s(s.tensor(3, 2)), s(s.tensor(2, 3), -1), s(s.tensor(3, 2, strided=True), 1)],
    errors=lambda s: [(s(s.tensor()), IndexError, "no dimensions|Dimension")],
    doc="Take every index of a dimension: a tuple of tensors without it.",
)


# Storage ---------------------------------------------------------------------------------------


def _may_overlap(shape: Ints, stride: Ints) -> bool:
    """Tell whether two indices might share an element; True when it is not plain to see."""
    reach = 1
    for step, size in sorted(
        (step, size) for size, step in zip(shape, stride, strict=True) if size != 1
    ):
        if step < reach:
            return numel_of(shape) != 0
        reach = step * (size - 1) + reach
    return False


def _as_strided_geometry(
    self: Any, size: Ints, stride: Ints, storage_offset: int | None
) -> Geometry:
    if len(size) != len(stride):
        raise RuntimeError(
            f"mismatch in length of strides and shape: got size {list(size)} "
            f"and stride {list(stride)}"
        )
    if any(n < 0 for n in size):
        raise RuntimeError(f"as_strided: sizes must be non-negative, got {list(size)}")
    if any(n < 0 for n in stride):
        raise RuntimeError(
            "as_strided: Negative strides are not supported at the moment, "
            f"got strides: {list(stride)}"
        )
    offset = self.offset if storage_offset is None else storage_offset
    if offset < 0:
        raise RuntimeError(f"as_strided: storage_offset must be non-negative, got {offset}")
    return tuple(size), tuple(stride), offset


def _reach(shape: Ints, stride: Ints, offset: int) -> int:
    if any(size == 0 for size in shape):
        return offset
    return offset + 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))


def _as_strided_vjp(
    g: Any, self_meta: Any, size: Ints, stride: Ints, storage_offset: int | None
) -> Any:
    """Add the cotangent into the storage, then read it through the geometry of the input.

    An input whose elements overlap owns each storage element several times: the cotangent of
    that element is shared equally among its owners, as the input's tangents would be.
    """
    source = tuple(self_meta.shape), tuple(self_meta.stride), self_meta.offset
    offset = source[2] if storage_offset is None else storage_offset
    low = min(offset, source[2])
    extent = max(_reach(size, stride, offset), _reach(*source)) - low
    places = ops.arange(extent, device=g.device)
    written = places.as_strided(size, stride, offset - low).flatten()
    read = places.as_strided(source[0], source[1], source[2] - low).flatten()
    total = g.new_zeros((extent,)).index_add(0, written, g.flatten())
    if _may_overlap(source[0], source[1]):
        owners = g.new_zeros((extent,)).index_add(0, read, g.new_ones(read.shape))
        total = total / owners.clamp(min=1)
    return total.index_select(0, read).reshape(source[0])


def _as_strided_batch(
    n: int, dims: Any, self: Any, size: Ints, stride: Ints, storage_offset: int | None
) -> Any:
    x = _front(self, dims[0])
    return x.as_strided((n, *size), (x.stride()[0], *stride), storage_offset), 0


as_strided = view(
    "as_strided(Tensor self, int[] size, int[] stride, int? storage_offset=None) -> Tensor",
    geometry=_as_strided_geometry,
    vjp={"self": _as_strided_vjp},
    batch=_as_strided_batch,
    samples=lambda s: [
        s(s.tensor(3, 4), (2, 3), (4, 1)),
        s(s.tensor(6), (3, 3), (1, 1), 1),
        s(s.tensor(2, 3), (3, 2), (1, 3)),
        s(s.tensor(4), (2, 4), (0, 1)),
        s(s.tensor(4), (0, 2), (1, 1)),
    ],
    errors=lambda s: [
        (s(s.tensor(4), (2, 2), (1,)), RuntimeError, "mismatch in length"),
        (s(s.tensor(4), (2,), (-1,)), RuntimeError, "Negative strides"),
        (s(s.tensor(4), (5,), (1,)), RuntimeError, "out of bounds"),
    ],
    doc="""See the storage of a tensor through any shape, stride and offset (in elements).

    Raises:
        RuntimeError: the view would reach outside of the storage.
    """,
)


# Complex as pairs ------------------------------------------------------------------------------

_PARTS = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}
_PAIRED = {part: pair for pair, part in _PARTS.items()}


def dtype_name(dtype: Any) -> str:
    """Give the name of a dtype without its module."""
    return str(dtype).rpartition(".")[2]


def _as_real_geometry(self: Any) -> Geometry:
    return (*self.shape, 2), (*(2 * step for step in self.stride), 1), 2 * self.offset


def _part_of(self: Any) -> str:
    if not self.dtype.is_complex:
        raise RuntimeError(
            f"view_as_real is only supported for complex tensors, got dtype {self.dtype}"
        )
    return _PARTS[dtype_name(self.dtype)]


view_as_real = view(
    "view_as_real(Tensor self) -> Tensor",
    geometry=_as_real_geometry,
    dtype=_part_of,
    vjp={"self": lambda g: ops.view_as_complex(g.contiguous())},
    batch="dims",
    samples=lambda s: [
        s(s.tensor(2, 3, dtype="complex64")),
        s(s.tensor(dtype="complex128")),
        s(s.tensor(2, 3, dtype="complex64", strided=True)),
    ],
    errors=lambda s: [
        (s(s.tensor(2, dtype="float32")), RuntimeError, "only supported for complex")
    ],
    doc="See a complex tensor as real pairs: the last dimension holds (real, imaginary).",
)


def _as_complex_geometry(self: Any) -> Geometry:
    shape, stride = self.shape, self.stride
    if not shape:
        raise RuntimeError("Input tensor must have one or more dimensions")
    if shape[-1] != 2:
        raise RuntimeError(
            f"Tensor must have a last dimension of size 2, got shape {list(shape)}"
        )
    if stride[-1] != 1:
        raise RuntimeError(
            f"Tensor must have a last dimension with stride 1, got stride {list(stride)}"
        )
    if any(step % 2 for step in stride[:-1]):
        raise RuntimeError(
            f"Tensor must have a stride divisible by 2 for all but last dimension, got {stride}"
        )
    if self.offset % 2:
        raise RuntimeError("Tensor must have a storage_offset divisible by 2")
    return shape[:-1], tuple(step // 2 for step in stride[:-1]), self.offset // 2


def _pair_of(self: Any) -> str:
    name = dtype_name(self.dtype)
    if name not in _PAIRED:
        raise RuntimeError(
            "view_as_complex is only supported for half, float and double tensors, "
            f"but got a tensor of dtype: {self.dtype}"
        )
    return _PAIRED[name]


view_as_complex = view(
    "view_as_complex(Tensor self) -> Tensor",
    geometry=_as_complex_geometry,
    dtype=_pair_of,
    vjp={"self": lambda g: ops.view_as_real(g.resolve_conj())},
    batch="dims",
    samples=lambda s: [
        s(s.tensor(3, 2, dtype="float32")),
        s(s.tensor(2, dtype="float64")),
    ],
    errors=lambda s: [
        (s(s.tensor(3, 3, dtype="float32")), RuntimeError, "last dimension of size 2"),
        (s(s.integers(0, 3, 3, 2)), RuntimeError, "only supported for half, float and double"),
    ],
    doc="See real pairs as a complex tensor: the last dimension holds (real, imaginary).",
)


@composite(
    "real(Tensor self) -> Tensor",
    method=False,
    samples=lambda s: [
        s(s.tensor(2, 3, dtype="complex64")),
        s(s.tensor(2, 3)),
        s(s.tensor(dtype="complex128")),
    ],
)
def real(self: Any) -> Any:
    """View the real part of a tensor; a real tensor is returned as it is."""
    if not self.dtype.is_complex:
        return self
    plain = self.conj() if self.is_conj() else self
    return view_as_real(plain).select(-1, 0)


@composite(
    "imag(Tensor self) -> Tensor",
    method=False,
    samples=lambda s: [
        s(s.tensor(2, 3, dtype="complex64")),
        s(s.tensor(dtype="complex128")),
    ],
    errors=lambda s: [
        (s(s.tensor(2, dtype="float32")), RuntimeError, "imag is not implemented")
    ],
)
def imag(self: Any) -> Any:
    """View the imaginary part of a complex tensor."""
    if not self.dtype.is_complex:
        raise RuntimeError(
            f"imag is not implemented for tensors with non-complex dtypes, got {self.dtype}"
        )
    if self.is_conj():
        return view_as_real(self.conj()).select(-1, 1).neg()
    return view_as_real(self).select(-1, 1)
