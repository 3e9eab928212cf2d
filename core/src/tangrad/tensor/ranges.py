"""Which numbers a dtype has a place for, where PyTorch refuses all others."""

from __future__ import annotations

import math
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
    if isinstance(value, (int, float, complex)) and not _fits(value, dtype):
        raise RuntimeError(
            f"{name}: value {value} cannot be converted to type {dtype} without overflow"
        )


def _fits(value: Any, dtype: Any) -> bool:
    kind = str(dtype).rpartition(".")[2]
    if isinstance(value, complex):
        if value.imag and not dtype.is_complex:
            return kind == "bool"
        parts: tuple[Any, ...] = (value.real, value.imag)
    else:
        parts = (value,)
    if kind == "bool" or kind.startswith("float8") or not getattr(dtype, "arithmetic", True):
        return True
    if dtype.is_floating_point or dtype.is_complex:
        most = finfo(dtype).max
        return not any(abs(part) > most and not _is_infinite(part) for part in parts)
    least, greatest = iinfo(dtype).min, iinfo(dtype).max
    if least == 0 and isinstance(value, int):
        least = -greatest
    return least <= parts[0] <= greatest


def _is_infinite(number: float) -> bool:
    return isinstance(number, float) and math.isinf(number)
