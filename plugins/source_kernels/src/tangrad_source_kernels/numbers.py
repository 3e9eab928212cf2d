"""Python numbers as numbers of a kernel, and back to the types that they are computed in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tangrad.plugin.render import BITS, KINDS, REAL, Dialect, suffix

Field = tuple[str, str, int]
# Which number of a call, its kind (a letter of KINDS) and its bits.
Place = tuple[int, str, int]


def fields(name: str, dtype: str) -> list[Field]:
    """Return the fields by which a number of a dtype is passed."""
    kind = KINDS[dtype]
    if kind == "c":
        return [("float64", f"{name}_re", 0), ("float64", f"{name}_im", 0)]
    if kind == "f":
        return [("float64", name, 0)]
    return [("uint64" if kind == "u" else "int64", name, 0)]


def form(dtype: str) -> tuple[str, int]:
    """Return the kind, a letter of KINDS, and the bits by which `encode` converts a number."""
    return KINDS[dtype], BITS[dtype]


def text(name: str, dtype: str, dialect: Dialect) -> str:
    """Return the number in its dtype, as kernels read it."""
    kind = dialect.type(dtype)
    if KINDS[dtype] == "c":
        part = dialect.type(REAL[dtype])
        return f"tg_make_{suffix(dtype)}(({part})g.{name}_re, ({part})g.{name}_im)"
    return f"(({kind})g.{name})"


def encode(value: Any, dtype: str) -> Sequence[Any]:
    """Return a number's fields: converted as an element would be."""
    if value is None:
        value = 0
    kind = KINDS[dtype]
    if kind == "c":
        number = complex(value)
        return number.real, number.imag
    if isinstance(value, complex):
        value = value.real
    if kind == "f":
        return (_as_float(value),)
    if kind == "b":
        return (int(bool(value)),)
    if isinstance(value, float):
        value = _truncated(value)
    number = int(value) & (1 << BITS[dtype]) - 1
    if kind == "i" and number >> BITS[dtype] - 1:
        number -= 1 << BITS[dtype]
    return (number,)


def _as_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _truncated(value: float) -> int:
    return int(value) if value - value == 0 else -(1 << 63)


def signed(value: int) -> int:
    """Return a number of 64 bits as one with a sign."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value
