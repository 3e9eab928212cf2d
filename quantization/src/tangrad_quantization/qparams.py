"""Scales and zero points: choosing them for a range of numbers, and refusing impossible ones."""

from __future__ import annotations

import math
import struct
import warnings
from typing import Any

import tangrad

# Below this a scale has no inverse that kernels could use; PyTorch's and FBGEMM's limit.
SMALLEST_SCALE = 6.0999998822808266e-05


def check_scale(op: str, scale: float) -> float:
    """Return the scale, rounded to float32 as kernels use it.

    Raises:
        ValueError: it is not a positive, finite number.
    """
    value = float(scale)
    if not (value > 0 and math.isfinite(value)):
        raise ValueError(
            f"{op}: scale must be positive and finite, got {value}; calibrate with data that are "
            f"finite and not all zero, or give a scale"
        )
    return value


def check_zero_point(op: str, zero_point: int, low: int, high: int, dtype: Any) -> int:
    """Return the zero point as an int.

    Raises:
        RuntimeError: it is not one of the integers of the dtype.
    """
    value = int(zero_point) if math.isfinite(zero_point) else None
    if value is None or value != zero_point or not low <= value <= high:
        raise RuntimeError(
            f"{op}: zero_point must be one of the integers of {dtype}, {low} to {high}, got "
            f"{zero_point}; observers give one, or clamp it"
        )
    return value


def has_range(low: Any, high: Any) -> bool:
    """Return whether an observer saw something, and warn if it did not.

    Raises:
        AssertionError: a lower end lies above its upper end.
    """
    nothing = low.numel() == 0 or high.numel() == 0
    if not nothing and (low.dim() == 0 or high.dim() == 0):
        nothing = bool(low == math.inf) and bool(high == -math.inf)
    if nothing:
        warnings.warn(
            "must run observer before calling calculate_qparams. Returning default values.",
            stacklevel=3,
        )
        return False
    if bool((low > high).any()):
        raise AssertionError(f"min {low} should be less than max {high}")
    return True


def choose(
    low: float, high: float, qmin: int, qmax: int, *, symmetric: bool = False
) -> tuple[float, int]:
    """Choose a scale and a zero point for the numbers between two, as FBGEMM does.

    Zero is always one of the values; of the two zero points that the ends suggest, the one that
    loses less by rounding is taken.

    Args:
        low: the smallest number.
        high: the largest.
        qmin: the lowest integer.
        qmax: the highest.
        symmetric: take the middle of the integers for zero.

    Returns:
        The scale (not yet rounded to float32) and the zero point.

    Raises:
        RuntimeError: a number is not finite, or the smallest is above the largest.
    """
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(
            f"quantize: the data range from {low} to {high}, and what is not finite has no "
            f"integer; remove NaN and infinity first"
        )
    if low > high:
        raise RuntimeError(f"quantize: min {low} should be less than max {high}")
    centred = symmetric and low < 0 < high
    if centred:
        below, above = -((qmax - qmin) // 2 + 1), (qmax - qmin) // 2
        step = max(abs(low / below), abs(high / above))
        low, high = _single(step * below), _single(step * above)
    low, high = min(low, 0.0), max(high, 0.0)
    scale, low, high = _usable((high - low) / (qmax - qmin), low, high, qmax - qmin)
    return scale, _zero_point(low, high, scale, qmin, qmax, centred)


def _usable(scale: float, low: float, high: float, steps: int) -> tuple[float, float, float]:
    """Widen a range whose steps are too small for float32's inverse."""
    single = _single(scale)
    if single == 0.0 or _single(1.0 / single) == math.inf:
        scale = 0.1
    if scale >= SMALLEST_SCALE:
        return scale, low, high
    if low == 0.0:
        return SMALLEST_SCALE, low, SMALLEST_SCALE * steps
    if high == 0.0:
        return SMALLEST_SCALE, -SMALLEST_SCALE * steps, high
    wider = SMALLEST_SCALE / _single(scale)
    return SMALLEST_SCALE, low * wider, high * wider


def _zero_point(low: float, high: float, scale: float, qmin: int, qmax: int, centred: bool) -> int:
    if centred:
        return round((qmin + qmax) / 2)
    from_low, from_high = qmin - low / scale, qmax - high / scale
    error_low = abs(qmin) - abs(low / scale)
    error_high = abs(qmax) - abs(high / scale)
    start = from_low if error_low < error_high else from_high
    return min(max(round(start), qmin), qmax)


def _single(value: float) -> float:
    """Round to float32."""
    import numpy as np

    with np.errstate(over="ignore"):
        return float(np.float32(value))


def of_tensor(values: Any, qmin: int, qmax: int, *, symmetric: bool = False) -> tuple[float, int]:
    """Choose a scale and a zero point for the elements of a tensor; see `choose`."""
    if values.numel() == 0:
        return choose(0.0, 0.0, qmin, qmax, symmetric=symmetric)
    low, high = tangrad.aminmax(values)
    return choose(low.item(), high.item(), qmin, qmax, symmetric=symmetric)


def single(value: float) -> float:
    """Round a number to float32; what is too large becomes infinite."""
    try:
        (rounded,) = _FLOAT.unpack(_FLOAT.pack(value))
    except OverflowError:
        return math.copysign(math.inf, value)
    return float(rounded)


def inverse_of(scale: float) -> float:
    """Return 1 over a scale as float32 computes it.

    Dividing in float64 and rounding once more gives the same (Figueroa, 1995: 53 >= 2 * 24 + 2).
    """
    step = single(scale)
    return single(1.0 / step) if step else math.inf


_FLOAT = struct.Struct("f")
