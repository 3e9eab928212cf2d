"""Discrete Fourier transforms: what `torch.fft` shows.

Three ops have kernels: complex to complex, real to complex and complex to real, each with the
other's adjoint as derivative. All others are tensor code on them. The reference is NumPy's
pocketfft (Cooley and Tukey's algorithm and, for large prime factors, Bluestein's).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tangrad
from tangrad import _C
from tangrad.ops.definition.define import composite, op
from tangrad.ops.definition.signature import Tensor
from tangrad.ops.views.geometry import dtype_name, wrap_dim

# By what a transform is divided: nothing, the root of the number of points, or that number. NumPy
# names the same by which direction is scaled.
_UNSCALED, _BY_ROOT, _BY_NUMBER = 0, 1, 2
_NUMPY_NORM = {True: ("backward", "ortho", "forward"), False: ("forward", "ortho", "backward")}
_NORM_MODES = {
    None: (_UNSCALED, _BY_NUMBER),
    "backward": (_UNSCALED, _BY_NUMBER),
    "forward": (_BY_NUMBER, _UNSCALED),
    "ortho": (_BY_ROOT, _BY_ROOT),
}
# NumPy and PyTorch's CPU transform these; a device that has more may say so with its kernels.
_TRANSFORMED = ("float32", "float64", "complex64", "complex128")


def _in_full(s: Any) -> bool:
    return s.dtype in _TRANSFORMED


def _real_part_of(g: Any) -> Any:
    return g.real if g.is_complex() else g


# Kernels ---------------------------------------------------------------------------------------


def _check_c2c(self: Any) -> None:
    if not self.dtype.is_complex:
        raise RuntimeError(f"_fft_c2c expects a complex input tensor, but got {self.dtype}")


def _c2c_reference(np: Any, self: Any, dim: Any, normalization: int, forward: bool) -> Any:
    if not dim:
        return self.copy()
    transform = np.fft.fftn if forward else np.fft.ifftn
    return transform(self, axes=tuple(dim), norm=_NUMPY_NORM[forward][normalization])


_fft_c2c = op(
    "_fft_c2c(Tensor self, dim[] dim, int normalization, bool forward) -> Tensor",
    dtypes="complex",
    check=_check_c2c,
    shape=lambda self: self.shape,
    reference=_c2c_reference,
    vjp={
        "self": lambda g, dim, normalization, forward: _fft_c2c(g, dim, normalization, not forward)
    },
    linear=("self",),
    batch="dims",
    method=False,
    node="fft_C2C",
    samples=lambda s: (
        [
            s(s.tensor(4, 5), (1,), 0, True),
            s(s.tensor(3, 4, 2, strided=True), (-2, 0), 1, False),
            s(s.tensor(2, 3), (1,), 2, True),
            s(s.tensor(2, 3), (), 2, True),
            s(s.tensor(), (), 0, True),
        ]
        if s.is_complex
        else []
    ),
    errors=lambda s: [(s(s.tensor(4), (0,), 0, True), RuntimeError, "complex input")],
    doc="""Transform complex numbers along dimensions.

    Args:
        normalization: 0 nothing, 1 divides by the root of the number of points, 2 by the number.
        forward: whether the exponent's sign is negative.
    """,
)


def _check_r2c(self: Any) -> None:
    if self.dtype.is_complex:
        raise RuntimeError(f"_fft_r2c only supports floating-point dtypes, but found: {self.dtype}")


def _r2c_shape(self: Any, dim: Any, onesided: bool) -> Any:
    shape = list(self.shape)
    if onesided:
        shape[dim[-1]] = shape[dim[-1]] // 2 + 1
    return shape


def _r2c_reference(np: Any, self: Any, dim: Any, normalization: int, onesided: bool) -> Any:
    transform = np.fft.rfftn if onesided else np.fft.fftn
    return transform(self, axes=tuple(dim), norm=_NUMPY_NORM[True][normalization])


def _r2c_vjp(g: Any, self_meta: Any, dim: Any, normalization: int, onesided: bool) -> Any:
    """Transform back: the numbers that a one-sided result leaves out do not depend on the input."""
    if onesided:
        missing = self_meta.shape[dim[-1]] - g.shape[dim[-1]]
        g = resized(g, (dim[-1],), (g.shape[dim[-1]] + missing,))
    return _fft_c2c(g, dim, normalization, False).real


_fft_r2c = op(
    "_fft_r2c(Tensor self, dim[] dim, int normalization, bool onesided) -> Tensor",
    dtypes="floating",
    check=_check_r2c,
    shape=_r2c_shape,
    dtype=lambda self: self.dtype.to_complex(),
    reference=_r2c_reference,
    vjp={"self": _r2c_vjp},
    linear=("self",),
    batch="dims",
    method=False,
    node="fft_R2C",
    samples=lambda s: (
        [
            s(s.tensor(4, 5), (1,), 0, True),
            s(s.tensor(4, 6), (1,), 0, True),
            s(s.tensor(3, 4, 2, strided=True), (1, 0), 1, True),
            s(s.tensor(3, 4), (0, 1), 2, False),
        ]
        if _in_full(s) and not s.is_complex
        else []
    ),
    errors=lambda s: [
        (s(s.tensor(4, dtype="complex64"), (0,), 0, True), RuntimeError, "floating-point dtypes")
    ],
    doc="""Transform real numbers along dimensions.

    Args:
        normalization: as for `_fft_c2c`.
        onesided: leave out what follows by symmetry: of the last of the dimensions, half.
    """,
)


def _check_c2r(self: Any) -> None:
    if not self.dtype.is_complex:
        raise RuntimeError(f"_fft_c2r expects a complex input tensor, but got {self.dtype}")


def _c2r_shape(self: Any, dim: Any, last_dim_size: int) -> Any:
    shape = list(self.shape)
    shape[dim[-1]] = last_dim_size
    return shape


def _c2r_reference(np: Any, self: Any, dim: Any, normalization: int, last_dim_size: int) -> Any:
    sizes = (*[self.shape[d] for d in dim[:-1]], last_dim_size)
    return np.fft.irfftn(self, sizes, tuple(dim), norm=_NUMPY_NORM[False][normalization])


def _c2r_vjp(g: Any, dim: Any, normalization: int) -> Any:
    """Transform back; every number but the first and a middle one stands for two."""
    last = dim[-1]
    found = _fft_r2c(_real_part_of(g), dim, normalization, True)
    size = found.shape[last]
    twice = g.shape[last] - size
    weights = [2.0 if 1 <= i <= twice else 1.0 for i in range(size)]
    shape = [1] * found.ndim
    shape[last] = size
    return found * tangrad.tensor(weights, dtype=g.dtype, device=g.device).reshape(shape)


_fft_c2r = op(
    "_fft_c2r(Tensor self, dim[] dim, int normalization, int last_dim_size) -> Tensor",
    dtypes="complex",
    check=_check_c2r,
    shape=_c2r_shape,
    dtype=lambda self: self.dtype.to_real(),
    reference=_c2r_reference,
    vjp={"self": _c2r_vjp},
    linear=("self",),
    batch="dims",
    method=False,
    node="fft_C2R",
    samples=lambda s: (
        [
            s(s.tensor(4, 3), (1,), 0, 4),
            s(s.tensor(4, 3), (1,), 2, 5),
            s(s.tensor(3, 4, 2, strided=True), (-1, 1), 1, 6),
            s(s.tensor(1, 2), (0,), 0, 1),
        ]
        if s.is_complex
        else []
    ),
    errors=lambda s: [(s(s.tensor(4), (0,), 0, 6), RuntimeError, "complex input")],
    doc="""Transform the half of Hermitian numbers that `_fft_r2c` keeps into real numbers.

    Args:
        normalization: as for `_fft_c2c`.
        last_dim_size: size of the result in the last of the dimensions.
    """,
)


# Arguments -------------------------------------------------------------------------------------


def scaling_of(norm: str | None, forward: bool) -> int:
    if norm not in _NORM_MODES:
        raise RuntimeError(
            f'Invalid normalization mode: "{norm}"; choose "backward", "ortho" or "forward"'
        )
    return _NORM_MODES[norm][0 if forward else 1]


def supported(name: str, x: Any) -> Any:
    """Return x, unless its dtype has no transform."""
    if dtype_name(x.dtype) not in _TRANSFORMED:
        raise RuntimeError(f"{name}: Unsupported dtype {x.dtype}; convert to float32 first")
    return x


def promoted(name: str, x: Any, to_complex: bool = False) -> Any:
    """Make integers floating-point numbers, and real ones complex where that is wanted."""
    if not (x.dtype.is_floating_point or x.dtype.is_complex):
        x = x.to(_C.get_default_dtype())
    x = supported(name, x)
    return x.to(x.dtype.to_complex()) if to_complex and not x.dtype.is_complex else x


def require_real(name: str, x: Any) -> None:
    if x.dtype.is_complex:
        raise RuntimeError(f"{name} expects a real-valued input tensor, but got {x.dtype}")


def dimension_of(x: Any, dim: int) -> int:
    if x.ndim == 0:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    return wrap_dim(dim, x.ndim)


def require_points(n: int) -> None:
    if n < 1:
        raise RuntimeError(f"Invalid number of data points ({n}) specified")


def resized(x: Any, dims: Sequence[int], sizes: Sequence[int]) -> Any:
    """Cut dimensions at their ends or fill them up with zeros; -1 leaves one as it is."""
    pads = [0] * (2 * x.ndim)
    for dim, size in zip(dims, sizes, strict=True):
        if size == -1 or size == x.shape[dim]:
            continue
        if size < x.shape[dim]:
            x = x.narrow(dim, 0, size)
        else:
            pads[2 * (x.ndim - 1 - dim) + 1] = size - x.shape[dim]
    return tangrad.constant_pad_nd(x, tuple(pads), 0) if any(pads) else x


# One dimension ---------------------------------------------------------------------------------


def _complex_transform(name: str, x: Any, n: Any, dim: int, norm: Any, forward: bool) -> Any:
    x = promoted(name, x)
    at = dimension_of(x, dim)
    n = x.shape[at] if n is None else n
    require_points(n)
    scaling = scaling_of(norm, forward)
    x = resized(x, (at,), (n,))
    if x.dtype.is_complex:
        return _fft_c2c(x, (at,), scaling, forward)
    found = _fft_r2c(x, (at,), scaling, False)
    return found if forward else found.conj()


def _real_transform(name: str, x: Any, n: Any, dim: int, norm: Any, forward: bool) -> Any:
    require_real(name, x)
    x = promoted(name, x)
    at = dimension_of(x, dim)
    n = x.shape[at] if n is None else n
    require_points(n)
    found = _fft_r2c(resized(x, (at,), (n,)), (at,), scaling_of(norm, forward), True)
    return found if forward else found.conj()


def _transform_to_real(name: str, x: Any, n: Any, dim: int, norm: Any, forward: bool) -> Any:
    x = promoted(name, x, to_complex=True)
    at = dimension_of(x, dim)
    if n is None:
        n = 2 * (x.shape[at] - 1)
        require_points(n)
    else:
        require_points(n)
        x = resized(x, (at,), (n // 2 + 1,))
    return _fft_c2r(x.conj() if forward else x, (at,), scaling_of(norm, forward), n)


def _samples(s: Any) -> list[Any]:
    if s.dtype in ("float16", "bfloat16"):
        return []
    return [
        s(s.tensor(4, 5)),
        s(s.tensor(6, 3), 4, 0, "ortho"),
        s(s.tensor(2, 3, 4, strided=True), 7, -2, "forward"),
        s(s.tensor(3), norm="backward"),
        s(s.tensor(0, 3), n=2, dim=0),
        s(s.tensor(7)),
    ]


def _real_samples(s: Any) -> list[Any]:
    return [] if s.is_complex else _samples(s)


def _errors(s: Any) -> list[Any]:
    return [
        (s(s.tensor(4), norm="none"), RuntimeError, "Invalid normalization mode"),
        (s(s.tensor(4), 0), RuntimeError, "Invalid number of data points"),
        (s(s.tensor(4), None, 1), IndexError, "Dimension out of range"),
        (s(s.tensor()), IndexError, "no dimensions"),
        (s(s.tensor(4, dtype="float16")), RuntimeError, "Unsupported dtype"),
    ]


def _real_errors(s: Any) -> list[Any]:
    of_complex = s(s.tensor(4, dtype="complex64"))
    return [*_errors(s), (of_complex, RuntimeError, "expects a real-valued input")]


@composite(namespace="fft", out=True, samples=_samples, errors=_errors)
def fft_fft(self: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """Compute the discrete Fourier transform along a dimension.

    Args:
        n: number of points: the input is cut or filled with zeros to it. Default: all.
        dim: the dimension.
        norm: "backward" (default: no scaling), "forward" (by 1/n) or "ortho" (by 1/sqrt(n)).

    Raises:
        RuntimeError: n is not positive, norm is unknown, or the dtype is a half.
    """
    return _complex_transform("fft", self, n, dim, norm, True)


@composite(namespace="fft", out=True, samples=_samples, errors=_errors)
def fft_ifft(self: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """Compute the inverse of `fft`: "backward" scales by 1/n, "forward" not at all."""
    return _complex_transform("ifft", self, n, dim, norm, False)


@composite(namespace="fft", out=True, samples=_real_samples, errors=_real_errors)
def fft_rfft(self: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """Compute the first n // 2 + 1 numbers of `fft` of real numbers; symmetry gives the others."""
    return _real_transform("rfft", self, n, dim, norm, True)


@composite(namespace="fft", out=True, samples=_samples, errors=_errors)
def fft_irfft(self: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """Compute the inverse of `rfft`; n is the size of the result, by default 2 (size - 1)."""
    return _transform_to_real("irfft", self, n, dim, norm, False)


@composite(namespace="fft", out=True, samples=_samples, errors=_errors)
def fft_hfft(self: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """Compute `fft` of a Hermitian signal of which the first half is given: a real result."""
    return _transform_to_real("hfft", self, n, dim, norm, True)


@composite(
    namespace="fft",
    strict_out_dtype=True,
    out=True,
    samples=_real_samples,
    errors=_real_errors,
)
def fft_ihfft(self: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """Compute the inverse of `hfft`: the first half of a Hermitian signal."""
    return _real_transform("ihfft", self, n, dim, norm, False)
