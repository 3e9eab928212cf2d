"""Which numbers a dtype has a place for, where PyTorch refuses all others."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from tangrad.tensor.finfo import finfo, iinfo


def require_fit(value: Any, dtype: Any, name: str) -> None:
    """Check that a number can become an element of a dtype.

    A fraction is cut off, a real number becomes complex, infinity and NaN are floating-point
    numbers, and, as in PyTorch, an unsigned dtype takes a negative integer modulo its range.

    Args:
        value: a number; anything else passes.
        dtype: of the tensor that it becomes an element of.
        name: the op, for the message.

    Raises:
        RuntimeError: the number lies outside the range of the dtype.
    """
    if isinstance(value, (int, float)) and 0 <= value <= 1:
        return  # every dtype has a place for these
    if isinstance(value, (int, float, complex)) and not _fits(value, dtype):
        raise RuntimeError(
            f"{name}: value {value} cannot be converted to type {dtype} without overflow"
        )


def _fits(value: Any, dtype: Any) -> bool:
    kind = dtype.name
    if isinstance(value, complex):
        if value.imag and not dtype.is_complex:
            return kind == "bool"
        parts: tuple[Any, ...] = (value.real, value.imag)
    else:
        parts = (value,)
    if kind == "bool" or kind.startswith("float8") or not getattr(dtype, "arithmetic", True):
        return True
    least, greatest = _range_of(dtype)
    if dtype.is_floating_point or dtype.is_complex:
        return not any(abs(part) > greatest and not _is_infinite(part) for part in parts)
    if least == 0 and isinstance(value, int):
        least = -greatest
    return least <= parts[0] <= greatest


@cache
def _range_of(dtype: Any) -> tuple[float, float]:
    limits: Any = finfo(dtype) if dtype.is_floating_point or dtype.is_complex else iinfo(dtype)
    return limits.min, limits.max


def divided(title: str, left: Any, right: Any, name: str, dtype: Any) -> Any:
    """Divide integers, of which one is a number that the dtype has no place for, as numbers.

    Args:
        title: the op, for the message.
        left: a tensor, or the number.
        right: the number, or a tensor.
        name: "floor_divide", "remainder", "fmod" or a form of "div_rounded".
        dtype: of the result, whose bits are those of the exact result.

    Raises:
        RuntimeError: a divisor is zero.
    """
    from tangrad.tensor.construct import tensor

    beside = right if isinstance(left, int) else left
    elements = beside.reshape(-1).tolist()
    pairs = [(left, e) if beside is right else (e, right) for e in elements]
    if any(b == 0 for _, b in pairs):
        raise RuntimeError(f"{title}: ZeroDivisionError")
    bits, signed = 8 * dtype.itemsize, iinfo(dtype).min < 0
    found = [_QUOTIENTS[name](a, b) % (1 << bits) for a, b in pairs]
    values = [v - (1 << bits) if signed and v >> (bits - 1) else v for v in found]
    return tensor(values, dtype=dtype, device=beside.device).reshape(beside.shape)


def _truncated(a: int, b: int) -> int:
    return a // b if (a < 0) == (b < 0) else -(-a // b)


_QUOTIENTS = {
    "floor_divide": lambda a, b: a // b,
    "div_rounded_floor": lambda a, b: a // b,
    "div_rounded_trunc": _truncated,
    "remainder": lambda a, b: a % b,
    "fmod": lambda a, b: a - b * _truncated(a, b),
}


def _is_infinite(number: float) -> bool:
    return isinstance(number, float) and math.isinf(number)
