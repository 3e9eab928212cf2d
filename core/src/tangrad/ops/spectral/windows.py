"""Window functions: what `torch.signal.windows` shows, and those of the top level.

Harris, "On the use of windows for harmonic analysis with the discrete Fourier transform", 1978.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import tangrad
from tangrad import _C
from tangrad.ops.definition.define import composite
from tangrad.ops.definition.signature import Device, DType, Tensor, TensorLayout
from tangrad.ops.views.geometry import dtype_name


class _Request:
    """What every window is asked for: a length and how to make the tensor."""

    def __init__(
        self, name: str, M: int, sym: bool, dtype: Any, layout: Any, device: Any, grad: bool
    ) -> None:
        if M < 0:
            raise ValueError(f"{name} requires non-negative window length, got M={M}")
        if layout not in (None, _C.strided):
            raise ValueError(f"{name} is implemented for strided tensors only, got: {layout}")
        self.dtype = _C.get_default_dtype() if dtype is None else dtype
        if dtype_name(self.dtype) not in ("float32", "float64"):
            raise ValueError(f"{name} expects float32 or float64 dtypes, got: {self.dtype}")
        self.length, self.device, self.grad = M, device, grad
        # Points of a period: a periodic window leaves out the last of a symmetric one.
        self.period = M - 1 if sym or M <= 1 else M

    def places(self, start: float, step: float) -> Any:
        """Return start, start + step, ..."""
        return tangrad.linspace(
            start,
            start + (self.length - 1) * step,
            self.length,
            dtype=self.dtype,
            device=self.device,
        )

    def ones(self) -> Any:
        """Return a window of ones."""
        return tangrad.ones(self.length, dtype=self.dtype, device=self.device)

    def finished(self, window: Any) -> Any:
        """Return the window as the caller wants it."""
        return _C.requiring_grad(window, self.grad)

    def cosines(self, coefficients: Iterable[float]) -> Any:
        """Return the sum of cosines of whole multiples of the period, of alternating sign."""
        if self.length <= 1:
            return self.finished(self.ones())
        angle = self.places(0.0, 2 * math.pi / self.period)
        terms = [(-1) ** i * a * (i * angle).cos() for i, a in enumerate(coefficients)]
        return self.finished(sum(terms[1:], terms[0]))


def _window_samples(s: Any) -> list[Any]:
    return [s(6), s(7, sym=False), s(1), s(1, sym=False), s(0), s(2, dtype=s.as_dtype("float64"))]


def _window_errors(s: Any) -> list[Any]:
    return [
        (s(-1), ValueError, "non-negative window length"),
        (s(4, dtype=s.as_dtype("float16")), ValueError, "float32 or float64"),
        (s(4, dtype=s.as_dtype("int64")), ValueError, "float32 or float64"),
    ]


@composite(
    namespace="windows",
    samples=lambda s: [
        s(6, a=[0.46, 0.23, 0.31]),
        s(5, a=(0.5,), sym=False),
        s(1, a=[0.2]),
        s(0, a=[0.2]),
    ],
    errors=lambda s: [
        (s(-1, a=[0.5]), ValueError, "non-negative window length"),
        (s(4, a=[0.5], dtype=s.as_dtype("int64")), ValueError, "float32 or float64"),
        (s(4, a=0.5), TypeError, "list/tuple"),
        (s(4, a=[]), ValueError, "cannot be empty"),
    ],
)
def windows_general_cosine(
    M: int,
    *,
    a: Any,
    sym: bool = True,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make a window of a sum of cosines of alternating sign.

    Args:
        M: number of points.
        a: coefficients of the cosines, that of the constant first.
        sym: a symmetric window; False makes one whose repetition is smooth.
        dtype: float32 or float64. Default: `get_default_dtype()`.

    Raises:
        ValueError: M is negative, `a` is empty, or the dtype is another.
        TypeError: `a` is no list.
    """
    request = _Request("general_cosine", M, sym, dtype, layout, device, requires_grad)
    if M > 1 and not isinstance(a, Iterable):
        raise TypeError(f"general_cosine: Coefficients must be a list/tuple, got {a!r}")
    if M > 1 and not a:
        raise ValueError("general_cosine: Coefficients cannot be empty")
    return request.cosines(a)


