"""Discrete Fourier transforms along several dimensions, frequencies and shifts: `torch.fft`."""

from __future__ import annotations

import math
from typing import Any

import tangrad
from tangrad import _C
from tangrad.ops.definition.define import composite
from tangrad.ops.definition.signature import Device, DType, Ints1, Tensor, TensorLayout
from tangrad.ops.spectral.fourier import (
    _fft_c2c,
    _fft_c2r,
    _fft_r2c,
    dimension_of,
    promoted,
    require_points,
    require_real,
    resized,
    scaling_of,
)


def _dims_and_sizes(x: Any, s: Any, dim: Any) -> tuple[tuple[int, ...], list[int]]:
    """Return what to transform: dimensions, and the sizes to bring them to (-1 not yet told)."""
    if dim is not None:
        if s is not None and len(s) != len(dim):
            raise RuntimeError(
                "When given, dim and shape arguments must have the same length, "
                f"got dim={tuple(dim)} and s={tuple(s)}"
            )
        dims = tuple(dimension_of(x, d) for d in dim)
        if len(set(dims)) != len(dims):
            raise RuntimeError(f"FFT dims must be unique, got {tuple(dim)}")
    if s is None:
        dims = tuple(range(x.ndim)) if dim is None else dims
        return dims, [x.shape[d] for d in dims]
    if len(s) > x.ndim:
        raise RuntimeError(
            f"Got shape with {len(s)} values but input tensor only has {x.ndim} dimensions."
        )
    dims = tuple(range(x.ndim - len(s), x.ndim)) if dim is None else dims
    return dims, [x.shape[d] if n == -1 else n for d, n in zip(dims, s, strict=True)]


