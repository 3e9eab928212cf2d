"""Define the ops that copy elements to other places: reversal, repetition, triangles, padding."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad import _C
from tangrad.dispatch.batching import looped
from tangrad.ops.cat import cat
from tangrad.ops.definition.define import composite, op, overload
from tangrad.ops.definition.signature import Dim, Ints1, Tensor
from tangrad.ops.views.geometry import Ints, wrap_dim
from tangrad.ops.views.slicing import slice_
from tangrad.tensor.memory import suggested_format
from tangrad.tensor.ranges import require_fit

# Order and repetition ----------------------------------------------------------------------------


flip = op(
    "flip(Tensor self, dim[] dims) -> Tensor",
    shape=lambda self: self.shape,
    memory_format=lambda self: suggested_format(self),
    reference=lambda np, self, dims: np.flip(self, dims) if self.ndim else self,
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
    samples=lambda s: [s(s.tensor(2, 3)), s(s.tensor(2, 3, 4, strided=True)), s(s.tensor(0, 2))],
    errors=lambda s: [(s(s.tensor(3)), RuntimeError, "only supported on matrices")],
)
def adjoint(self: Tensor) -> Tensor:
    """Transpose and conjugate matrices: a view."""
    if self.ndim == 0:
        return self.conj()
    if self.ndim == 1:
        raise RuntimeError(
            "tensor.adjoint() is only supported on matrices or batches of matrices. Got 1-D tensor."
        )
    return self.transpose(-2, -1).conj()


@composite(
    samples=lambda s: [s(s.tensor(2, 3))],
    errors=lambda s: [(s(s.tensor(2)), RuntimeError, "must be >= 2-d")],
)
def fliplr(self: Tensor) -> Tensor:
    """Reverse the order of the columns."""
    if self.ndim < 2:
        raise RuntimeError(f"fliplr: Input must be >= 2-d. Got shape {list(self.shape)}")
    return self.flip((1,))


@composite(
    samples=lambda s: [s(s.tensor(2, 3)), s(s.tensor(3))],
    errors=lambda s: [(s(s.tensor()), RuntimeError, "must be >= 1-d")],
)
def flipud(self: Tensor) -> Tensor:
    """Reverse the order of the rows."""
    if self.ndim < 1:
        raise RuntimeError("flipud: Input must be >= 1-d. Got a zero-dimensional tensor")
    return self.flip((0,))


@composite(
    samples=lambda s: [
        s(s.tensor(2, 3)),
        s(s.tensor(2, 3), 2),
        s(s.tensor(2, 3, 2), -1, (1, 2)),
        s(s.tensor(2, 2), 4),
    ],
    errors=lambda s: [
        (s(s.tensor(2, 2), 1, (0, 0)), RuntimeError, "rotation dims to be different"),
        (s(s.tensor(2)), RuntimeError, "total dims >= 2"),
        (s(s.tensor(2, 2), 1, (0, 2)), IndexError, "Dimension out of range"),
        (s(s.tensor(2, 2), 1, (0,)), RuntimeError, "total rotation dims"),
    ],
)
def rot90(self: Tensor, k: int = 1, dims: Ints = (0, 1)) -> Tensor:
    """Rotate a plane `k` times by a quarter turn, from dims[0] towards dims[1]."""
    if len(dims) != 2:
        raise RuntimeError(f"rot90: expected total rotation dims == 2, but got dims = {len(dims)}")
    if self.ndim < 2:
        raise RuntimeError(f"rot90: expected total dims >= 2, but got total dims = {self.ndim}")
    for d in dims:
        if not -self.ndim <= d < self.ndim:
            raise IndexError(
                f"rot90: Dimension out of range (expected to be in range of [{-self.ndim}, "
                f"{self.ndim - 1}], but got {d})"
            )
    dims = tuple(d % self.ndim for d in dims)
    if dims[0] == dims[1]:
        raise RuntimeError(f"rot90: expected rotation dims to be different, but got {list(dims)}")
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
    samples=lambda s: [
        s(s.tensor(2, 3), 1),
        s(s.tensor(2, 3), 1, None),
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
def roll(self: Tensor, shifts: Ints1, dims: Ints1 | None = ()) -> Tensor:
    """Shift the elements along dimensions; what leaves at one end enters at the other.

    Without `dims` the flattened tensor is shifted.
    """
    dims = () if dims is None else dims
    _rolled_dims(shifts, dims)
    if self.numel() == 0:
        return self.clone()
    if not dims:
        return _rolled(self.reshape((-1,)), shifts[0], 0).reshape(self.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        self = _rolled(self, shift, wrap_dim(dim, self.ndim))
    return self


def _rolled(self: Any, shift: int, dim: int) -> Any:
    size = self.shape[dim]
    cut = size - shift % size
    return cat([slice_(self, dim, cut, size, 1), slice_(self, dim, 0, cut, 1)], dim)


def _check_repeats(self: Any, repeats: Ints, name: str) -> None:
    if len(repeats) < len(self.shape):
        raise RuntimeError(
            f"{name}: Number of dimensions of repeat dims ({len(repeats)}) can not be smaller "
            f"than number of dimensions of tensor ({len(self.shape)})"
        )
    if any(n < 0 for n in repeats):
        raise RuntimeError(f"{name}: trying to create a tensor with negative repeats {repeats}")


@composite(
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
def repeat(self: Tensor, repeats: Ints) -> Tensor:
    """Copy a tensor side by side, repeats[i] times along dimension i."""
    _check_repeats(self, repeats, "repeat")
    shape = (1,) * (len(repeats) - self.ndim) + tuple(self.shape)
    paired = [n for pair in zip(repeats, shape, strict=True) for n in pair]
    singled = [n for size in shape for n in (1, size)]
    merged = tuple(n * size for n, size in zip(repeats, shape, strict=True))
    copied = self.reshape(singled).expand(paired).clone(memory_format=tangrad.contiguous_format)
    return tangrad._unsafe_view(copied, merged)


@composite(samples=lambda s: [s(s.tensor(2, 3), (2,)), s(s.tensor(2), (2, 2)), s(s.tensor(), (3,))])
def tile(self: Tensor, dims: Ints) -> Tensor:
    """Repeat a tensor as `repeat` does; missing leading repeats are one."""
    return self.repeat((1,) * (self.ndim - len(dims)) + tuple(dims))


@composite(
    shape_depends_on_data=True,
    function=False,
    method=False,
    oracle="repeat_interleave",
    samples=lambda s: [s(s.values([1, 0, 2], dtype="int64")), s(s.integers(1, 2, 0))],
    errors=lambda s: [
        (s(s.integers(1, 2, 2, 2)), RuntimeError, "1D vector"),
        (s(s.values([1, -1], dtype="int64")), RuntimeError, "can not be negative"),
        (s(s.tensor(2, dtype="float32")), NotImplementedError, "not implemented"),
    ],
)
def repeat_interleave_places(repeats: Tensor, *, output_size: int | None = None) -> Tensor:
    """List the number of each element of a vector as often as the element says."""
    if repeats.ndim != 1:
        raise RuntimeError("repeat_interleave only accept 1D vector as repeat")
    if repeats.dtype not in (tangrad.int64, tangrad.int32):
        raise NotImplementedError(f"repeat_interleave: not implemented for {repeats.dtype}")
    places = tangrad.arange(repeats.shape[0], dtype=repeats.dtype, device=repeats.device)
    return repeat_interleave_along(places, repeats, 0)


@composite(
    shape_depends_on_data=True,
    function=False,
    method=False,
    oracle="repeat_interleave",
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
def repeat_interleave_along(
    self: Tensor, repeats: Any, dim: Dim | None = None, *, output_size: int | None = None
) -> Tensor:
    """Repeat every element next to itself: all equally often, or as often as `repeats` says.

    Without `dim` the tensor is flattened first.
    """
    if dim is None:
        self, dim = self.flatten(), 0
    self = self.reshape((1,)) if self.ndim == 0 else self
    size = self.shape[dim]
    if isinstance(repeats, int):
        return _repeat_equally(self, repeats, dim)
    if not hasattr(repeats, "reshape"):
        raise TypeError(
            "repeat_interleave(): argument 'repeats' must be int or Tensor, not "
            f"{type(repeats).__name__}"
        )
    counts = repeats.reshape((-1,))
    if counts.shape[0] not in (1, size):
        raise RuntimeError(
            f"repeats must have the same size as input along dim, but got repeats.size(0) = "
            f"{counts.shape[0]} and input.size({dim}) = {size}"
        )
    if counts.shape[0] == 1 and _C.level_of(counts) is None:
        return _repeat_equally(self, int(counts[0]), dim)
    counts = counts.expand((size,))
    if _C.level_of(counts) is not None:
        return self.index_select(dim, _repeated_places(counts, output_size))
    return self.index_select(dim, _places_of(counts, output_size))


def _places_of(repeats: Any, output_size: int | None) -> Any:
    counts = repeats.to(tangrad.int64)
    if counts.numel() and bool((counts < 0).any()):
        raise RuntimeError("repeats can not be negative")
    total = int(counts.sum())
    if output_size is not None and output_size != total:
        raise RuntimeError(f"output_size {output_size} differs from sum of repeats {total}")
    # Each element's number goes up by one where its repeats begin.
    starts = counts.cumsum(0) - counts
    steps = counts.new_zeros((total + 1,)).index_add(0, starts, tangrad.ones_like(counts))
    return steps.cumsum(0).narrow(0, 0, total) - 1


def _batch_places(size: int, dims: Any, repeats: Any, output_size: int | None) -> Any:
    """List places sample by sample; the samples' sums must be equal."""
    return looped(_repeated_places, size, dims, (repeats, output_size))


