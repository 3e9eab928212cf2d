"""Define the ops that move elements into a new tensor: join, repeat, reorder, mask, pad."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tangrad import ops
from tangrad.ops.define import composite, op, pointwise
from tangrad.ops.movement import wrap_new_dim

Ints = tuple[int, ...]


def _front(x: Any, dim: int | None, size: int) -> Any:
    return x.expand((size, *x.shape)) if dim is None else x.movedim(dim, 0)


# Joining ---------------------------------------------------------------------------------------


def _is_legacy_empty(x: Any) -> bool:
    """Recognise the 1-D empty tensor that `cat` skips whatever the other shapes are."""
    return len(x.shape) == 1 and x.shape[0] == 0


def _cat_dim(tensors: Sequence[Any], dim: int) -> int:
    ndim = next((len(x.shape) for x in tensors if not _is_legacy_empty(x)), 1)
    if not -ndim <= dim < ndim:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], "
            f"but got {dim})"
        )
    return dim + ndim if dim < 0 else dim


def _check_cat(tensors: Sequence[Any], dim: int) -> None:
    if not tensors:
        raise ValueError("cat(): expected a non-empty list of Tensors")
    for i, x in enumerate(tensors):
        if not x.shape:
            raise RuntimeError(f"zero-dimensional tensor (at position {i}) cannot be concatenated")
    dim = _cat_dim(tensors, dim)
    joined = [(i, x.shape) for i, x in enumerate(tensors) if not _is_legacy_empty(x)]
    for i, shape in joined[1:]:
        first = joined[0][1]
        if len(shape) != len(first):
            raise RuntimeError(
                f"Tensors must have same number of dimensions: got {len(first)} and {len(shape)} "
                f"(cat of shapes {[list(x.shape) for x in tensors]})"
            )
        for d in range(len(first)):
            if d != dim and shape[d] != first[d]:
                raise RuntimeError(
                    f"Sizes of tensors must match except in dimension {dim}. Expected size "
                    f"{first[d]} but got size {shape[d]} for tensor number {i} in the list."
                )


def _cat_shape(tensors: Sequence[Any], dim: int) -> Ints:
    dim = _cat_dim(tensors, dim)
    joined = [x.shape for x in tensors if not _is_legacy_empty(x)]
    if not joined:
        return (0,)
    total = sum(shape[dim] for shape in joined)
    return (*joined[0][:dim], total, *joined[0][dim + 1 :])


def _promoted(tensors: Sequence[Any]) -> Any:
    dtype = tensors[0].dtype
    for x in tensors[1:]:
        dtype = ops.promote_types(dtype, x.dtype)
    return dtype


def _cat_reference(np: Any, tensors: Sequence[Any], dim: int) -> Any:
    joined = [x for x in tensors if not _is_legacy_empty(x)]
    return np.concatenate(joined, dim) if joined else tensors[0]


def _cat_vjp(g: Any, tensors_meta: Sequence[Any], dim: int) -> list[Any]:
    dim = _cat_dim(tensors_meta, dim)
    grads: list[Any] = []
    start = 0
    for meta in tensors_meta:
        if _is_legacy_empty(meta):
            grads.append(g.new_zeros(meta.shape).to(meta.dtype))
            continue
        stop = start + meta.shape[dim]
        part = ops.slice(g, dim, start, stop, 1)
        real_input = g.dtype.is_complex and not meta.dtype.is_complex
        grads.append((ops.real(part) if real_input else part).to(meta.dtype))
        start = stop
    return grads


def _cat_jvp(tensors: Sequence[Any], tensors_t: Sequence[Any], dim: int) -> Any:
    return ops.cat(
        [
            ops.zeros_like(x) if x_t is None else x_t
            for x, x_t in zip(tensors, tensors_t, strict=True)
        ],
        dim,
    )


def _cat_batch(size: int, dims: Any, tensors: Sequence[Any], dim: int) -> Any:
    moved = [_front(x, d, size) for x, d in zip(tensors, dims[0], strict=True)]
    kept = [x for x in moved if not (x.ndim == 2 and x.shape[1] == 0)] or moved[:1]
    return ops.cat(kept, dim if dim < 0 else dim + 1), 0


cat = op(
    "cat(Tensor[] tensors, int dim=0) -> Tensor",
    check=_check_cat,
    shape=_cat_shape,
    dtype=_promoted,
    reference=_cat_reference,
    vjp={"tensors": _cat_vjp},
    jvp=_cat_jvp,
    batch=_cat_batch,
    alias=("concat", "concatenate"),
    method=False,
    samples=lambda s: [
        s([s.tensor(2, 3), s.tensor(1, 3)]),
        s([s.tensor(2, 1), s.tensor(2, 3), s.tensor(2, 0)], 1),
        s([s.tensor(2, 3, strided=True), s.tensor(2, 2)], dim=-1),
        s([s.tensor(0), s.tensor(2, 3)]),
        s([s.tensor(2), s.tensor(3, strided=True)]),
    ],
    errors=lambda s: [
        (s([]), (ValueError, RuntimeError), "non-empty"),
        (s([s.tensor(2, 3), s.tensor(2, 2)]), RuntimeError, "Sizes of tensors must match"),
        (s([s.tensor(2, 3), s.tensor(2)]), RuntimeError, "same number of dimensions"),
        (s([s.tensor(), s.tensor()]), RuntimeError, "zero-dimensional tensor"),
        (s([s.tensor(2)], 1), IndexError, "Dimension out of range"),
    ],
    doc="""Join tensors along an existing dimension.

    The dtypes are promoted together. A 1-D tensor without elements is skipped whatever the
    other shapes are.
    """,
)


@composite(
    "stack(Tensor[] tensors, int dim=0) -> Tensor",
    method=False,
    samples=lambda s: [
        s([s.tensor(2, 3), s.tensor(2, 3)]),
        s([s.tensor(3), s.tensor(3)], -1),
        s([s.tensor(), s.tensor()]),
        s([s.tensor(2, 3, strided=True), s.tensor(2, 3)], 1),
    ],
    errors=lambda s: [
        (s([]), (RuntimeError, ValueError), "non-empty"),
        (s([s.tensor(2), s.tensor(3)]), RuntimeError, "each tensor to be equal size"),
        (s([s.tensor(2)], 3), IndexError, "Dimension out of range"),
    ],
)
def stack(tensors: Sequence[Any], dim: int) -> Any:
    """Join tensors of one shape along a new dimension."""
    if not tensors:
        raise RuntimeError("stack expects a non-empty TensorList")
    first = tuple(tensors[0].shape)
    for i, x in enumerate(tensors):
        if tuple(x.shape) != first:
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(first)} at entry 0 "
                f"and {list(x.shape)} at entry {i}"
            )
    dim = wrap_new_dim(dim, len(first))
    return cat([x.unsqueeze(dim) for x in tensors], dim)


def _at_least(x: Any, ndim: int) -> Any:
    return x.reshape((1,) * (ndim - x.ndim) + tuple(x.shape)) if x.ndim < ndim else x


@composite(
    "atleast_1d(Tensor self) -> Tensor",
    method=False,
    samples=lambda s: [s(s.tensor()), s(s.tensor(2))],
)
def atleast_1d(self: Any) -> Any:
    """View a scalar as a vector; leave other tensors as they are."""
    return _at_least(self, 1)


@composite(
    "atleast_2d(Tensor self) -> Tensor",
    method=False,
    samples=lambda s: [s(s.tensor()), s(s.tensor(2)), s(s.tensor(2, 3))],
)
def atleast_2d(self: Any) -> Any:
    """View a scalar or vector as a matrix of one row; leave other tensors as they are."""
    return _at_least(self, 2)


@composite(
    "atleast_3d(Tensor self) -> Tensor",
    method=False,
    samples=lambda s: [s(s.tensor()), s(s.tensor(2)), s(s.tensor(2, 3)), s(s.tensor(1, 2, 1))],
)
def atleast_3d(self: Any) -> Any:
    """View a tensor with at least three dimensions; a matrix gets a last one of size one."""
    return self.unsqueeze(-1) if self.ndim == 2 else _at_least(_at_least(self, 2), 2)[..., None] \
        if self.ndim < 2 else self


@composite(
    "hstack(Tensor[] tensors) -> Tensor",
    method=False,
    samples=lambda s: [s([s.tensor(2), s.tensor(3)]), s([s.tensor(2, 1), s.tensor(2, 2)])],
    errors=lambda s: [(s([]), RuntimeError, "non-empty")],
)
def hstack(tensors: Sequence[Any]) -> Any:
    """Join tensors along the second dimension, vectors along their only one."""
    if not tensors:
        raise RuntimeError("hstack expects a non-empty TensorList")
    parts = [_at_least(x, 1) for x in tensors]
    return cat(parts, 0 if parts[0].ndim == 1 else 1)


@composite(
    "vstack(Tensor[] tensors) -> Tensor",
    alias=("row_stack",),
    method=False,
    samples=lambda s: [s([s.tensor(2), s.tensor(2)]), s([s.tensor(1, 2), s.tensor(2, 2)])],
    errors=lambda s: [(s([]), RuntimeError, "non-empty")],
)
def vstack(tensors: Sequence[Any]) -> Any:
    """Join tensors as rows, along the first dimension."""
    if not tensors:
        raise RuntimeError("vstack expects a non-empty TensorList")
    return cat([_at_least(x, 2) for x in tensors], 0)


@composite(
    "dstack(Tensor[] tensors) -> Tensor",
    method=False,
    samples=lambda s: [s([s.tensor(2), s.tensor(2)]), s([s.tensor(2, 2, 1), s.tensor(2, 2, 2)])],
    errors=lambda s: [(s([]), RuntimeError, "non-empty")],
)
def dstack(tensors: Sequence[Any]) -> Any:
    """Join tensors in depth, along the third dimension."""
    if not tensors:
        raise RuntimeError("dstack expects a non-empty TensorList")
    return cat([atleast_3d(x) for x in tensors], 2)


# Copies ----------------------------------------------------------------------------------------

fill_ = op(
    "fill_(Tensor! self, Operand value) -> Tensor",
    check=lambda value: _check_fill(value),
    reference=lambda np, self, value: np.full_like(self, value),
    vjp={
        "self": lambda g: g.new_zeros(g.shape),
        "value": lambda g: g.sum(),
    },
    linear=("self", "value"),
    batch=None,
    function=False,
    samples=lambda s: [s(s.tensor(2, 3), 2), s(s.tensor(3, 2, strided=True), 0), s(s.tensor(), 1)],
    errors=lambda s: [(s(s.tensor(2), s.tensor(2)), RuntimeError, "0-dimension value tensor")],
    doc="Overwrite every element by one value.",
)


def _check_fill(value: Any) -> None:
    shape = getattr(value, "shape", ())
    if len(shape):
        raise RuntimeError(
            "fill_ only supports 0-dimension value tensor but got tensor with "
            f"{len(shape)} dimensions"
        )


@composite(
    "zero_(Tensor! self) -> Tensor",
    function=False,
    samples=lambda s: [s(s.tensor(2, 3)), s(s.tensor())],
)
def zero_(self: Any) -> Any:
    """Overwrite every element by zero."""
    return self.fill_(0)


masked_fill = pointwise(
    "masked_fill(Tensor self, Tensor mask, Operand value) -> Tensor",
    "where(mask, value, self)",
    fixed={"mask": "bool"},
    inplace=True,
    samples=lambda s: [
        s(s.tensor(2, 3), s.mask(2, 3), 1),
        s(s.tensor(2, 3), s.mask(3), 0),
        s(s.tensor(3), s.mask(2, 1), s.tensor()),
        s(s.tensor(3, 2, strided=True), s.mask(3, 2), 2),
    ],
    errors=lambda s: [(s(s.tensor(2), s.mask(3), 1), RuntimeError, "must match|broadcast")],
    doc="Replace the elements where `mask` is true by a value.",
)


# Order and repetition --------------------------------------------------------------------------


def _check_flip(dims: Ints) -> None:
    if len(set(dims)) != len(dims):
        twice = next(d for d in dims if list(dims).count(d) > 1)
        raise RuntimeError(f"dim {twice} appears multiple times in the list of dims {list(dims)}")


flip = op(
    "flip(Tensor self, dim[] dims) -> Tensor",
    check=_check_flip,
    shape=lambda self: self.shape,
    reference=lambda np, self, dims: np.flip(self, dims),
    vjp={"self": lambda g, dims: g.flip(dims)},
    linear=("self",),
    batch="dims",
    samples=lambda s: [
        s(s.tensor(2, 3), (0,)),
        s(s.tensor(2, 3, 2), (0, -1)),
        s(s.tensor(2, 3, strided=True), (1,)),
        s(s.tensor(0, 2), (0,)),
        s(s.tensor(2), ()),
    ],
    errors=lambda s: [
        (s(s.tensor(2), (0, 0)), RuntimeError, "appears multiple times"),
        (s(s.tensor(2), (1,)), IndexError, "Dimension out of range"),
    ],
    doc="Reverse the order of the elements along dimensions.",
)


@composite(
    "fliplr(Tensor self) -> Tensor",
    samples=lambda s: [s(s.tensor(2, 3))],
    errors=lambda s: [(s(s.tensor(2)), RuntimeError, "must be >= 2-d")],
)
def fliplr(self: Any) -> Any:
    """Reverse the order of the columns."""
    if self.ndim < 2:
        raise RuntimeError(f"fliplr: input must be >= 2-d, got shape {list(self.shape)}")
    return self.flip((1,))


@composite(
    "flipud(Tensor self) -> Tensor",
    samples=lambda s: [s(s.tensor(2, 3)), s(s.tensor(3))],
    errors=lambda s: [(s(s.tensor()), RuntimeError, "must be >= 1-d")],
)
def flipud(self: Any) -> Any:
    """Reverse the order of the rows."""
    if self.ndim < 1:
        raise RuntimeError("flipud: input must be >= 1-d, got a zero-dimensional tensor")
    return self.flip((0,))


@composite(
    "rot90(Tensor self, int k=1, dim[2] dims=(0, 1)) -> Tensor",
    samples=lambda s: [
        s(s.tensor(2, 3)),
        s(s.tensor(2, 3), 2),
        s(s.tensor(2, 3, 2), -1, (1, 2)),
        s(s.tensor(2, 2), 4),
    ],
    errors=lambda s: [
        (s(s.tensor(2, 2), 1, (0, 0)), RuntimeError, "rotation dims to be different"),
    ],
)
def rot90(self: Any, k: int, dims: Ints) -> Any:
    """Rotate a plane `k` times by a quarter turn, from dims[0] towards dims[1]."""
    if dims[0] == dims[1]:
        raise RuntimeError(f"expected rotation dims to be different, got {list(dims)}")
    turned = {
        0: lambda: self.clone(),
        1: lambda: self.flip((dims[1],)).transpose(*dims),
        2: lambda: self.flip(dims),
        3: lambda: self.flip((dims[0],)).transpose(*dims),
    }
    return turned[k % 4]()


def _rolled_dims(shifts: Ints, dims: Ints) -> None:
    if not shifts:
        raise RuntimeError("`shifts` required")
    if len(shifts) != len(dims) and (dims or len(shifts) != 1):
        raise RuntimeError(
            f"shifts and dimensions must align. shifts: {len(shifts)}, dims:{len(dims)}"
        )


@composite(
    "roll(Tensor self, int[1] shifts, dim[1] dims=()) -> Tensor",
    samples=lambda s: [
        s(s.tensor(2, 3), 1),
        s(s.tensor(2, 3), -4, 1),
        s(s.tensor(2, 3, 2), (1, 2), (0, -1)),
        s(s.tensor(2, 3, strided=True), 1, 0),
        s(s.tensor(0, 2), 1, 0),
        s(s.tensor(), 3),
    ],
    errors=lambda s: [
        (s(s.tensor(3), (1, 2), (0,)), RuntimeError, "must align"),
        (s(s.tensor(3), 1, 1), IndexError, "Dimension out of range"),
    ],
)
def roll(self: Any, shifts: Ints, dims: Ints) -> Any:
    """Shift the elements along dimensions; what leaves at one end enters at the other.

    Without `dims` the flattened tensor is shifted.
    """
    _rolled_dims(shifts, dims)
    if not dims:
        return self.contiguous().reshape((-1,)).roll(shifts, (0,)).reshape(self.shape) \
            if self.numel() else self.clone()
    if self.numel() == 0:
        return self.clone()
    for shift, dim in zip(shifts, dims, strict=True):
        size = self.shape[dim]
        cut = size - shift % size
        parts = [ops.slice(self, dim, cut, size, 1), ops.slice(self, dim, 0, cut, 1)]
        self = cat(parts, dim)
    return self


def _check_repeats(self: Any, repeats: Ints, name: str) -> None:
    if len(repeats) < len(self.shape):
        raise RuntimeError(
            f"{name}: Number of dimensions of repeat dims ({len(repeats)}) can not be smaller "
            f"than number of dimensions of tensor ({len(self.shape)})"
        )
    if any(n < 0 for n in repeats):
        raise RuntimeError(f"{name}: trying to create a tensor with negative repeats {repeats}")


@composite(
    "repeat(Tensor self, int[] repeats) -> Tensor",
    function=False,
    samples=lambda s: [
        s(s.tensor(2, 3), (2, 1)),
        s(s.tensor(3), (2, 1, 2)),
        s(s.tensor(3, 2, strided=True), (1, 2)),
        s(s.tensor(), (2,)),
        s(s.tensor(2), (0,)),
        s(s.tensor(), ()),
    ],
    errors=lambda s: [
        (s(s.tensor(2, 3), (2,)), RuntimeError, "can not be smaller"),
        (s(s.tensor(2), (-1,)), RuntimeError, "negative"),
    ],
)
def repeat(self: Any, repeats: Ints) -> Any:
    """Copy a tensor side by side, repeats[i] times along dimension i."""
    _check_repeats(self, repeats, "repeat")
    shape = (1,) * (len(repeats) - self.ndim) + tuple(self.shape)
    paired = [n for pair in zip(repeats, shape, strict=True) for n in pair]
    singled = [n for size in shape for n in (1, size)]
    merged = tuple(n * size for n, size in zip(repeats, shape, strict=True))
    return self.reshape(singled).expand(paired).clone(
        memory_format=ops.contiguous_format
    ).view(merged)


@composite(
    "tile(Tensor self, int[] dims) -> Tensor",
    samples=lambda s: [s(s.tensor(2, 3), (2,)), s(s.tensor(2), (2, 2)), s(s.tensor(), (3,))],
)
def tile(self: Any, dims: Ints) -> Any:
    """Repeat a tensor as `repeat` does; missing leading repeats are one."""
    return self.repeat((1,) * (self.ndim - len(dims)) + tuple(dims))


@composite(
    "repeat_interleave(Tensor self, any repeats, dim? dim=None, *, int? output_size=None)"
    " -> Tensor",
    samples=lambda s: [
        s(s.tensor(2, 3), 2),
        s(s.tensor(2, 3), 2, 1),
        s(s.tensor(2, 3), s.integers(2, 3, 3), 1),
        s(s.tensor(), 3),
    ],
    errors=lambda s: [
        (s(s.tensor(3), -1), RuntimeError, "non-negative"),
        (s(s.tensor(3), s.integers(1, 2, 2), 0), RuntimeError, "same size as input"),
    ],
)
def repeat_interleave(self: Any, repeats: Any, dim: int | None, output_size: int | None) -> Any:
    """Repeat every element next to itself: all equally often, or as often as `repeats` says.

    Without `dim` the tensor is flattened first.
    """
    if dim is None:
        self, dim = self.flatten(), 0
    self = self.reshape((1,)) if self.ndim == 0 else self
    size = self.shape[dim]
    if isinstance(repeats, int):
        return _repeat_equally(self, repeats, dim)
    counts = repeats.reshape((-1,))
    if counts.shape[0] not in (1, size):
        raise RuntimeError(
            f"repeats must have the same size as input along dim, but got repeats.size(0) = "
            f"{counts.shape[0]} and input.size({dim}) = {size}"
        )
    if counts.shape[0] == 1:
        return _repeat_equally(self, int(counts[0]), dim)
    listed = counts.tolist()
    if any(n < 0 for n in listed):
        raise RuntimeError("repeats can not be negative")
    places = [i for i, n in enumerate(listed) for _ in range(n)]
    if output_size is not None and output_size != len(places):
        raise RuntimeError(f"output_size {output_size} differs from sum of repeats {len(places)}")
    return self.index_select(dim, ops.tensor(places, dtype=ops.int64, device=self.device))


def _repeat_equally(self: Any, repeats: int, dim: int) -> Any:
    if repeats < 0:
        raise RuntimeError(f"Repeats must be non-negative, got {repeats}")
    shape = tuple(self.shape)
    widened = self.unsqueeze(dim + 1).expand((*shape[: dim + 1], repeats, *shape[dim + 1 :]))
    return widened.clone(memory_format=ops.contiguous_format).view(
        (*shape[:dim], shape[dim] * repeats, *shape[dim + 1 :])
    )


# Triangles -------------------------------------------------------------------------------------


def _check_matrix(name: str, x: Any) -> None:
    if len(x.shape) < 2:
        raise RuntimeError(
            f"{name}: input tensor must have at least 2 dimensions, got shape {list(x.shape)}"
        )


tril = op(
    "tril(Tensor self, int diagonal=0) -> Tensor",
    check=lambda self: _check_matrix("tril", self),
    shape=lambda self: self.shape,
    reference=lambda np, self, diagonal: np.tril(self, diagonal),
    vjp={"self": lambda g, diagonal: g.tril(diagonal)},
    linear=("self",),
    batch="dims",
    inplace=True,
    samples=lambda s: [
        s(s.tensor(3, 3)),
        s(s.tensor(2, 4), 1),
        s(s.tensor(2, 3, 2), -1),
        s(s.tensor(2, 3, strided=True)),
        s(s.tensor(0, 3)),
    ],
    errors=lambda s: [(s(s.tensor(3)), RuntimeError, "at least 2 dimensions")],
    doc="Keep the elements of each matrix on and below a diagonal, and zero the others.",
)

triu = op(
    "triu(Tensor self, int diagonal=0) -> Tensor",
    check=lambda self: _check_matrix("triu", self),
    shape=lambda self: self.shape,
    reference=lambda np, self, diagonal: np.triu(self, diagonal),
    vjp={"self": lambda g, diagonal: g.triu(diagonal)},
    linear=("self",),
    batch="dims",
    inplace=True,
    samples=lambda s: [
        s(s.tensor(3, 3)),
        s(s.tensor(2, 4), 1),
        s(s.tensor(2, 3, 2), -1),
        s(s.tensor(2, 3, strided=True)),
        s(s.tensor(0, 3)),
    ],
    errors=lambda s: [(s(s.tensor(3)), RuntimeError, "at least 2 dimensions")],
    doc="Keep the elements of each matrix on and above a diagonal, and zero the others.",
)


# Grids -----------------------------------------------------------------------------------------


def broadcast_shapes(*shapes: Sequence[int]) -> Ints:
    """Give the shape to which shapes broadcast together, or raise RuntimeError."""
    ndim = max((len(shape) for shape in shapes), default=0)
    result = [1] * ndim
    for shape in shapes:
        for i, size in enumerate(shape, ndim - len(shape)):
            if size == 1 or size == result[i]:
                continue
            if result[i] != 1:
                raise RuntimeError(
                    "Shape mismatch: objects cannot be broadcast to a single shape; the sizes "
                    f"{result[i]} and {size} at dimension {i} must match, "
                    f"got shapes {[list(each) for each in shapes]}"
                )
            result[i] = size
    return tuple(result)


@composite(
    "broadcast_tensors(Tensor[] tensors) -> Tensor[]",
    method=False,
    samples=lambda s: [s([s.tensor(2, 1), s.tensor(3)]), s([s.tensor(), s.tensor(2)])],
    oracle=lambda torch, tensors: torch.broadcast_tensors(*tensors),
    errors=lambda s: [(s([s.tensor(2), s.tensor(3)]), RuntimeError, "must match")],
)
def broadcast_tensors(tensors: Sequence[Any]) -> Any:
    """Expand tensors to the shape they broadcast to."""
    shape = broadcast_shapes(*(x.shape for x in tensors))
    return tuple(x.expand(shape) for x in tensors)


@composite(
    "meshgrid(Tensor[] tensors, *, str indexing='ij') -> Tensor[]",
    method=False,
    samples=lambda s: [
        s([s.tensor(2), s.tensor(3)], indexing="ij"),
        s([s.tensor(2), s.tensor(3), s.tensor()], indexing="xy"),
    ],
    oracle=lambda torch, tensors, indexing: torch.meshgrid(*tensors, indexing=indexing),
    errors=lambda s: [
        (s([s.tensor(2, 2)]), RuntimeError, "scalar or 1D"),
        (s([s.tensor(2)], indexing="ab"), RuntimeError, 'one of "xy" or "ij"'),
    ],
)
def meshgrid(tensors: Sequence[Any], indexing: str) -> Any:
    """Expand coordinate vectors to a grid of all their combinations.

    Args:
        indexing: "ij" (matrix order) or "xy" (the first two dimensions exchanged).
    """
    if not tensors:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    if indexing not in ("ij", "xy"):
        raise RuntimeError(
            f'meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}'
        )
    for x in tensors:
        if x.ndim > 1:
            raise RuntimeError(
                f"meshgrid: Expected scalar or 1D tensor, but got shape {list(x.shape)}"
            )
    exchanged = indexing == "xy" and len(tensors) > 1
    axes = [tensors[1], tensors[0], *tensors[2:]] if exchanged else list(tensors)
    shape = tuple(x.numel() for x in axes)
    grids = [
        x.reshape((-1,) + (1,) * (len(axes) - 1 - i)).expand(shape) for i, x in enumerate(axes)
    ]
    if not exchanged:
        return tuple(grids)
    return tuple(x.transpose(0, 1) for x in (grids[1], grids[0], *grids[2:]))


# Padding ---------------------------------------------------------------------------------------

_PAD_MODES = ("constant", "reflect", "replicate", "circular")


def _pairs(pad: Ints) -> list[tuple[int, int]]:
    return [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)]


def _check_pad(self: Any, pad: Ints) -> None:
    if len(pad) % 2:
        raise RuntimeError(f"Padding length must be divisible by 2, got {list(pad)}")
    if len(pad) // 2 > len(self.shape):
        raise RuntimeError(
            f"Padding length should be less than or equal to two times the input dimension but "
            f"got padding length {len(pad)} and input of dimension {len(self.shape)}"
        )
    for i, (before, after) in enumerate(_pairs(pad), 1):
        if self.shape[-i] + before + after < 0:
            raise RuntimeError(
                f"The input size {self.shape[-i]}, plus negative padding {before} and {after}, "
                "resulted in a negative output size, which is invalid. Check dimension "
                f"{len(self.shape) - i} of your input."
            )


def _padded_shape(self: Any, pad: Ints) -> Ints:
    shape = list(self.shape)
    for i, (before, after) in enumerate(_pairs(pad), 1):
        shape[-i] = shape[-i] + before + after
    return tuple(shape)


def _pad_reference(np: Any, self: Any, pad: Ints, value: Any) -> Any:
    pairs = _pairs(pad)
    cut = [slice(None)] * (self.ndim - len(pairs))
    grow = [(0, 0)] * len(cut)
    for axis in range(len(cut), self.ndim):
        before, after = pairs[self.ndim - 1 - axis]
        cut.append(slice(max(0, -before), self.shape[axis] + min(0, after)))
        grow.append((max(0, before), max(0, after)))
    return np.pad(self[tuple(cut)], grow, constant_values=value)


constant_pad_nd = op(
    "constant_pad_nd(Tensor self, int[] pad, Scalar value=0) -> Tensor",
    check=_check_pad,
    shape=_padded_shape,
    reference=_pad_reference,
    vjp={"self": lambda g, pad: ops.constant_pad_nd(g, tuple(-n for n in pad), 0)},
    jvp=lambda self_t, pad: ops.constant_pad_nd(self_t, pad, 0),
    batch="dims",
    method=False,
    samples=lambda s: [
        s(s.tensor(2, 3), (1, 2)),
        s(s.tensor(2, 3), (1, 0, 0, 2), 1),
        s(s.tensor(2, 4), (-1, 2)),
        s(s.tensor(2, 3, strided=True), (0, 1)),
        s(s.tensor(0, 2), (0, 0, 1, 1)),
    ],
    errors=lambda s: [
        (s(s.tensor(2), (1,)), RuntimeError, "divisible by 2"),
        (s(s.tensor(2), (1, 1, 1, 1)), RuntimeError, "two times the input dimension"),
        (s(s.tensor(2), (-2, -1)), RuntimeError, "negative output size"),
    ],
    doc="""Surround a tensor by a value; negative amounts cut off.

    Args:
        pad: (before, after) of the last dimension, then of the one before it, and so on.
    """,
)


def _reflected(size: int, before: int, after: int) -> list[int]:
    if before >= size or after >= size:
        raise RuntimeError(
            "Argument #4: Padding size should be less than the corresponding input dimension, "
            f"but got: padding ({before}, {after}) for a dimension of size {size}"
        )
    return [abs(size - 1 - abs(size - 1 - i)) for i in range(-before, size + after)]


def _replicated(size: int, before: int, after: int) -> list[int]:
    return [min(max(i, 0), size - 1) for i in range(-before, size + after)]


def _wrapped(size: int, before: int, after: int) -> list[int]:
    if before > size or after > size:
        raise RuntimeError(
            f"Padding value causes wrapping around more than once: ({before}, {after}) for a "
            f"dimension of size {size}"
        )
    return [i % size for i in range(-before, size + after)]


_PAD_PLACES = {"reflect": _reflected, "replicate": _replicated, "circular": _wrapped}


@composite(
    "pad(Tensor input, int[] pad, str mode='constant', Scalar? value=None) -> Tensor",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(2, 3), (1, 2)),
        s(s.tensor(2, 3), (1, 2), "constant", 2),
        s(s.tensor(1, 2, 4), (2, 1), "reflect"),
        s(s.tensor(1, 2, 3), (2, 1), "replicate"),
        s(s.tensor(1, 1, 3, 2), (1, 1, 2, 0), "circular"),
    ],
    oracle="nn.functional.pad",
    errors=lambda s: [
        (s(s.tensor(1, 1, 3), (3, 0), "reflect"), RuntimeError, "Padding size should be less"),
        (s(s.tensor(3), (1, 1), "mirror"), (NotImplementedError, RuntimeError), "mirror|mode"),
    ],
)
def pad(input: Any, pad: Ints, mode: str, value: Any) -> Any:
    """Surround a tensor by a constant, its mirror image, its border or its other end.

    Args:
        pad: (before, after) of the last dimension, then of the one before it, and so on.
        mode: "constant", "reflect" (without repeating the border), "replicate" or "circular".
        value: what "constant" fills in (0).
    """
    if mode not in _PAD_MODES:
        raise NotImplementedError(f"Unrecognised padding mode {mode!r}, expected {_PAD_MODES}")
    if mode == "constant":
        return constant_pad_nd(input, pad, 0 if value is None else value)
    if value:
        raise ValueError(f'Padding mode "{mode}" doesn\'t take in value argument, got {value}')
    _check_pad(input, pad)
    for i, (before, after) in enumerate(_pairs(pad), 1):
        places = _PAD_PLACES[mode](input.shape[-i], before, after)
        index = ops.tensor(places, dtype=ops.int64, device=input.device)
        input = input.index_select(input.ndim - i, index)
    return input