def _half_dims_and_sizes(
    name: str, x: Any, s: Any, dim: Any
) -> tuple[tuple[int, ...], list[int], int]:
    """Return dimensions, sizes of the half-complex input, and the last size of the result."""
    dims, sizes = _dims_and_sizes(x, s, dim)
    if not dims:
        raise RuntimeError(f"{name} must transform at least one axis")
    last = 2 * (x.shape[dims[-1]] - 1) if s is None or s[-1] == -1 else s[-1]
    for n in (*sizes[:-1], last):
        require_points(n)
    # Where no size was asked for, the input keeps its own.
    return dims, [*sizes[:-1], x.shape[dims[-1]] if s is None else last // 2 + 1], last


# Transforms ----------------------------------------------------------------------------


def _complex_transform_n(name: str, x: Any, s: Any, dim: Any, norm: Any, forward: bool) -> Any:
    dims, sizes = _dims_and_sizes(x, s, dim)
    for n in sizes:
        require_points(n)
    x = resized(promoted(name, x, to_complex=True), dims, sizes)
    return _fft_c2c(x, dims, scaling_of(norm, forward), forward)


def _real_dims_and_input(name: str, x: Any, s: Any, dim: Any) -> tuple[tuple[int, ...], Any]:
    require_real(name, x)
    dims, sizes = _dims_and_sizes(x, s, dim)
    if not dims:
        raise RuntimeError(f"{name} must transform at least one axis")
    for n in sizes:
        require_points(n)
    return dims, resized(promoted(name, x), dims, sizes)


def _rfftn(name: str, x: Any, s: Any, dim: Any, norm: Any) -> Any:
    dims, x = _real_dims_and_input(name, x, s, dim)
    return _fft_r2c(x, dims, scaling_of(norm, True), True)


def _irfftn(name: str, x: Any, s: Any, dim: Any, norm: Any) -> Any:
    dims, sizes, last = _half_dims_and_sizes(name, x, s, dim)
    x = resized(promoted(name, x, to_complex=True), dims, sizes)
    return _fft_c2r(x, dims, scaling_of(norm, False), last)


def _hfftn(name: str, x: Any, s: Any, dim: Any, norm: Any) -> Any:
    dims, sizes, last = _half_dims_and_sizes(name, x, s, dim)
    scaling = scaling_of(norm, True)
    x = resized(promoted(name, x, to_complex=True), dims, sizes)
    if len(dims) > 1:
        x = _fft_c2c(x, dims[:-1], scaling, True)
    return _fft_c2r(x.conj(), dims[-1:], scaling, last)


def _ihfftn(name: str, x: Any, s: Any, dim: Any, norm: Any) -> Any:
    dims, x = _real_dims_and_input(name, x, s, dim)
    scaling = scaling_of(norm, False)
    found = _fft_r2c(x, dims[-1:], scaling, True).conj()
    return found if len(dims) == 1 else _fft_c2c(found, dims[:-1], scaling, False)


def _samples_n(s: Any) -> list[Any]:
    if s.dtype in ("float16", "bfloat16"):
        return []
    return [
        s(s.tensor(4, 5)),
        s(s.tensor(2, 4, 3, strided=True), (3, 6), (-1, 0), "ortho"),
        s(s.tensor(3, 5), s=(-1, 4), norm="forward"),
        s(s.tensor(2, 3, 4), dim=(2, 0, 1)),
        s(s.tensor(0, 3, 2), dim=(1, 2)),
    ]


def _nonempty_samples_n(s: Any) -> list[Any]:
    """As `_samples_n`, without the empty batch, on which PyTorch fails inside a library."""
    return _samples_n(s)[:-1]


def _real_samples_n(s: Any) -> list[Any]:
    return [] if s.is_complex else _nonempty_samples_n(s)


def _errors_n(s: Any) -> list[Any]:
    return [
        (s(s.tensor(2, 3), norm="none"), RuntimeError, "Invalid normalization mode"),
        (s(s.tensor(2, 3), (0, 2)), RuntimeError, "Invalid number of data points"),
        (s(s.tensor(2, 3), (2,), (0, 1)), RuntimeError, "same length"),
        (s(s.tensor(2, 3), (2, 2, 2), None), RuntimeError, "Got shape with 3 values"),
        (s(s.tensor(2, 3), None, (1, -1)), RuntimeError, "must be unique"),
        (s(s.tensor(2, 3), None, (0, 2)), IndexError, "Dimension out of range"),
        (s(s.tensor(2, 3, dtype="bfloat16")), RuntimeError, "Unsupported dtype"),
    ]


def _errors_two(s: Any) -> list[Any]:
    """As `_errors_n`, for transforms whose dimensions may not be None."""
    return [error for error in _errors_n(s) if None not in error[0].args[1:]] + [
        (s(s.tensor(3)), IndexError, "Dimension out of range")
    ]


def _real_errors_n(s: Any) -> list[Any]:
    return [
        *_errors_n(s),
        (s(s.tensor(2, 3, dtype="complex64")), RuntimeError, "expects a real-valued input"),
    ]


@composite(namespace="fft", out=True, samples=_nonempty_samples_n, errors=_errors_n)
def fft_fftn(
    self: Tensor, s: Ints1 | None = None, dim: Ints1 | None = None, norm: str | None = None
) -> Tensor:
    """Compute the discrete Fourier transform along several dimensions.

    Args:
        s: number of points in each: the input is cut or filled with zeros to it; -1 and None
            keep the input's.
        dim: the dimensions. Default: the last `len(s)`, or all.
        norm: as for `fft`, n being the product of all numbers of points.

    Raises:
        RuntimeError: dimensions repeat or do not match s, or as `fft`.
    """
    return _complex_transform_n("fftn", self, s, dim, norm, True)


@composite(namespace="fft", out=True, samples=_nonempty_samples_n, errors=_errors_n)
def fft_ifftn(
    self: Tensor, s: Ints1 | None = None, dim: Ints1 | None = None, norm: str | None = None
) -> Tensor:
    """Compute the inverse of `fftn`."""
    return _complex_transform_n("ifftn", self, s, dim, norm, False)


@composite(namespace="fft", out=True, samples=_real_samples_n, errors=_real_errors_n)
def fft_rfftn(
    self: Tensor, s: Ints1 | None = None, dim: Ints1 | None = None, norm: str | None = None
) -> Tensor:
    """Compute `fftn` of real numbers: of the last dimension n // 2 + 1 numbers are kept."""
    return _rfftn("rfftn", self, s, dim, norm)


@composite(namespace="fft", out=True, samples=_nonempty_samples_n, errors=_errors_n)
def fft_irfftn(
    self: Tensor, s: Ints1 | None = None, dim: Ints1 | None = None, norm: str | None = None
) -> Tensor:
    """Compute the inverse of `rfftn`; s is the shape of the result."""
    return _irfftn("irfftn", self, s, dim, norm)


@composite(namespace="fft", out=True, samples=_nonempty_samples_n, errors=_errors_n)
def fft_hfftn(
    self: Tensor, s: Ints1 | None = None, dim: Ints1 | None = None, norm: str | None = None
) -> Tensor:
    """Compute `fftn` of a Hermitian signal given by half of its last dimension: a real result."""
    return _hfftn("hfftn", self, s, dim, norm)


@composite(namespace="fft", out=True, samples=_real_samples_n, errors=lambda s: _errors_n(s))
def fft_ihfftn(
    self: Tensor, s: Ints1 | None = None, dim: Ints1 | None = None, norm: str | None = None
) -> Tensor:
    """Compute the inverse of `hfftn`."""
    return _ihfftn("ihfftn", self, s, dim, norm)


@composite(namespace="fft", out=True, samples=_nonempty_samples_n, errors=_errors_two)
def fft_fft2(
    self: Tensor, s: Ints1 | None = None, dim: Ints1 = (-2, -1), norm: str | None = None
) -> Tensor:
    """Compute `fftn` along the last two dimensions."""
    return _complex_transform_n("fft2", self, s, dim, norm, True)


@composite(namespace="fft", out=True, samples=_nonempty_samples_n, errors=_errors_two)
def fft_ifft2(
    self: Tensor, s: Ints1 | None = None, dim: Ints1 = (-2, -1), norm: str | None = None
) -> Tensor:
    """Compute the inverse of `fft2`."""
    return _complex_transform_n("ifft2", self, s, dim, norm, False)


@composite(namespace="fft", out=True, samples=_real_samples_n, errors=_errors_two)
def fft_rfft2(
    self: Tensor, s: Ints1 | None = None, dim: Ints1 = (-2, -1), norm: str | None = None
) -> Tensor:
    """Compute `rfftn` along the last two dimensions."""
    return _rfftn("rfft2", self, s, dim, norm)


@composite(namespace="fft", out=True, samples=_nonempty_samples_n, errors=_errors_two)
def fft_irfft2(
    self: Tensor, s: Ints1 | None = None, dim: Ints1 = (-2, -1), norm: str | None = None
) -> Tensor:
    """Compute the inverse of `rfft2`."""
    return _irfftn("irfft2", self, s, dim, norm)


@composite(namespace="fft", out=True, samples=_nonempty_samples_n, errors=_errors_two)
def fft_hfft2(
    self: Tensor, s: Ints1 | None = None, dim: Ints1 = (-2, -1), norm: str | None = None
) -> Tensor:
    """Compute `hfftn` along the last two dimensions."""
    return _hfftn("hfft2", self, s, dim, norm)


@composite(namespace="fft", out=True, samples=_real_samples_n, errors=_errors_two)
def fft_ihfft2(
    self: Tensor, s: Ints1 | None = None, dim: Ints1 = (-2, -1), norm: str | None = None
) -> Tensor:
    """Compute the inverse of `hfft2`."""
    return _ihfftn("ihfft2", self, s, dim, norm)


# Frequencies -----------------------------------------------------------------------------------


def _frequency_dtype(name: str, dtype: Any) -> Any:
    dtype = _C.get_default_dtype() if dtype is None else dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        raise RuntimeError(f"{name} requires a floating point or complex dtype, got {dtype}")
    if dtype.is_complex:
        raise NotImplementedError(f"{name}: not implemented for {dtype}; use a real dtype")
    return dtype


def _reciprocal(n: int, d: float) -> float:
    return 1.0 / (n * d) if n * d else math.copysign(math.inf, d)


def _frequency_errors(s: Any) -> list[Any]:
    return [
        (s(4, dtype=s.as_dtype("int64")), RuntimeError, "floating point or complex dtype"),
        (s(-1), RuntimeError, "negative dimension"),
    ]


@composite(
    namespace="fft",
    out=True,
    samples=lambda s: [s(5), s(4, 0.5), s(1), s(0), s(4, dtype=s.as_dtype("float64"))],
    errors=_frequency_errors,
)
def fft_fftfreq(
    n: int,
    d: float = 1.0,
    *,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """List the frequencies, in cycles per unit, of the numbers that `fft` returns.

    Args:
        n: number of points.
        d: distance of the points.
    """
    dtype = _frequency_dtype("fftfreq", dtype)
    if n < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension {n}: [{n}]")
    counts = tangrad.arange(n, dtype=dtype, layout=layout, device=device)
    if n > 1:
        counts[(n + 1) // 2 :] = tangrad.arange(-(n // 2), 0, dtype=dtype, device=device)
    return _C.requiring_grad(counts.mul_(_reciprocal(n, d)), requires_grad)


def _rfftfreq_errors(s: Any) -> list[Any]:
    return _frequency_errors(s)[:1]


@composite(
    namespace="fft",
    out=True,
    samples=lambda s: [s(5), s(4, 0.5), s(1), s(0), s(4, dtype=s.as_dtype("float64"))],
    errors=_rfftfreq_errors,
)
def fft_rfftfreq(
    n: int,
    d: float = 1.0,
    *,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """List the frequencies of the numbers that `rfft` returns."""
    dtype = _frequency_dtype("rfftfreq", dtype)
    counts = tangrad.arange(max(int(n / 2) + 1, 0), dtype=dtype, layout=layout, device=device)
    return _C.requiring_grad(counts.mul_(_reciprocal(n, d)), requires_grad)


def _shift_samples(s: Any) -> list[Any]:
    return [
        s(s.tensor(5)),
        s(s.tensor(2, 3, strided=True), 1),
        s(s.tensor(4, 3), (0, -1)),
        s(s.tensor(0, 3)),
    ]


def _shift_errors(s: Any) -> list[Any]:
    return [(s(s.tensor(4), 1), IndexError, "Dimension out of range")]


def _shifted(x: Any, dim: Any, half: Any) -> Any:
    dims = tuple(range(x.ndim)) if dim is None else tuple(dimension_of(x, d) for d in dim)
    return x.roll(tuple(half(x.shape[d]) for d in dims), dims)


@composite(namespace="fft", samples=_shift_samples, errors=_shift_errors)
def fft_fftshift(self: Tensor, dim: Ints1 | None = None) -> Tensor:
    """Move the number of frequency zero to the middle of dimensions (default: all)."""
    return _shifted(self, dim, lambda size: size // 2)


@composite(namespace="fft", samples=_shift_samples, errors=_shift_errors)
def fft_ifftshift(self: Tensor, dim: Ints1 | None = None) -> Tensor:
    """Undo `fftshift`."""
    return _shifted(self, dim, lambda size: (size + 1) // 2)