_repeated_places = op(
    "_repeated_places(Tensor repeats, int? output_size=None) -> Tensor",
    shape_depends_on_data=True,
    dtype="int64",
    decompose=_places_of,
    vjp="none: integers",
    batch=_batch_places,
    function=False,
    method=False,
    doc="List the number of each element as often as it says; an op, so that it is batched.",
)


repeat_interleave = overload(
    "repeat_interleave", "repeat_interleave_along", "repeat_interleave_places"
)


def _repeat_equally(self: Any, repeats: int, dim: int) -> Any:
    if repeats < 0:
        raise RuntimeError(f"Repeats must be non-negative, got {repeats}")
    shape = tuple(self.shape)
    widened = self.unsqueeze(dim + 1).expand((*shape[: dim + 1], repeats, *shape[dim + 1 :]))
    return widened.clone(memory_format=tangrad.contiguous_format).view(
        (*shape[:dim], shape[dim] * repeats, *shape[dim + 1 :])
    )


# Triangles ---------------------------------------------------------------------------------------


def _check_matrix(name: str, x: Any) -> None:
    if len(x.shape) < 2:
        raise RuntimeError(
            f"{name}: input tensor must have at least 2 dimensions, got shape {list(x.shape)}"
        )


tril = op(
    "tril(Tensor self, int diagonal=0) -> Tensor",
    strict_out_dtype=True,
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
    strict_out_dtype=True,
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


# Padding -----------------------------------------------------------------------------------------


def pad_pairs(pad: Ints) -> list[tuple[int, int]]:
    """Return (before, after) for each padded dimension, the last dimension first."""
    return [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)]


