"""Settings of `load`: what order of bytes is meant where a file does not tell."""

from __future__ import annotations

import sys
from enum import Enum

__all__ = ["LoadEndianness", "get_default_load_endianness", "set_default_load_endianness"]


class LoadEndianness(Enum):
    """An order of bytes: this machine's, the lowest first, the highest first."""

    NATIVE = 1
    LITTLE = 2
    BIG = 3


_default: LoadEndianness | None = None


def get_default_load_endianness() -> LoadEndianness | None:
    """Return the order of bytes of files that do not tell theirs; None stands for LITTLE."""
    return _default


def set_default_load_endianness(endianness: LoadEndianness | None) -> None:
    """Set the order of bytes of files that do not tell theirs.

    Args:
        endianness: the order; None for the one that PyTorch's files have had always.

    Raises:
        TypeError: it is neither.
    """
    global _default
    if not isinstance(endianness, LoadEndianness) and endianness is not None:
        raise TypeError(
            "Invalid argument type in function set_default_load_endianness: expected "
            f"LoadEndianness or None, got {type(endianness).__name__}"
        )
    _default = endianness


def untold_byteorder() -> str:
    """Return "little" or "big", for files that do not tell."""
    if _default is LoadEndianness.NATIVE:
        return sys.byteorder
    return "big" if _default is LoadEndianness.BIG else "little"
