"""Window functions of the top level: `hann_window` and its like, periodic unless asked."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tangrad
from tangrad import _C
from tangrad.ops.definition.define import composite
from tangrad.ops.definition.signature import Device, DType, Tensor, TensorLayout
from tangrad.ops.spectral.windows import kaiser_of
from tangrad.ops.views.geometry import dtype_name


def _window(
    name: str,
    length: int,
    periodic: bool,
    options: tuple[Any, Any, Any, bool],
    compute: Callable[[Any, int], Any],
) -> Any:
    """Make a window: `compute` is given 0, 1, ... and the last of these."""
    dtype, layout, device, requires_grad = options
    if layout not in (None, _C.strided):
        raise RuntimeError(f"{name} is not implemented for sparse types, got: {layout}")
    dtype = _C.get_default_dtype() if dtype is None else dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        raise RuntimeError(f"{name} expects floating point dtypes, got: {dtype}")
    if dtype.is_complex:
        raise NotImplementedError(f"{name} is not implemented for {dtype}; use a real dtype")
    if length < 0:
        raise RuntimeError(f"{name} requires non-negative window_length, got {length}")
    if length <= 1:
        made = tangrad.ones(length, dtype=dtype, device=device)
    else:
        points = length + 1 if periodic else length
        wide = tangrad.float64 if dtype_name(dtype) == "float64" else tangrad.float32
        places = tangrad.arange(points, dtype=wide, device=device)
        made = compute(places, points - 1).to(dtype).narrow(0, 0, length)
    return _C.requiring_grad(made, requires_grad)


def _samples(s: Any) -> list[Any]:
    return [s(6), s(7, False), s(1), s(0), s(5, dtype=s.as_dtype("float64"))]


def _errors(s: Any) -> list[Any]:
    return [
        (s(-1), RuntimeError, "non-negative window_length"),
        (s(4, dtype=s.as_dtype("int64")), RuntimeError, "floating point dtypes"),
        (s(4, dtype=s.as_dtype("complex64")), NotImplementedError, "complex64"),
    ]


def _cosines(places: Any, last: int, alpha: float, beta: float) -> Any:
    return alpha - beta * (places * (2 * math.pi / last)).cos()


@composite(method=False, samples=_samples, errors=_errors)
def hann_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Make Hann's window, a raised cosine.

    Args:
        window_length: number of points.
        periodic: leave out the last point of a window of one more, so that repeating is smooth.
        dtype: a real floating-point dtype. Default: `get_default_dtype()`.

    Raises:
        RuntimeError: the length is negative or the dtype is none of these.
    """
    options = (dtype, layout, device, requires_grad)
    return _window(
        "hann_window",
        window_length,
        periodic,
        options,
        lambda places, last: _cosines(places, last, 0.5, 0.5),
    )


@composite(
    method=False,
    samples=lambda s: [*_samples(s), s(6, True, 0.7), s(5, False, 0.6, 0.3)],
    errors=_errors,
)
def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Make the window alpha - beta cos(2 pi n / period)."""
    options = (dtype, layout, device, requires_grad)
    return _window(
        "hamming_window",
        window_length,
        periodic,
        options,
        lambda places, last: _cosines(places, last, alpha, beta),
    )


def _blackman(places: Any, last: int) -> Any:
    angle = places * (2 * math.pi / last)
    return 0.42 - 0.5 * angle.cos() + 0.08 * (2 * angle).cos()


@composite(method=False, samples=_samples, errors=_errors)
def blackman_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Make Blackman's window: 0.42 - 0.5 cos(x) + 0.08 cos(2 x)."""
    options = (dtype, layout, device, requires_grad)
    return _window("blackman_window", window_length, periodic, options, _blackman)


@composite(method=False, samples=_samples, errors=_errors)
def bartlett_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Make Bartlett's window, a triangle that is zero at both ends."""
    options = (dtype, layout, device, requires_grad)
    return _window(
        "bartlett_window",
        window_length,
        periodic,
        options,
        lambda places, last: 1 - (places * (2 / last) - 1).abs(),
    )


@composite(
    method=False,
    samples=lambda s: [*_samples(s), s(6, True, 2.5), s(5, False, -3.0)],
    errors=_errors,
)
def kaiser_window(
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Make Kaiser's window; more beta makes it narrower (see `signal.windows.kaiser`)."""
    options = (dtype, layout, device, requires_grad)
    return _window(
        "kaiser_window",
        window_length,
        periodic,
        options,
        lambda places, last: kaiser_of((places * (2 / last) - 1) * beta, beta),
    )
