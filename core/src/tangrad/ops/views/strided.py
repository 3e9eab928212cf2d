"""Define the views that reinterpret storage: any stride, and complex numbers as pairs."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad import _C
from tangrad.dispatch.tangents import is_paired
from tangrad.ops.conversion import _neg_view
from tangrad.ops.definition.define import composite, overload, view
from tangrad.ops.definition.signature import Tensor
from tangrad.ops.views import movement  # noqa: F401  view_size, which view overloads
from tangrad.ops.views.geometry import Geometry, Ints, dtype_name, front, numel_of

# Storage -----------------------------------------------------------------------------------------


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


def _written_into(g: Any, extent: int, geometry: Any, source: Any, low: int) -> Any:
    """Write a cotangent of which no two elements share a place, and read what the input owns."""
    total = g.new_zeros((extent,))
    total.as_strided(*geometry).copy_(g)
    read = total.as_strided(source[0], source[1], source[2] - low)
    if read.is_contiguous() and read.numel() == extent:
        return tangrad._unsafe_view(total, source[0])
    return read.clone(memory_format=tangrad.contiguous_format)


def _as_strided_vjp(
    g: Any, self_meta: Any, size: Ints, stride: Ints, storage_offset: int | None
) -> Any:
    """Add the cotangent into the storage, then read it through the geometry of the input.

    An input whose elements overlap owns each storage element several times: the cotangent of
    that element is shared equally among its owners, as the input's tangents would be.
    """
    source = tuple(self_meta.shape), tuple(self_meta.strides), self_meta.offset
    offset = source[2] if storage_offset is None else storage_offset
    low = min(offset, source[2])
    extent = max(_reach(size, stride, offset), _reach(*source)) - low
    derived = tangrad.is_grad_enabled() or _C.get_intercept() is not None
    if not derived and not _may_overlap(size, stride) and not _may_overlap(*source[:2]):
        return _written_into(g, extent, (size, stride, offset - low), source, low)
    places = tangrad.arange(extent, device=g.device)
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
    """View all samples at once; a sample's offset counts from its own place in the batch.

    What one sample sees must lie in that sample: the rest of the storage is other samples.
    """
    x = front(self, dims[0])
    lead, *own = x.stride()
    start = x.storage_offset()
    offset = start if storage_offset is None else storage_offset
    reach, limit = _reach(size, stride, offset), _reach(tuple(x.shape)[1:], tuple(own), start)
    if numel_of(size) and (offset < start or reach > limit):
        raise RuntimeError(
            f"as_strided: size {list(size)}, stride {list(stride)}, storage_offset {offset} would "
            f"reach elements {offset} to {reach - 1} of the storage, where the sample has "
            f"{start} to {limit - 1}; this is not supported inside of vmap"
        )
    return x.as_strided((n, *size), (lead, *stride), storage_offset), 0


as_strided = view(
    "as_strided(Tensor self, int[] size, int[] stride, int? storage_offset=None) -> Tensor",
    c_implementation="as_strided",
    geometry=_as_strided_geometry,
    vjp={"self": _as_strided_vjp},
    batch=_as_strided_batch,
    inplace=True,
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


# Bits as another dtype ---------------------------------------------------------------------------


def _wider(self: Any, dtype: Any, times: int) -> Geometry:
    """Merge `times` neighbours of the last dimension into one element each."""
    where = f"to view {dtype_name(self.dtype)} as {dtype_name(dtype)} (different element sizes)"
    if self.shape[-1] % times:
        raise RuntimeError(
            f"self.size(-1) must be divisible by {times} {where}, but got {self.shape[-1]}"
        )
    if self.offset % times:
        raise RuntimeError(
            f"self.storage_offset() must be divisible by {times} {where}, but got {self.offset}"
        )
    for dim, step in enumerate(self.stride[:-1]):
        if step % times:
            raise RuntimeError(
                f"self.stride({dim}) must be divisible by {times} {where}, but got {step}"
            )
    shape = (*self.shape[:-1], self.shape[-1] // times)
    return shape, (*(step // times for step in self.stride[:-1]), 1), self.offset // times


def _view_dtype_geometry(self: Any, dtype: Any) -> Geometry:
    if dtype is None:
        raise TypeError("view(): argument 'dtype' must be a dtype, not None")
    old, new = self.dtype.itemsize, dtype.itemsize
    if self.flags:
        raise RuntimeError(
            "view is not supported for conjugate view tensors, or negative ones, when converting "
            "to a dtype; call resolve_conj() or resolve_neg() first"
        )
    if old == new:
        return self.shape, self.stride, self.offset
    where = f"to view {dtype_name(self.dtype)} as {dtype_name(dtype)} (different element sizes)"
    if not self.shape:
        raise RuntimeError(f"self.dim() cannot be 0 {where}")
    if self.stride[-1] != 1:
        raise RuntimeError(f"self.stride(-1) must be 1 {where}, but got {self.stride[-1]}")
    if old < new:
        return _wider(self, dtype, new // old)
    times = old // new
    shape = (*self.shape[:-1], self.shape[-1] * times)
    return shape, (*(step * times for step in self.stride[:-1]), 1), self.offset * times


def _view_dtype_batch(size: int, dims: Any, self: Any, dtype: Any) -> Any:
    x = front(self, dims[0])
    if x.ndim == 1 and x.dtype.itemsize != dtype.itemsize:
        raise RuntimeError(
            f"self.dim() cannot be 0 to view {dtype_name(x.dtype)} as {dtype_name(dtype)} "
            "(different element sizes)"
        )
    if x.stride()[-1] != 1:
        x = x.clone(memory_format=tangrad.contiguous_format)
    return view_dtype(x, dtype), 0


view_dtype = view(
    "view_dtype(Tensor self, dtype? dtype) -> Tensor",
    geometry=_view_dtype_geometry,
    dtype=lambda self, dtype: dtype,
    vjp="none: the bits of a number are no differentiable function of it",
    batch=_view_dtype_batch,
    function=False,
    method=False,
    oracle="view",
    samples=lambda s: [
        s(s.tensor(2, 8), s.as_dtype("uint8")),
        s(s.tensor(2, 8), s.as_dtype("int32")),
        s(s.tensor(2, 0), s.as_dtype("int64")),
        s(s.tensor(2, 3, strided=True), s.as_dtype(s.dtype)),
    ],
    errors=lambda s: [
        (s(s.tensor(dtype="float32"), s.as_dtype("int16")), RuntimeError, "cannot be 0"),
        (s(s.tensor(2, 3, dtype="float32"), s.as_dtype("int64")), RuntimeError, "divisible by 2"),
        (
            s(s.tensor(4, 2, dtype="float32", strided=True), s.as_dtype("int64")),
            RuntimeError,
            "stride\\(-1\\) must be 1",
        ),
    ],
    doc="""See the bits of a tensor as elements of another dtype.

    Where the element sizes differ, the last dimension grows or shrinks by their ratio.

    Raises:
        RuntimeError: the last dimension is not contiguous, or no multiple of the new element.
    """,
)

view_ = overload(
    "view",
    "view_size",
    "view_dtype",
    function=False,
    samples=lambda s: [s(s.tensor(2, 8), (4, 4)), s(s.tensor(2, 8), s.as_dtype("uint8"))],
    doc="See a tensor in another shape, or its bits as another dtype, without copying.",
)


# Complex as pairs --------------------------------------------------------------------------------

_PARTS = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}
_PAIRED = {part: pair for pair, part in _PARTS.items()}
_CONJUGATE = 4  # of the flags that a geometry sees


def _as_real_geometry(self: Any) -> Geometry:
    if self.flags & _CONJUGATE:
        raise RuntimeError(
            "view_as_real doesn't work on unresolved conjugated tensors: memory holds the numbers "
            "before their conjugation; call resolve_conj() first, which makes a copy"
        )
    return (*self.shape, 2), (*(2 * step for step in self.stride), 1), 2 * self.offset


def _part_of(self: Any) -> str:
    if not self.dtype.is_complex:
        raise RuntimeError(
            f"view_as_real is only supported for complex tensors, got dtype {self.dtype}"
        )
    return _PARTS[dtype_name(self.dtype)]


view_as_real = view(
    "view_as_real(Tensor self) -> Tensor",
    c_implementation="view_as_real",
    dtypes="complex",
    geometry=_as_real_geometry,
    dtype=_part_of,
    vjp={"self": lambda g: view_as_complex(g.contiguous())},
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
        raise RuntimeError(f"Tensor must have a last dimension of size 2, got shape {list(shape)}")
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
    # A dtype of the library is registered when it is first asked for.
    return getattr(tangrad, _PAIRED[name]).name


def _view_as_complex_batch(size: int, dims: Any, self: Any) -> Any:
    x = front(self, dims[0])
    # A copy is not a view: what is written to it is lost.
    return view_as_complex(x if is_paired(x) else x.contiguous()), 0


view_as_complex = view(
    "view_as_complex(Tensor self) -> Tensor",
    dtypes="floating",
    geometry=_as_complex_geometry,
    dtype=_pair_of,
    vjp={"self": lambda g: view_as_real(g.resolve_conj())},
    batch=_view_as_complex_batch,
    samples=lambda s: [s(s.tensor(3, 2, dtype="float32")), s(s.tensor(2, dtype="float64"))],
    errors=lambda s: [
        (s(s.tensor(3, 3, dtype="float32")), RuntimeError, "last dimension of size 2"),
        (s(s.integers(0, 3, 3, 2)), RuntimeError, "only supported for half, float and double"),
    ],
    doc="See real pairs as a complex tensor: the last dimension holds (real, imaginary).",
)


@composite(
    method=False,
    samples=lambda s: [
        s(s.tensor(2, 3, dtype="complex64")),
        s(s.tensor(2, 3)),
        s(s.tensor(dtype="complex128")),
    ],
)
def real(self: Tensor) -> Tensor:
    """View the real part of a tensor; a real tensor is returned as it is."""
    if not self.dtype.is_complex:
        return self
    plain = self.conj() if self.is_conj() else self
    return view_as_real(plain).select(-1, 0)


@composite(
    dtypes="complex",
    method=False,
    samples=lambda s: [s(s.tensor(2, 3, dtype="complex64")), s(s.tensor(dtype="complex128"))],
    errors=lambda s: [(s(s.tensor(2, dtype="float32")), RuntimeError, "imag is not implemented")],
)
def imag(self: Tensor) -> Tensor:
    """View the imaginary part of a complex tensor."""
    if not self.dtype.is_complex:
        raise RuntimeError(
            f"imag is not implemented for tensors with non-complex dtypes, got {self.dtype}"
        )
    if self.is_conj():
        return _neg_view(view_as_real(self.conj()).select(-1, 1))
    return view_as_real(self).select(-1, 1)
