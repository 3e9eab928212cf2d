"""Define the ops that join tensors, and those that broadcast them together."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import tangrad
from tangrad.ops.definition.define import composite, op, overload
from tangrad.ops.definition.signature import Dim, Tensor
from tangrad.ops.views.geometry import Ints, batched_front
from tangrad.ops.views.slicing import slice_
from tangrad.tensor.memory import suggested_format

# Joining -----------------------------------------------------------------------------------------


def _is_legacy_empty(x: Any) -> bool:
    """Recognise the 1-D empty tensor that `cat` skips whatever the other shapes are."""
    return len(x.shape) == 1 and x.shape[0] == 0


def _alike(shapes: Sequence[Any]) -> bool:
    return all(shape is shapes[0] or shape == shapes[0] for shape in shapes)


def _check_cat(tensors: Sequence[Any], dim: int) -> None:
    if not tensors:
        raise ValueError("cat(): expected a non-empty list of Tensors")
    shapes = [x.shape for x in tensors]
    if shapes[0] and _alike(shapes):
        return
    for i, x in enumerate(tensors):
        if not x.shape:
            raise RuntimeError(f"zero-dimensional tensor (at position {i}) cannot be concatenated")
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
    shapes = [x.shape for x in tensors]
    if _alike(shapes):
        first = shapes[0]
        return (*first[:dim], first[dim] * len(shapes), *first[dim + 1 :])
    joined = [x.shape for x in tensors if not _is_legacy_empty(x)]
    if not joined:
        return (0,)
    total = sum(shape[dim] for shape in joined)
    return (*joined[0][:dim], total, *joined[0][dim + 1 :])


def promoted(tensors: Sequence[Any]) -> Any:
    """Return the dtype that all of some tensors are promoted to."""
    dtype = tensors[0].dtype
    for x in tensors[1:]:
        if x.dtype is not dtype:
            dtype = tangrad.promote_types(dtype, x.dtype)
    return dtype


def _cat_format(tensors: Sequence[Any]) -> Any:
    """Give the format that all have, as PyTorch: one contiguous tensor makes the result so."""
    first = suggested_format(tensors[0])
    same = all(suggested_format(x) is first for x in tensors[1:])
    return first if same else tangrad.contiguous_format


def _cat_reference(np: Any, tensors: Sequence[Any], dim: int) -> Any:
    joined = [x for x in tensors if not _is_legacy_empty(x)]
    return np.concatenate(joined, dim) if joined else tensors[0]


def _cat_vjp(g: Any, tensors_meta: Sequence[Any], dim: int) -> list[Any]:
    grads: list[Any] = []
    start = 0
    for meta in tensors_meta:
        if _is_legacy_empty(meta):
            grads.append(g.new_zeros(meta.shape).to(meta.dtype))
            continue
        stop = start + meta.shape[dim]
        part = slice_(g, dim, start, stop, 1)
        real_input = g.dtype.is_complex and not meta.dtype.is_complex
        grads.append((tangrad.real(part) if real_input else part).to(meta.dtype))
        start = stop
    return grads


def _cat_jvp(tensors: Sequence[Any], tensors_t: Sequence[Any], dim: int) -> Any:
    return cat(
        [
            tangrad.zeros_like(x) if x_t is None else x_t
            for x, x_t in zip(tensors, tensors_t, strict=True)
        ],
        dim,
    )


def _cat_batch(size: int, dims: Any, tensors: Sequence[Any], dim: int) -> Any:
    moved = [batched_front(x, d, size) for x, d in zip(tensors, dims[0], strict=True)]
    kept = [x for x in moved if not (x.ndim == 2 and x.shape[1] == 0)] or moved[:1]
    return cat(kept, dim + 1), 0


cat = op(
    "cat(Tensor[] tensors, dim dim=0) -> Tensor",
    c_implementation="cat",
    out_refusal=TypeError,
    strict_out=True,
    any_dim=lambda tensors: bool(tensors) and all(map(_is_legacy_empty, tensors)),
    check=_check_cat,
    shape=_cat_shape,
    dtype=promoted,
    memory_format=_cat_format,
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
        s([s.tensor(0), s.tensor(0)], 2),
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
    c_implementation="stack",
    out_refusal=TypeError,
    out=True,
    extra_dims=1,
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
def stack(tensors: Sequence[Tensor], dim: Dim = 0) -> Tensor:
    """Join tensors of one shape along a new dimension."""
    if not tensors:
        raise RuntimeError("stack expects a non-empty TensorList")
    shapes = [x.shape for x in tensors]
    if shapes.count(shapes[0]) < len(shapes):
        i = next(i for i, shape in enumerate(shapes) if shape != shapes[0])
        raise RuntimeError(
            f"stack expects each tensor to be equal size, but got {list(shapes[0])} at entry 0 "
            f"and {list(shapes[i])} at entry {i}"
        )
    ndim = len(shapes[0])
    if ndim in (4, 5) and dim < ndim and not tensors[0].is_contiguous() and _lie_last(tensors):
        return _stacked_last(tensors, dim)
    return cat([x.unsqueeze(dim) for x in tensors], dim)


def _lie_last(tensors: Sequence[Any]) -> bool:
    stride = tensors[0].stride()
    alike = tensors[:1] if all(x.stride() == stride for x in tensors) else tensors
    return _cat_format(alike) is not tangrad.contiguous_format


def _stacked_last(tensors: Sequence[Any], dim: int) -> Any:
    """Stack what lies channels last as it lies, the new dimension before the named one."""
    ndim = tensors[0].ndim
    behind = (0, *range(2, ndim), 1)
    at = behind.index(dim)
    joined = stack([x.permute(behind) for x in tensors], at)
    order = [k if k < at else k + 1 for k in (behind.index(d) for d in range(ndim))]
    return joined.permute((*order[:dim], at, *order[dim:]))


@composite(
    out=True,
    method=False,
    samples=lambda s: [
        s([s.tensor(3, 2), s.tensor(1, 4)], 0, 2),
        s([s.tensor(2, 3), s.tensor(2, 5, strided=True)], -1, 4),
        s([s.tensor(2, 3, 2), s.tensor(2, 3)], 1, 2),
    ],
    errors=lambda s: [
        (s([s.tensor(2)], 0, 0), RuntimeError, "positive num_chunks"),
        (s([s.tensor(2, 3), s.tensor(2)], -1, 2), RuntimeError, "non-negative dim"),
        (s([s.tensor(2, 3), s.tensor(3, 3)], 1, 2), RuntimeError, "same sizes"),
        (s([s.tensor(0)], 0, 2), RuntimeError, "non-empty tensor"),
        (s([], 0, 2), RuntimeError, "non-empty"),
    ],
)
def _chunk_cat(tensors: Sequence[Tensor], dim: int, num_chunks: int) -> Tensor:
    """Cut each tensor into chunks along a dimension and join those of one number.

    Args:
        tensors: alike in the dimensions before `dim`.
        num_chunks: how many chunks of equal size each tensor is cut into, filled up with zeros.

    Returns:
        A tensor with dimension `dim` of size `num_chunks`, and the elements of a chunk behind.
    """
    name = "_chunk_cat"
    if not tensors:
        raise RuntimeError(f"{name} expects a non-empty input tensor list")
    if num_chunks < 1:
        raise RuntimeError(f"{name} expects positive num_chunks, got {num_chunks}")
    shapes = [tuple(x.shape) for x in tensors]
    if dim < 0:
        if len({len(shape) for shape in shapes}) > 1:
            raise RuntimeError(f"{name} expects non-negative dim when ndims differ: {shapes}")
        dim += len(shapes[0])
    for shape in shapes:
        if not 0 <= dim < len(shape):
            raise RuntimeError(f"{name} expects dim < ndim, got dim={dim} for shape {shape}")
        if shape[:dim] != shapes[0][:dim]:
            raise RuntimeError(f"{name} expects same sizes of 0,...,dim-1 dimensions: {shapes}")
        if 0 in shape:
            raise RuntimeError(f"{name} expects non-empty tensors, got shape {shape}")
    chunks = []
    for x, shape in zip(tensors, shapes, strict=True):
        missing = -shape[dim] % num_chunks
        fill = x.new_zeros((*shape[:dim], missing, *shape[dim + 1 :]))
        filled = cat([x, fill], dim) if missing else x
        chunks.append(filled.reshape((*shape[:dim], num_chunks, -1)))
    return cat(chunks, dim + 1)


def _at_least(x: Any, ndim: int) -> Any:
    return x.reshape((1,) * (ndim - x.ndim) + tuple(x.shape)) if x.ndim < ndim else x


@composite(
    function=False,
    method=False,
    samples=lambda s: [s(s.tensor()), s(s.tensor(2)), s(s.tensor(2, 3)), s(s.tensor(1, 2, 1))],
    oracle="atleast_1d",
)
def atleast_1d_one(self: Tensor) -> Tensor:
    """View a scalar as a vector; leave other tensors as they are."""
    return _at_least(self, 1)


@composite(
    varargs=True,
    function=False,
    method=False,
    samples=lambda s: [s([s.tensor(), s.tensor(2)]), s(s.tensor(2, 3), s.tensor()), s([])],
    oracle="atleast_1d",
)
def atleast_1d_all(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Do so with each of several tensors."""
    return tuple(atleast_1d_one(x) for x in tensors)


