"""Blocks of normal numbers, computed with the roundings of PyTorch's CPU kernels.

In float64 logarithm, cosine and sine are the C library's. In float32 they are polynomials for
vector registers: the approximations that Moshier published with Cephes (1984-1992) and Pommier
arranged for SIMD (2007). Their coefficients are part of the numbers that a seed stands for, and
so is which products are fused with a sum and rounded once.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

_HALF = 8
_ROOT_OF_HALF = 0.70710678118654752
_LOG = (
    7.0376836292e-2,
    -1.1514610310e-1,
    1.1676998740e-1,
    -1.2420140846e-1,
    1.4249322787e-1,
    -1.6668057665e-1,
    2.0000714765e-1,
    -2.4999993993e-1,
    3.3333331174e-1,
)
# log(2) and pi / 4 in parts whose products with small integers are exact.
_LOG_OF_TWO = (0.693359375, -2.12194440e-4)
_QUARTER_TURN = (0.78515625, 2.4187564849853515625e-4, 3.77489497744594108e-8)
_COSINE = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
_SINE = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)


def multiply_add(x: Any, factor: Any, addend: Any) -> Array:
    """Return ``x * factor + addend`` rounded once, in the dtype of the array x."""
    import numpy as np

    if x.dtype == np.float32:
        wide = np.float64(1)
        exact: Array = (x * wide) * (factor * wide) + addend * wide
        return exact.astype(np.float32)
    if float(addend) in (0.0, math.inf, -math.inf) or float(factor) in (0.0, 1.0):
        with np.errstate(over="ignore"):  # what is out of range is infinite, as PyTorch's
            return np.asarray(x * factor + addend)
    return _multiply_add_wide(x, float(factor), float(addend))


def _multiply_add_wide(x: Array, factor: float, addend: float) -> Array:
    """Round ``x * factor + addend`` once in float64.

    The product is split in two, and its lower part joins the sum rounded to odd, which a second
    rounding cannot tell from the exact value: Dekker, "A floating-point technique for extending
    the available precision" (1971); Boldo and Melquiond, "Emulation of FMA and correctly rounded
    sums: proved algorithms using rounding to odd" (2008).
    """
    import numpy as np

    with np.errstate(all="ignore"):
        product = x * factor
        x_high, x_low = _halves(x)
        factor_high, factor_low = _halves(np.float64(factor))
        lost = x_high * factor_high - product + x_high * factor_low + x_low * factor_high
        lost += x_low * factor_low
        inner, inner_lost = _two_sum(lost, np.float64(addend))
        outer, outer_lost = _two_sum(product, inner)
        tail, rest = _two_sum(inner_lost, outer_lost)
        odd = (tail.view(np.uint64) & np.uint64(1)).astype(bool)
        tail = np.where((rest == 0) | odd, tail, np.nextafter(tail, np.copysign(np.inf, rest)))
        result = outer + tail
        # Where a part would overflow or lose bits, by exact fractions.
        size, largest = np.abs(product), np.maximum(np.abs(x), abs(factor))
        edge = (size != 0) & ~((size > 2.0**-900) & (size < 2.0**900) & (largest < 2.0**900))
    for i in np.flatnonzero(edge & np.isfinite(product)):
        result[i] = float(Fraction(float(x[i])) * Fraction(factor) + Fraction(addend))
    return np.where(np.isfinite(product), result, product + addend)


def _halves(x: Any) -> tuple[Any, Any]:
    """Split float64 numbers into two of 26 bits each."""
    scaled = x * 134217729.0
    high = scaled - (scaled - x)
    return high, x - high


def _two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """Return a + b as it is rounded, and what the rounding lost (Knuth)."""
    total = a + b
    second = total - a
    return total, (a - (total - second)) + (b - second)


def blocks(uniform: Array, mean: float, std: float) -> Array:
    """Make normal numbers of uniform ones, 16 at a time.

    Of a block the first eight give the radius and the others the angle; the first eight results
    are the cosines.
    """
    import numpy as np

    rows = uniform.reshape(-1, 2 * _HALF)
    first, second = 1 - rows[:, :_HALF], rows[:, _HALF:]
    make = _wide if uniform.dtype == np.float64 else _narrow
    radius, cosine, sine = make(np.ascontiguousarray(first), np.ascontiguousarray(second))
    made = np.concatenate([radius * cosine, radius * sine], axis=1).reshape(-1)
    scale, shift = made.dtype.type(std), made.dtype.type(mean)
    return multiply_add(made, scale, shift)


def _wide(first: Array, second: Array) -> tuple[Array, Array, Array]:
    import numpy as np

    def each(function: Any, x: Array) -> Array:
        return np.array([function(v) for v in x.reshape(-1).tolist()], np.float64).reshape(x.shape)

    angle = 2.0 * math.pi * second
    return np.sqrt(-2.0 * each(math.log, first)), each(math.cos, angle), each(math.sin, angle)


def _narrow(first: Array, second: Array) -> tuple[Array, Array, Array]:
    import numpy as np

    cosine, sine = _turn(np.float32(2 * math.pi) * second)
    return np.sqrt(np.float32(-2) * _logarithm(first)), cosine, sine


def _polynomial(x: Array, coefficients: tuple[float, ...]) -> Array:
    import numpy as np

    value = np.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        value = multiply_add(value, x, np.float32(c))
    return value


def _logarithm(x: Array) -> Array:
    """Take log(m) + e log(2) of x = m 2**e, m between the root of a half and that of two."""
    import numpy as np

    mantissa, exponent = np.frexp(x)
    low = mantissa < np.float32(_ROOT_OF_HALF)
    m = np.where(low, mantissa + mantissa - np.float32(1), mantissa - np.float32(1))
    e = np.where(low, exponent - 1, exponent).astype(np.float32)
    square = m * m
    tail = multiply_add(_polynomial(m, _LOG) * m, square, e * np.float32(_LOG_OF_TWO[1]))
    tail = multiply_add(square, np.float32(-0.5), tail)
    return multiply_add(e, np.float32(_LOG_OF_TWO[0]), m + tail)


def _turn(angle: Array) -> tuple[Array, Array]:
    """Return the cosine and the sine of angles that are not negative."""
    import numpy as np

    octant = (angle * np.float32(4 / math.pi)).astype(np.int32)
    octant = (octant + 1) & ~1
    turns, x = octant.astype(np.float32), angle
    for part in _QUARTER_TURN:
        x = multiply_add(turns, np.float32(-part), x)
    square = x * x
    even = multiply_add(_polynomial(square, _COSINE) * square, square, -(square * np.float32(0.5)))
    even = even + np.float32(1)
    odd = multiply_add(_polynomial(square, _SINE) * square, x, x)
    swapped = (octant & 2) != 0
    cosine, sine = np.where(swapped, odd, even), np.where(swapped, even, odd)
    return (
        np.where(((octant + 2) & 4) != 0, -cosine, cosine),
        np.where((octant & 4) != 0, -sine, sine),
    )
