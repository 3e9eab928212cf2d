"""The dtypes of quantized values: integers that mean nothing without a scale and a zero point.

Quantized tensors carry those beside their integers. As element types they are foreign to
arithmetic: nothing is promoted to them, and `int_repr()` shows the integers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tangrad
from tangrad.plugin import register_dtype


class Range(NamedTuple):
    """The integers of a quantized dtype.

    Attributes:
        low: the lowest.
        high: the highest.
        storage: the name of the dtype that `int_repr` shows.
        bits: how many bits a value takes in memory.
    """

    low: int
    high: int
    storage: str
    bits: int


RANGES = {
    "qint8": Range(-128, 127, "int8", 8),
    "quint8": Range(0, 255, "uint8", 8),
    "qint32": Range(-(2**31), 2**31 - 1, "int32", 32),
    "quint4x2": Range(0, 15, "uint8", 4),
    "quint2x4": Range(0, 3, "uint8", 2),
}
# What observers may aim at besides.
_PLAIN = {
    "int8": (-128, 127),
    "uint8": (0, 255),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "float8_e5m2": (0, 15),
    "float8_e4m3fn": (0, 15),
}


def register() -> None:
    """Register the dtypes; called once, by the hook."""
    for name, span in RANGES.items():
        width = max(span.bits, 8) // 8
        register_dtype(
            name,
            width,
            "foreign",
            {"int8": "b", "uint8": "B", "int32": "i"}[span.storage],
            compute=span.storage,
            codec=_codec(span.storage, width),
        )


def _codec(storage: str, width: int) -> tuple[Any, Any]:
    """Return how raw integers are seen as the stored ones, and back: bit by bit."""
    raw = f"u{width}"
    return (lambda values: values.view(storage)), (lambda values: values.astype(storage).view(raw))


def name_of(dtype: Any) -> str:
    """Return the name of a dtype without what stands before it."""
    name: str = dtype.name
    return name


def span(dtype: Any, *, op: str) -> Range:
    """Return the integers of a quantized dtype.

    Raises:
        RuntimeError: the dtype is not a quantized one.
    """
    found = RANGES.get(getattr(dtype, "name", ""))
    if found is None:
        raise RuntimeError(
            f"{op}: dtype must be one of {', '.join(f'tangrad.{name}' for name in RANGES)}, "
            f"not {dtype}"
        )
    return found


def limits(dtype: Any) -> tuple[int, int] | None:
    """Return the lowest and highest integer that an observer of this dtype uses, or None."""
    name = getattr(dtype, "name", "")
    if name in RANGES:
        return RANGES[name].low, RANGES[name].high
    return _PLAIN.get(name)


def storage(dtype: Any) -> Any:
    """Return the dtype of the integers that a quantized dtype shows."""
    return getattr(tangrad, RANGES[dtype.name].storage)
