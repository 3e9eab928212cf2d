"""What the standard defines otherwise than PyTorch, on tensors of one dtype."""

from __future__ import annotations

import math
from typing import Any

import tangrad


def floor_divide(x: Any, y: Any) -> Any:
    """Divide and round down; an infinite operand gives the floor of the quotient, never NaN."""
    quotient = tangrad.floor_divide(x, y)
    if not x.dtype.is_floating_point:
        return quotient
    finite = tangrad.isfinite(x) & tangrad.isfinite(y)
    return tangrad.where(finite, quotient, tangrad.floor(x / y))


def remainder(x: Any, y: Any) -> Any:
    """Return the remainder with the sign of the divisor, also where it is zero."""
    found = tangrad.remainder(x, y)
    if not x.dtype.is_floating_point:
        return found
    return tangrad.where(found == 0, tangrad.copysign(found, y), found)


def sign(x: Any) -> Any:
    """Return the sign; NaN of what is NaN, and a complex number over its magnitude."""
    if x.dtype.is_complex:
        return tangrad.sgn(x)
    found = tangrad.sign(x)
    return tangrad.where(tangrad.isnan(x), x, found) if x.dtype.is_floating_point else found


def whole(rounded: Any) -> Any:
    """Return a rounding function for which integers are round already, and parts are rounded."""

    def function(x: Any) -> Any:
        if x.dtype.is_complex:
            return tangrad.complex(rounded(x.real), rounded(x.imag))
        return rounded(x) if x.dtype.is_floating_point else x.clone()

    return function


def expm1(x: Any) -> Any:
    """Return exp(x) - 1, exact for small x.

    For a + bi the real part is expm1(a)cos b - 2 sin²(b/2), so nothing cancels; at infinity the
    limits of the standard's table, those of C99's cexp.
    """
    if not x.dtype.is_complex:
        return tangrad.expm1(x)
    a, b = x.real, x.imag
    half = tangrad.sin(b / 2)
    real = tangrad.expm1(a) * tangrad.cos(b) - 2 * half * half
    imag = tangrad.exp(a) * tangrad.sin(b)
    on_axis, endless = b == 0, ~tangrad.isfinite(b)
    real = tangrad.where(on_axis, tangrad.expm1(a) + 0.0, real)  # so that -0 gives 0
    imag = tangrad.where(on_axis, b, imag)
    low, high = endless & (a == -math.inf), endless & (a == math.inf)
    real = tangrad.where(low, -1.0, tangrad.where(high, math.inf, real))
    imag = tangrad.where(low, 0.0, tangrad.where(high, math.nan, imag))
    return tangrad.complex(real.to(a.dtype), imag.to(a.dtype))


def tanh(x: Any) -> Any:
    """Return the hyperbolic tangent.

    At a real part of infinity C99 gives the zero imaginary part the sign of sin 2b, and the
    standard that of b.
    """
    found = tangrad.tanh(x)
    if not x.dtype.is_complex:
        return found
    edge = tangrad.isinf(x.real) & tangrad.isfinite(x.imag)
    zero = tangrad.copysign(tangrad.zeros_like(x.imag), x.imag)
    return tangrad.complex(found.real, tangrad.where(edge, zero, found.imag))


def log1p(x: Any) -> Any:
    """Return log(1 + x), exact for small x.

    For a + bi the real part is log1p(a(2 + a) + b²)/2 near zero and log|1 + x| elsewhere.
    """
    if not x.dtype.is_complex:
        return tangrad.log1p(x)
    a, b = x.real, x.imag
    near = (tangrad.abs(a) < 0.5) & (tangrad.abs(b) < 0.5)
    small_a, small_b = tangrad.where(near, a, 0.0), tangrad.where(near, b, 0.0)
    close = tangrad.log1p(small_a * (2 + small_a) + small_b * small_b) / 2
    real = tangrad.where(near, close, tangrad.log(tangrad.hypot(1 + a, b)))
    return tangrad.complex(real.to(a.dtype), tangrad.atan2(b, 1 + a))


def matmul(x: Any, y: Any) -> Any:
    """Multiply matrices.

    Raises:
        ValueError: If an operand has no dimensions.
    """
    if x.ndim == 0 or y.ndim == 0:
        raise ValueError("matmul: operands have at least one dimension")
    return tangrad.matmul(x, y)
