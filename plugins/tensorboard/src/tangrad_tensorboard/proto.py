"""Protocol buffers, as far as event files need them: each function encodes one field.

The format is that of https://protobuf.dev/programming-guides/encoding; the numbers of fields
are those of TensorFlow's and TensorBoard's public `.proto` files. A message is the bytes of its
fields one after another.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_ONES = (1 << 64) - 1


def _varint(value: int) -> bytes:
    value &= _ONES  # negative numbers are of two's complement
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _key(number: int, wire: int) -> bytes:
    return _varint(number << 3 | wire)


def integer(number: int, value: int) -> bytes:
    """Encode an integer, bool or enumeration."""
    return _key(number, _VARINT) + _varint(int(value))


def double(number: int, value: float) -> bytes:
    """Encode a float of 64 bits."""
    return _key(number, _FIXED64) + struct.pack("<d", value)


def single(number: int, value: float) -> bytes:
    """Encode a float of 32 bits; what is too large becomes infinite."""
    try:
        packed = struct.pack("<f", value)
    except OverflowError:
        packed = struct.pack("<f", float("inf") if value > 0 else float("-inf"))
    return _key(number, _FIXED32) + packed


def data(number: int, value: bytes | str) -> bytes:
    """Encode bytes, a text or a message."""
    raw = value.encode() if isinstance(value, str) else value
    return _key(number, _LENGTH) + _varint(len(raw)) + raw


def doubles(number: int, values: Iterable[float]) -> bytes:
    """Encode floats of 64 bits, packed."""
    numbers = list(values)
    return data(number, struct.pack(f"<{len(numbers)}d", *numbers))


def integers(number: int, values: Iterable[int]) -> bytes:
    """Encode integers, packed."""
    return data(number, b"".join(map(_varint, values)))