@composite(
    namespace="windows",
    samples=lambda s: [*_window_samples(s), s(5, alpha=0.7)],
    errors=_window_errors,
)
def windows_general_hamming(
    M: int,
    *,
    alpha: float = 0.54,
    sym: bool = True,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make the window alpha - (1 - alpha) cos(2 pi n / period)."""
    request = _Request("general_hamming", M, sym, dtype, layout, device, requires_grad)
    return request.cosines((alpha, 1.0 - alpha))


@composite(namespace="windows", samples=_window_samples, errors=_window_errors)
def windows_hamming(
    M: int,
    *,
    sym: bool = True,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make Hamming's window: `general_hamming` with alpha = 0.54."""
    request = _Request("hamming", M, sym, dtype, layout, device, requires_grad)
    return request.cosines((0.54, 0.46))


@composite(namespace="windows", samples=_window_samples, errors=_window_errors)
def windows_hann(
    M: int,
    *,
    sym: bool = True,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make Hann's window, a raised cosine: `general_hamming` with alpha = 0.5."""
    request = _Request("hann", M, sym, dtype, layout, device, requires_grad)
    return request.cosines((0.5, 0.5))


@composite(namespace="windows", samples=_window_samples, errors=_window_errors)
def windows_blackman(
    M: int,
    *,
    sym: bool = True,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make Blackman's window: 0.42 - 0.5 cos(x) + 0.08 cos(2 x)."""
    request = _Request("blackman", M, sym, dtype, layout, device, requires_grad)
    return request.cosines((0.42, 0.5, 0.08))


@composite(namespace="windows", samples=_window_samples, errors=_window_errors)
def windows_nuttall(
    M: int,
    *,
    sym: bool = True,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make Nuttall's minimum window of four terms (1981)."""
    request = _Request("nuttall", M, sym, dtype, layout, device, requires_grad)
    return request.cosines((0.3635819, 0.4891775, 0.1365995, 0.0106411))


@composite(namespace="windows", samples=_window_samples, errors=_window_errors)
def windows_bartlett(
    M: int,
    *,
    sym: bool = True,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make Bartlett's window, a triangle that is zero at both ends."""
    request = _Request("bartlett", M, sym, dtype, layout, device, requires_grad)
    if M <= 1:
        return request.finished(request.ones())
    return request.finished(1 - request.places(-1.0, 2 / request.period).abs())


@composite(namespace="windows", samples=_window_samples, errors=_window_errors)
def windows_cosine(
    M: int,
    *,
    sym: bool = True,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make half a wave: sin(pi (n + 1/2) / M), with M + 1 for M in a periodic window."""
    request = _Request("cosine", M, sym, dtype, layout, device, requires_grad)
    if M == 0:
        return request.finished(request.ones())
    step = math.pi / (M if sym or M == 1 else M + 1)
    return request.finished(request.places(0.5 * step, step).sin())


@composite(
    namespace="windows",
    samples=lambda s: [*_window_samples(s), s(5, tau=2.0), s(5, sym=False, center=1.0)],
    errors=lambda s: [
        *_window_errors(s),
        (s(4, tau=0.0), ValueError, "Tau must be positive"),
        (s(4, center=1.0), ValueError, "Center must be None"),
    ],
)
def windows_exponential(
    M: int,
    *,
    center: float | None = None,
    tau: float = 1.0,
    sym: bool = True,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make the window exp(-|n - center| / tau).

    Args:
        center: where the maximum is; the middle if None, as it has to be with `sym`.
        tau: how slowly it falls.
        M, sym, dtype: as for `general_cosine`.

    Raises:
        ValueError: tau is not positive, a symmetric window has a center, or as `general_cosine`.
    """
    request = _Request("exponential", M, sym, dtype, layout, device, requires_grad)
    if tau <= 0:
        raise ValueError(f"exponential: Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("exponential: Center must be None for symmetric windows")
    middle = request.period / 2 if center is None else center
    return request.finished((-request.places(-middle / tau, 1 / tau).abs()).exp())


@composite(
    namespace="windows",
    samples=lambda s: [*_window_samples(s), s(5, std=2.0)],
    errors=lambda s: [
        *_window_errors(s),
        (s(4, std=0.0), ValueError, "Standard deviation must be positive"),
    ],
)
def windows_gaussian(
    M: int,
    *,
    std: float = 1.0,
    sym: bool = True,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make the window exp(-(n - middle)^2 / (2 std^2))."""
    request = _Request("gaussian", M, sym, dtype, layout, device, requires_grad)
    if std <= 0:
        raise ValueError(f"gaussian: Standard deviation must be positive, got: {std} instead.")
    step = 1 / (std * math.sqrt(2))
    places = request.places(-request.period / 2 * step, step)
    return request.finished((-(places * places)).exp())


def _bessel_i0(x: Any, largest: float) -> Any:
    """Compute the modified Bessel function of order zero of numbers up to `largest`.

    By its power series (DLMF 10.25.2), whose terms are all positive: nothing cancels.
    """
    quarter = x * x / 4
    term = tangrad.ones_like(x)
    total = term
    # The terms for 700 are more than enough up to 713, beyond which the sum is infinite in float64.
    largest = min(largest, 700.0)
    k, size = 0, 1.0
    while k < largest / 2 or size > 1e-17:
        k += 1
        size = size * (largest / 2) ** 2 / (k * k)
        term = term * quarter / (k * k)
        total = total + term
    return total


def kaiser_of(places: Any, beta: float) -> Any:
    """Return Kaiser's window at places between -beta and beta."""
    beta = abs(beta)
    inside = (beta * beta - places * places).clamp(min=0).sqrt()
    highest = tangrad.full((), beta, dtype=places.dtype, device=places.device)
    return _bessel_i0(inside, beta) / _bessel_i0(highest, beta)


@composite(
    namespace="windows",
    samples=lambda s: [*_window_samples(s), s(5, beta=2.5), s(5, beta=0.0)],
    errors=lambda s: [*_window_errors(s), (s(4, beta=-1.0), ValueError, "beta must be")],
)
def windows_kaiser(
    M: int,
    *,
    beta: float = 12.0,
    sym: bool = True,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make Kaiser's window: I0(beta sqrt(1 - (2 n / period - 1)^2)) / I0(beta).

    Args:
        beta: 0 makes a rectangle; more makes a narrower window.
        M, sym, dtype: as for `general_cosine`.

    Raises:
        ValueError: beta is negative, or as `general_cosine`.
    """
    request = _Request("kaiser", M, sym, dtype, layout, device, requires_grad)
    if beta < 0:
        raise ValueError(f"kaiser: beta must be non-negative, got: {beta} instead.")
    if M <= 1:
        return request.finished(request.ones())
    return request.finished(kaiser_of(request.places(-beta, 2 * beta / request.period), beta))
