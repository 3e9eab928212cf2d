"""Settings of `save` and `load`: the order of bytes, checksums, mapped files, left out data."""

from __future__ import annotations

import _thread
import sys
from enum import Enum
from typing import Any

__all__ = [
    "LoadEndianness",
    "get_crc32_options",
    "get_default_load_endianness",
    "get_default_mmap_options",
    "set_crc32_options",
    "set_default_load_endianness",
    "set_default_mmap_options",
    "skip_data",
]

# MAP_SHARED and MAP_PRIVATE, which every system with `mmap` numbers so; the module loads late.
_SHARED, _PRIVATE = 1, 2


class LoadEndianness(Enum):
    """An order of bytes: this machine's, the lowest first, the highest first."""

    NATIVE = 1
    LITTLE = 2
    BIG = 3


_default: LoadEndianness | None = None
_computes_crc32 = True
_mmap_flags = _PRIVATE
_of_thread = _thread._local()


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


def get_crc32_options() -> bool:
    """Return whether `save` computes a checksum of every member of its files."""
    return _computes_crc32


def set_crc32_options(compute_crc32: bool) -> None:
    """Say whether `save` computes a checksum of every member of its files.

    Args:
        compute_crc32: False writes 0 instead: such a file is loaded without its content being
            checked, and programs that unpack archives take it for damaged.
    """
    global _computes_crc32
    _computes_crc32 = compute_crc32


def get_default_mmap_options() -> int:
    """Return how `load(mmap=True)` maps files: `mmap.MAP_PRIVATE` or `mmap.MAP_SHARED`."""
    return _mmap_flags


class set_default_mmap_options:
    """Set how `load(mmap=True)` maps files; used as a context manager, until the block ends.

    Args:
        flags: `mmap.MAP_PRIVATE`, where writes to tensors do not reach the file, or
            `mmap.MAP_SHARED`, where they do.

    Raises:
        ValueError: it is neither.
        RuntimeError: the system has no such flags.
    """

    def __init__(self, flags: int) -> None:
        global _mmap_flags
        if sys.platform == "win32":
            raise RuntimeError("Changing the default mmap options is not supported on Windows")
        if flags not in (_PRIVATE, _SHARED):
            raise ValueError(
                "Invalid argument in function set_default_mmap_options, expected "
                f"mmap.MAP_PRIVATE or mmap.MAP_SHARED, but got {flags}"
            )
        self._previous, _mmap_flags = _mmap_flags, flags

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        global _mmap_flags
        _mmap_flags = self._previous


def maps_shared() -> bool:
    """Return whether writes to mapped tensors reach the file."""
    return _mmap_flags == _SHARED


class skip_data:
    """Context manager: this thread's `save` and `load` leave the content of storages out.

    A file saved within has the place of every storage, filled with zeros and without a checksum,
    to be written later. A load within gives tensors whose memory is not initialised.

    Args:
        materialize_fake_tensors: has no effect: there are no fake tensors.
    """

    def __init__(self, materialize_fake_tensors: bool = False) -> None:
        self.materialize_fake_tensors = materialize_fake_tensors

    def __enter__(self) -> None:
        self._previous = skips_data()
        _of_thread.skips = True

    def __exit__(self, *exception: Any) -> None:
        _of_thread.skips = self._previous


def skips_data() -> bool:
    """Return whether this thread leaves the content of storages out."""
    return getattr(_of_thread, "skips", False)
