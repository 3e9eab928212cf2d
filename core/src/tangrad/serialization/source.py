"""Random access to the bytes of a file, by its name or as an object."""

from __future__ import annotations

import mmap
import os
from typing import Any

from tangrad.serialization.errors import SerializationError
from tangrad.serialization.leftovers import remove_leftovers
from tangrad.serialization.options import maps_shared

_CHUNK = 1 << 20


class Source:
    """Bytes that can be read at any place.

    Args:
        file: a path, or an object with `read`, `seek` and `tell`, whose position when given is
            the first byte.

    Raises:
        OSError: the path cannot be opened.
        AttributeError: the object lacks a method.

    Attributes:
        name: the path, or None.
        size: the number of bytes.
    """

    def __init__(self, file: Any) -> None:
        self.name: str | None = None
        self._object: Any = None
        self._descriptor = -1
        self._start = 0
        if isinstance(file, (str, os.PathLike)):
            self.name = os.fspath(file)
            self._descriptor = os.open(self.name, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
            self.size = os.fstat(self._descriptor).st_size
            remove_leftovers(os.path.dirname(os.path.realpath(self.name)))
            return
        for method in ("read", "seek", "tell"):
            if not hasattr(file, method):
                raise AttributeError(
                    f"'{type(file).__name__}' object has no attribute '{method}'. You can only "
                    "torch.load from a file that is seekable. Please pre-load the data into a "
                    "buffer like io.BytesIO and try to load from it instead."
                )
        self._object, self._start = file, file.tell()
        self.size = file.seek(0, os.SEEK_END) - self._start
        file.seek(self._start)

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def error(
        self, reason: str, offset: int | None = None, tensor: str | None = None
    ) -> SerializationError:
        """Return an error that names this file."""
        return SerializationError(reason, file=self.name, offset=offset, tensor=tensor)

    def read(self, offset: int, count: int, what: str | None = None) -> bytes:
        """Return `count` bytes.

        Raises:
            SerializationError: there are not that many.
        """
        self._check(offset, count, what)
        if self._descriptor >= 0:
            pieces = []
            while count:
                piece = os.pread(self._descriptor, min(count, 1 << 30), offset)
                if not piece:
                    raise self.error("the file became shorter while it was read", offset, what)
                pieces.append(piece)
                offset, count = offset + len(piece), count - len(piece)
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._object.seek(self._start + offset)
        content = self._object.read(count)
        if len(content) != count:
            raise self.error("the file ended early", offset, what)
        return bytes(content)

    def read_into(self, offset: int, target: memoryview, crc: int | None, what: str) -> None:
        """Fill memory from the file, and check its CRC-32 on the way.

        Args:
            offset: first byte.
            target: writable bytes, as many as are read.
            crc: the checksum; None if there is none.
            what: the name of what is read, for the message.

        Raises:
            SerializationError: the file ends before, or the checksum is another.
        """
        from tangrad.serialization._checksum import crc32

        self._check(offset, target.nbytes, what)
        found = 0
        # In pieces that the checksum still finds in the cache.
        for begin in range(0, target.nbytes, _CHUNK):
            part = target[begin : begin + _CHUNK]
            self._fill(offset + begin, part, what)
            if crc is not None:
                found = crc32(part, found)
        if crc is not None and found != crc:
            raise self.error(
                f"the content is damaged: its CRC-32 is {found:#010x}, the file says {crc:#010x}; "
                "take another copy of the file",
                offset,
                what,
            )

    def _fill(self, offset: int, part: memoryview, what: str) -> None:
        done = 0
        if self._object is not None:
            self._object.seek(self._start + offset)
        while done < part.nbytes:
            rest = part[done:]
            if self._descriptor >= 0:
                count = os.preadv(self._descriptor, [rest], offset + done)
            elif hasattr(self._object, "readinto"):
                count = self._object.readinto(rest) or 0
            else:
                content = self._object.read(rest.nbytes)
                count = len(content)
                rest[:count] = content
            if not count:
                raise self.error("the file ended early", offset + done, what)
            done += count

    def _check(self, offset: int, count: int, what: str | None) -> None:
        if offset < 0 or count < 0 or offset + count > self.size:
            raise self.error(
                f"{count} bytes are wanted, but the file has only {self.size} bytes", offset, what
            )

    def map(self) -> mmap.mmap:
        """Return the file mapped to memory.

        What is written there reaches the file only where `set_default_mmap_options` says so.

        Raises:
            SerializationError: the source is no path.
            OSError: it is to be written, and may not be.
        """
        if self.name is None:
            raise self.error("mmap=True needs the path of a file, not a file object")
        if maps_shared():
            writable = os.open(self.name, os.O_RDWR | os.O_CLOEXEC)
            try:
                return mmap.mmap(writable, 0, flags=mmap.MAP_SHARED)
            finally:
                os.close(writable)
        return mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_COPY)
