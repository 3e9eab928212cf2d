"""Zip archives of uncompressed members, as PyTorch's files are.

APPNOTE.TXT 6.3.10 of PKWARE is the format; names are used as keys and never as paths.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from tangrad.serialization.options import get_crc32_options
from tangrad.serialization.source import Source

END = struct.Struct("<4s4H2LH")
END64 = struct.Struct("<4sQ2H2L4Q")
LOCATOR64 = struct.Struct("<4sLQL")
CENTRAL = struct.Struct("<4s6H3L5H2L")
LOCAL = struct.Struct("<4s5H3L2H")
FULL16, FULL32 = 0xFFFF, 0xFFFFFFFF
ALIGNMENT = 64
_PIECE = 1 << 20
# What a file of the format before 1.6 begins with.
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
LEGACY_PROTOCOL = 1001


class Member(NamedTuple):
    """A member of an archive.

    Attributes:
        name: its whole name.
        offset: where its local header begins.
        size: number of bytes.
        crc: their CRC-32; 0 where none was computed, as PyTorch may be told.
    """

    name: str
    offset: int
    size: int
    crc: int


class ArchiveReader:
    """The members of a zip archive.

    Args:
        source: the bytes.

    Raises:
        SerializationError: they are no archive, or a damaged one.

    Attributes:
        members: {name without the archive's folder: member}.
        folder: the folder that all members are in.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.members: dict[str, Member] = {}
        self.folder = ""
        try:
            self._read_directory(*self._find_directory())
        except struct.error as error:
            raise source.error(f"the archive's directory is damaged: {error}") from error

    def _find_directory(self) -> tuple[int, int, int]:
        """Return the directory's offset and size, and the number of members."""
        source = self.source
        length = min(source.size, END.size + FULL16)
        tail = source.read(source.size - length, length)
        at = tail.rfind(b"PK\x05\x06")
        if at < 0 or len(tail) - at < END.size:
            raise source.error(
                "the archive has no central directory: it was cut off, or is no zip file"
            )
        _, _, _, _, count, size, offset, _ = END.unpack_from(tail, at)
        place = source.size - length + at
        if FULL16 not in (count,) and FULL32 not in (size, offset):
            return offset, size, count
        if place < LOCATOR64.size:
            return offset, size, count
        locator = source.read(place - LOCATOR64.size, LOCATOR64.size)
        sign, _, place64, _ = LOCATOR64.unpack(locator)
        if sign != b"PK\x06\x07":
            return offset, size, count
        found = END64.unpack(source.read(place64, END64.size, "directory"))
        if found[0] != b"PK\x06\x06":
            raise source.error("the archive's directory is damaged", place64)
        return found[9], found[8], found[7]

    def _read_directory(self, offset: int, size: int, count: int) -> None:
        source = self.source
        directory = source.read(offset, size, "directory")
        at = 0
        full: dict[str, Member] = {}
        for _ in range(count):
            fields = CENTRAL.unpack_from(directory, at)
            sign, method, flags = fields[0], fields[4], fields[3]
            crc, packed, length, named, extra, comment = fields[7:13]
            start = fields[16]
            if sign != b"PK\x01\x02":
                raise source.error("the archive's directory is damaged", offset + at)
            begin = at + CENTRAL.size
            raw = directory[begin : begin + named]
            further = directory[begin + named : begin + named + extra]
            at = begin + named + extra + comment
            if len(raw) != named or len(further) != extra or at > size:
                raise source.error("the archive's directory ends early", offset + at)
            try:
                name = raw.decode("utf-8")
            except UnicodeDecodeError:
                raise source.error("a member's name is no text", offset + begin) from None
            length, packed, start = _wide(further, length, packed, start)
            if method != 0 or packed != length or flags & 1:
                raise source.error(
                    "the member is compressed or encrypted; PyTorch's files are neither: unpack "
                    "the archive and pack it again without compression",
                    start,
                    name,
                )
            if name in full:
                raise source.error("two members have this name", start, name)
            full[name] = Member(name, start, length, crc)
        folders = {name.partition("/")[0] for name in full}
        self.folder = folders.pop() if len(folders) == 1 else ""
        cut = len(self.folder) + 1 if self.folder else 0
        self.members = {name[cut:]: member for name, member in full.items()}

    def data_offset(self, member: Member) -> int:
        """Return where a member's bytes begin.

        Raises:
            SerializationError: its header is damaged.
        """
        header = self.source.read(member.offset, LOCAL.size, member.name)
        fields = LOCAL.unpack(header)
        if fields[0] != b"PK\x03\x04":
            raise self.source.error("the member's header is damaged", member.offset, member.name)
        return member.offset + LOCAL.size + int(fields[9]) + int(fields[10])

    def read(self, name: str) -> bytes:
        """Return the bytes of a member, checked.

        Raises:
            SerializationError: there is none of this name, or it is damaged.
        """
        member = self.member(name)
        target = bytearray(member.size)
        self.read_into(member, memoryview(target))
        return bytes(target)

    def member(self, name: str) -> Member:
        """Return a member by its name without the folder.

        Raises:
            SerializationError: there is none.
        """
        found = self.members.get(name)
        if found is None:
            raise self.source.error("the archive has no such member", tensor=name)
        if found.size > self.source.size:
            raise self.source.error(
                f"the member claims {found.size} bytes, more than the file has", found.offset, name
            )
        return found

    def read_into(self, member: Member, target: memoryview) -> None:
        """Fill memory with a member's bytes, and check them if a checksum was written.

        Raises:
            SerializationError: they are damaged.
        """
        self.source.read_into(self.data_offset(member), target, member.crc or None, member.name)


def _wide(extra: bytes, length: int, packed: int, start: int) -> tuple[int, int, int]:
    """Take 64-bit numbers from a directory entry's extra field where 32 bits did not do."""
    if FULL32 not in (length, packed, start):
        return length, packed, start
    at = 0
    while at + 4 <= len(extra):
        kind, size = struct.unpack_from("<2H", extra, at)
        if kind == 1:
            numbers = list(struct.unpack_from(f"<{size // 8}Q", extra, at + 4))
            length = numbers.pop(0) if length == FULL32 and numbers else length
            packed = numbers.pop(0) if packed == FULL32 and numbers else packed
            start = numbers.pop(0) if start == FULL32 and numbers else start
        at += 4 + size
    return length, packed, start


class ArchiveWriter:
    """Write a zip archive whose members are aligned, so that they can be mapped.

    Args:
        write: takes bytes.
        folder: the folder of all members.
    """

    def __init__(self, write: Callable[[Any], Any], folder: str) -> None:
        # Here, since programs that save nothing need no checksum.
        from tangrad.serialization._checksum import crc32

        self._write = write
        self._checksum = crc32
        self._folder = folder
        self._at = 0
        self._directory: list[bytes] = []

    def add(self, name: str, content: Any) -> None:
        """Append a member.

        Args:
            name: its name within the folder.
            content: an object with the buffer protocol, contiguous.
        """
        view = memoryview(content).cast("B") if memoryview(content).nbytes else memoryview(b"")
        crc = self._checksum(view) if get_crc32_options() else 0
        self._head(name, view.nbytes, crc)
        self._put(view)

    def leave(self, name: str, size: int) -> None:
        """Append a member of zeros without a checksum, to be filled later.

        Args:
            name: its name within the folder.
            size: number of bytes.
        """
        self._head(name, size, 0)
        zeros = memoryview(bytes(min(size, _PIECE)))
        for begin in range(0, size, _PIECE):
            self._put(zeros[: size - begin])

    def _head(self, name: str, size: int, crc: int) -> None:
        """Write a member's header, and keep its entry of the directory."""
        whole, start = f"{self._folder}/{name}".encode(), self._at
        large = size >= FULL32
        extra = struct.pack("<2H2Q", 1, 16, size, size) if large else b""
        # The padding is an extra field of PyTorch's own kind, "FB".
        used = start + LOCAL.size + len(whole) + len(extra) + 4
        padding = -used % ALIGNMENT
        extra += struct.pack("<2s H", b"FB", padding) + b"Z" * padding
        short = FULL32 if large else size
        version = 45 if large else 20
        head = LOCAL.pack(
            b"PK\x03\x04", version, 0x800, 0, 0, 0x21, crc, short, short, len(whole), len(extra)
        )
        self._put(head + whole + extra)
        far = start >= FULL32
        wide = [size, size] if large else []
        wide += [start] if far else []
        further = struct.pack(f"<2H{len(wide)}Q", 1, 8 * len(wide), *wide) if wide else b""
        entry = CENTRAL.pack(
            b"PK\x01\x02",
            45,
            45 if wide else 20,
            0x800,
            0,
            0,
            0x21,
            crc,
            short,
            short,
            len(whole),
            len(further),
            0,
            0,
            0,
            0,
            FULL32 if far else start,
        )
        self._directory.append(entry + whole + further)

    def close(self) -> None:
        """Append the directory."""
        start, count = self._at, len(self._directory)
        directory = b"".join(self._directory)
        self._put(directory)
        if count >= FULL16 or start >= FULL32 or len(directory) >= FULL32:
            place = self._at
            self._put(
                END64.pack(b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, len(directory), start)
            )
            self._put(LOCATOR64.pack(b"PK\x06\x07", 0, place, 1))
        short = min(count, FULL16)
        end = END.pack(
            b"PK\x05\x06", 0, 0, short, short, min(len(directory), FULL32), min(start, FULL32), 0
        )
        self._put(end)

    def _put(self, content: Any) -> None:
        self._write(content)
        self._at += memoryview(content).nbytes