def check_pad(self: Any, pad: Ints) -> None:
    """Refuse sizes of padding that do not come in pairs, or are of too many dimensions."""
    if len(pad) % 2:
        raise RuntimeError(f"Padding length must be divisible by 2, got {list(pad)}")
    if len(pad) // 2 > len(self.shape):
        raise RuntimeError(
            f"Padding length should be less than or equal to two times the input dimension but "
            f"got padding length {len(pad)} and input of dimension {len(self.shape)}"
        )
    if min(pad, default=0) >= 0:
        return
    for i, (before, after) in enumerate(pad_pairs(pad), 1):
        if self.shape[-i] + before + after < 0:
            raise RuntimeError(
                f"The input size {self.shape[-i]}, plus negative padding {before} and {after}, "
                "resulted in a negative output size, which is invalid. Check dimension "
                f"{len(self.shape) - i} of your input."
            )


def _check_constant_pad(self: Any, pad: Ints, value: Any) -> None:
    check_pad(self, pad)
    require_fit(value, self.dtype, "constant_pad_nd")
    if min(pad, default=0) >= 0:
        return
    for i, (before, after) in enumerate(pad_pairs(pad), 1):
        if self.shape[-i] + min(before, 0) + min(after, 0) < 0:
            raise RuntimeError(
                f"constant_pad_nd: negative padding {before} and {after} cuts more than the "
                f"{self.shape[-i]} elements of dimension {len(self.shape) - i}: the length of "
                "what remains must be non-negative"
            )


def _padded_shape(self: Any, pad: Ints) -> Ints:
    shape = list(self.shape)
    for i, (before, after) in enumerate(pad_pairs(pad), 1):
        shape[-i] = shape[-i] + before + after
    return tuple(shape)


def _pad_reference(np: Any, self: Any, pad: Ints, value: Any) -> Any:
    pairs = pad_pairs(pad)
    cut = [slice(None)] * (self.ndim - len(pairs))
    grow = [(0, 0)] * len(cut)
    for axis in range(len(cut), self.ndim):
        before, after = pairs[self.ndim - 1 - axis]
        cut.append(slice(max(0, -before), self.shape[axis] + min(0, after)))
        grow.append((max(0, before), max(0, after)))
    return np.pad(self[tuple(cut)], grow, constant_values=value) if grow else self


constant_pad_nd = op(
    "constant_pad_nd(Tensor self, int[] pad, Scalar value=0) -> Tensor",
    check=_check_constant_pad,
    shape=_padded_shape,
    memory_format=suggested_format,
    reference=_pad_reference,
    vjp={"self": lambda g, pad: constant_pad_nd(g, tuple(-n for n in pad), 0)},
    jvp=lambda self_t, pad: constant_pad_nd(self_t, pad, 0),
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
        (s(s.tensor(2), (-3, 4)), RuntimeError, "must be non-negative"),
    ],
    doc="""Surround a tensor by a value; negative amounts cut off.

    Args:
        pad: (before, after) of the last dimension, then of the one before it, and so on.
    """,
)