atleast_1d = overload("atleast_1d", "atleast_1d_one", "atleast_1d_all", method=False)


@composite(
    function=False,
    method=False,
    samples=lambda s: [s(s.tensor()), s(s.tensor(2)), s(s.tensor(2, 3)), s(s.tensor(1, 2, 1))],
    oracle="atleast_2d",
)
def atleast_2d_one(self: Tensor) -> Tensor:
    """View a scalar or vector as a matrix of one row; leave other tensors as they are."""
    return _at_least(self, 2)


@composite(
    varargs=True,
    function=False,
    method=False,
    samples=lambda s: [s([s.tensor(), s.tensor(2)]), s(s.tensor(2, 3), s.tensor()), s([])],
    oracle="atleast_2d",
)
def atleast_2d_all(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Do so with each of several tensors."""
    return tuple(atleast_2d_one(x) for x in tensors)


atleast_2d = overload("atleast_2d", "atleast_2d_one", "atleast_2d_all", method=False)


@composite(
    function=False,
    method=False,
    samples=lambda s: [s(s.tensor()), s(s.tensor(2)), s(s.tensor(2, 3)), s(s.tensor(1, 2, 1))],
    oracle="atleast_3d",
)
def atleast_3d_one(self: Tensor) -> Tensor:
    """View a tensor with at least three dimensions; a matrix gets a last one of size one."""
    return _at_least(self, 2).unsqueeze(-1) if self.ndim < 3 else self


@composite(
    varargs=True,
    function=False,
    method=False,
    samples=lambda s: [s([s.tensor(), s.tensor(2)]), s(s.tensor(2, 3), s.tensor()), s([])],
    oracle="atleast_3d",
)
def atleast_3d_all(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Do so with each of several tensors."""
    return tuple(atleast_3d_one(x) for x in tensors)


atleast_3d = overload("atleast_3d", "atleast_3d_one", "atleast_3d_all", method=False)


@composite(
    out_refusal=TypeError,
    out=True,
    method=False,
    samples=lambda s: [s([s.tensor(2), s.tensor(3)]), s([s.tensor(2, 1), s.tensor(2, 2)])],
    errors=lambda s: [(s([]), RuntimeError, "non-empty")],
)
def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Join tensors along the second dimension, vectors along their only one."""
    if not tensors:
        raise RuntimeError("hstack expects a non-empty TensorList")
    parts = [_at_least(x, 1) for x in tensors]
    return cat(parts, 0 if parts[0].ndim == 1 else 1)


@composite(
    out_refusal=TypeError,
    out=True,
    method=False,
    samples=lambda s: [
        s([s.tensor(3), s.tensor(3, 2)]),
        s([s.tensor(), s.tensor()]),
        s([s.tensor(2, 3, strided=True), s.tensor(2)]),
    ],
    errors=lambda s: [
        (s([]), (RuntimeError, ValueError), "non-empty"),
        (s([s.tensor(2), s.tensor(3)]), RuntimeError, "Sizes of tensors must match"),
    ],
)
def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Join tensors along the second dimension, vectors and scalars as columns."""
    if not tensors:
        raise RuntimeError("column_stack expects a non-empty TensorList")
    columns = [x.reshape((x.numel(), 1)) if x.ndim < 2 else x for x in tensors]
    return cat(columns, 1)


@composite(
    out_refusal=TypeError,
    out=True,
    alias=("row_stack",),
    method=False,
    samples=lambda s: [s([s.tensor(2), s.tensor(2)]), s([s.tensor(1, 2), s.tensor(2, 2)])],
    errors=lambda s: [(s([]), RuntimeError, "non-empty")],
)
def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """Join tensors as rows, along the first dimension."""
    if not tensors:
        raise RuntimeError("vstack expects a non-empty TensorList")
    return cat([_at_least(x, 2) for x in tensors], 0)


@composite(
    out_refusal=TypeError,
    out=True,
    method=False,
    samples=lambda s: [s([s.tensor(2), s.tensor(2)]), s([s.tensor(2, 2, 1), s.tensor(2, 2, 2)])],
    errors=lambda s: [(s([]), RuntimeError, "non-empty")],
)
def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """Join tensors in depth, along the third dimension."""
    if not tensors:
        raise RuntimeError("dstack expects a non-empty TensorList")
    return cat([atleast_3d(x) for x in tensors], 2)


# Grids -------------------------------------------------------------------------------------------


def broadcast_shapes(*shapes: Sequence[int]) -> Ints:
    """Give the shape to which shapes broadcast together, or raise RuntimeError."""
    if shapes and all(shape == shapes[0] for shape in shapes):
        return tuple(shapes[0])
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
    varargs=True,
    method=False,
    samples=lambda s: [s([s.tensor(2, 1), s.tensor(3)]), s([s.tensor(), s.tensor(2)])],
    oracle=lambda torch, tensors: torch.broadcast_tensors(*tensors),
    errors=lambda s: [(s([s.tensor(2), s.tensor(3)]), RuntimeError, "must match")],
)
def broadcast_tensors(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Expand tensors to the shape they broadcast to."""
    shape = broadcast_shapes(*(x.shape for x in tensors))
    return tuple(x if tuple(x.shape) == shape else x.expand(shape) for x in tensors)


@composite(
    varargs=True,
    method=False,
    samples=lambda s: [
        s([s.tensor(2), s.tensor(3)], indexing="ij"),
        s([s.tensor(2), s.tensor(3), s.tensor()], indexing="xy"),
    ],
    oracle=lambda torch, tensors, indexing="ij": torch.meshgrid(*tensors, indexing=indexing),
    errors=lambda s: [
        (s([s.tensor(2, 2)]), RuntimeError, "0D or 1D"),
        (s([s.tensor(2)], indexing="ab"), RuntimeError, 'one of "xy" or "ij"'),
    ],
)
def meshgrid(tensors: Sequence[Tensor] = (), *, indexing: str | None = None) -> Sequence[Tensor]:
    """Expand coordinate vectors to a grid of all their combinations.

    Args:
        indexing: "ij" (matrix order) or "xy" (the first two dimensions exchanged); "ij" if None,
            with a warning where it makes a difference.
    """
    if not tensors:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    if indexing is None:
        if len(tensors) > 1:
            warnings.warn(
                'meshgrid: it will be required to pass indexing; without it, "ij" is taken',
                UserWarning,
                stacklevel=3,
            )
        indexing = "ij"
    if indexing not in ("ij", "xy"):
        raise RuntimeError(
            f'meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}'
        )
    devices = {x.device for x in tensors}
    if len(devices) > 1:
        raise RuntimeError(
            f"meshgrid expects all tensors to have the same device, got {sorted(map(str, devices))}"
        )
    for x in tensors:
        if x.ndim > 1:
            raise RuntimeError(f"meshgrid: Expected 0D or 1D tensor, but got shape {list(x.shape)}")
    if len({x.dtype for x in tensors}) > 1:
        dtypes = [x.dtype for x in tensors]
        raise RuntimeError(f"meshgrid expects all tensors to have the same dtype, got {dtypes}")
    exchanged = indexing == "xy" and len(tensors) > 1
    axes = [tensors[1], tensors[0], *tensors[2:]] if exchanged else list(tensors)
    shape = tuple(x.numel() for x in axes)
    grids = [
        x.reshape((-1,) + (1,) * (len(axes) - 1 - i)).expand(shape) for i, x in enumerate(axes)
    ]
    return (grids[1], grids[0], *grids[2:]) if exchanged else tuple(grids)
