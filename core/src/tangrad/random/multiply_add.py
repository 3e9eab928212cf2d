"""Products fused with a sum and rounded once, of NumPy's arrays."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]


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
