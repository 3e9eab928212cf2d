"""PNG as its specification has it: every colour type and depth, 16 bits too, Adam7, no gamma.

W3C, "Portable Network Graphics (PNG) Specification (Third Edition)", 2025. Pillow turns colours of
16 bits into 8, which is why it does not read these files here.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from tangrad_vision import _kernels

SIGNATURE = b"\x89PNG\r\n\x1a\n"
GRAY, RGB, PALETTE, GRAY_ALPHA, RGB_ALPHA = 0, 2, 3, 4, 6
_CHANNELS = {GRAY: 1, RGB: 3, PALETTE: 1, GRAY_ALPHA: 2, RGB_ALPHA: 4}
_DEPTHS = {
    GRAY: (1, 2, 4, 8, 16),
    RGB: (8, 16),
    PALETTE: (1, 2, 4, 8),
    GRAY_ALPHA: (8, 16),
    RGB_ALPHA: (8, 16),
}
# (first row, first column, step of rows, step of columns) of each pass of Adam7.
_PASSES = (
    (0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2),
    (1, 0, 2, 1),
)  # fmt: skip
# zlib makes at most 1032 bytes of one.
_DENSEST = 1032
# Weights of red and green in 32768ths, of 0.2989 and 0.587; blue is what remains.
_RED, _GREEN = 29890 * 32768 // 100000, 58700 * 32768 // 100000


class Broken(ValueError):
    """A file is no PNG, or ends too early; the text names the place."""


@dataclass
class Picture:
    """A PNG's pixels as they are stored.

    Attributes:
        pixels: (height, width, channels) of uint8 or uint16; indices where there is a palette.
        depth, colour: bits and colour type of the file.
        palette: (entries, 3), or None. alpha: (entries,) of the palette, or None.
        exif: the block of metadata, or None.
    """

    pixels: Any
    depth: int
    colour: int
    palette: Any = None
    alpha: Any = None
    exif: bytes | None = None


@dataclass
class _Header:
    width: int
    height: int
    depth: int
    colour: int
    interlaced: bool
    parts: list[Any] = field(default_factory=list)
    others: dict[bytes, bytes] = field(default_factory=dict)

    @property
    def pixel_bits(self) -> int:
        return self.depth * _CHANNELS[self.colour]


def decode(data: Any, most_pixels: int | None) -> Picture:
    """Return the pixels of a PNG.

    Args:
        data: the file's bytes.
        most_pixels: pixels that a file may have; None: any number.

    Raises:
        Broken: it is no PNG, a part of it is missing or wrong, or it has more pixels.
    """
    if len(data) < 8:
        raise Broken("Content is too small for png!")
    if bytes(data[:8]) != SIGNATURE:
        raise Broken("Content is not png!")
    header = _read(memoryview(data))
    pixels = header.width * header.height
    if most_pixels is not None and pixels > most_pixels:
        raise Broken(
            f"the PNG says that it has {header.width} by {header.height} pixels, more than the "
            f"{most_pixels} that PIL.Image.MAX_IMAGE_PIXELS allows: a decompression bomb?"
        )
    return Picture(
        _pixels(header, len(data)),
        header.depth,
        header.colour,
        *_palette(header),
        header.others.get(b"eXIf"),
    )


def _read(view: memoryview) -> _Header:
    """Return the header, with the compressed parts and the blocks that are used."""
    at, header = 8, None
    while True:
        if at + 12 > len(view):
            if header is not None and header.parts:
                return header  # the pixels may be whole; `_pixels` sees
            _ends(len(view))
        length = int.from_bytes(view[at : at + 4], "big")
        kind, body = bytes(view[at + 4 : at + 8]), view[at + 8 : at + 8 + length]
        if at + 12 + length > len(view):
            if header is not None and header.parts and kind != b"IDAT":
                return header
            _ends(len(view))
        if kind[0] & 0x20 == 0 or kind == b"eXIf":  # critical, or used
            said = int.from_bytes(view[at + 8 + length : at + 12 + length], "big")
            if zlib.crc32(body, zlib.crc32(kind)) != said:
                raise Broken(f"block {kind!r} at byte {at} of the PNG has a wrong checksum")
        if header is None:
            if kind != b"IHDR" or length != 13:
                raise Broken("Could read image metadata from content: IHDR is not at byte 8")
            header = _header(body)
        elif kind == b"IDAT":
            header.parts.append(body)
        elif kind == b"IEND":
            return header
        elif kind in (b"PLTE", b"tRNS", b"eXIf"):
            header.others.setdefault(kind, bytes(body))
        elif kind[0] & 0x20 == 0:
            raise Broken(f"block {kind!r} at byte {at} of the PNG is critical and not known")
        at += 12 + length


def _ends(size: int) -> NoReturn:
    raise Broken(
        "Out of bound read in decode_png. Probably, the input image is corrupted: it ends at "
        f"byte {size}"
    )


def _header(body: memoryview) -> _Header:
    width, height = (int.from_bytes(body[i : i + 4], "big") for i in (0, 4))
    depth, colour, compression, filters, interlace = body[8:13]
    if depth not in _DEPTHS.get(colour, ()):
        raise Broken(f"bit depth {depth} of colour type {colour} at byte 24 of the PNG is none")
    if not 0 < width < 1 << 31 or not 0 < height < 1 << 31:
        raise Broken(f"the PNG says at byte 16 that it has {width} by {height} pixels")
    if compression or filters or interlace > 1:
        raise Broken("the PNG names a compression, filter or interlacing at byte 26 that is none")
    return _Header(width, height, depth, colour, bool(interlace))


def _pixels(header: _Header, size: int) -> Any:
    """Return (height, width, channels) of uint8 or uint16."""
    shape = header.height, header.width
    passes = [(0, 0, 1, 1)]
    if header.interlaced:
        passes = [p for p in _PASSES if p[0] < shape[0] and p[1] < shape[1]]
    sizes = [(-(-(shape[0] - y) // dy), -(-(shape[1] - x) // dx)) for y, x, dy, dx in passes]
    rows = [(columns * header.pixel_bits + 7) // 8 for _, columns in sizes]
    expected = sum(count * (row + 1) for (count, _), row in zip(sizes, rows, strict=True))
    packed = b"".join(header.parts) if len(header.parts) != 1 else header.parts[0]
    if len(packed) * _DENSEST < expected:
        _ends(size)  # and no memory is asked for
    machine = zlib.decompressobj()
    try:
        raw = bytearray(machine.decompress(packed, expected))
    except zlib.error as error:
        raise Broken(f"the PNG's pixels are not compressed as they should be: {error}") from None
    if len(raw) < expected:
        _ends(size)
    if not header.interlaced:
        return _rows(raw, header, *shape, rows[0])
    channels = _CHANNELS[header.colour]
    out = np.empty((*shape, channels), np.uint16 if header.depth == 16 else np.uint8)
    at = 0
    for (y, x, dy, dx), (count, columns), row in zip(passes, sizes, rows, strict=True):
        end = at + count * (row + 1)
        out[y::dy, x::dx] = _rows(raw[at:end], header, count, columns, row)
        at = end
    return out


def _rows(raw: bytearray, header: _Header, count: int, columns: int, row: int) -> Any:
    """Return the pixels of filtered rows."""
    wrong = _kernels.unfilter(raw, count, row, max(1, header.pixel_bits // 8))
    if wrong >= 0:
        raise Broken(f"row {wrong} of the PNG names filter {raw[wrong * (row + 1)]}, which is none")
    found = np.frombuffer(raw, np.uint8).reshape(count, row + 1)[:, 1:]
    channels, depth = _CHANNELS[header.colour], header.depth
    if depth == 16:
        found = np.ascontiguousarray(found).view(">u2").astype(np.uint16)
    elif depth < 8:
        shifts = np.arange(8 - depth, -1, -depth, dtype=np.uint8)
        found = (found[:, :, None] >> shifts & ((1 << depth) - 1)).reshape(count, -1)[:, :columns]
        if header.colour == GRAY:
            found = found * np.uint8(255 // ((1 << depth) - 1))
    return np.ascontiguousarray(found).reshape(count, columns, channels)


def _palette(header: _Header) -> tuple[Any, Any]:
    if header.colour != PALETTE:
        return None, None
    entries = header.others.get(b"PLTE")
    if not entries or len(entries) % 3:
        raise Broken("the PNG has indices and no palette (block PLTE)")
    # An index past the last entry is black, as decoders have it.
    table = np.zeros((256, 3), np.uint8)
    given = np.frombuffer(entries, np.uint8).reshape(-1, 3)[:256]
    table[: len(given)] = given
    alpha = np.full(256, 255, np.uint8)
    seen = np.frombuffer(header.others.get(b"tRNS", b"")[:256], np.uint8)
    alpha[: len(seen)] = seen
    return table, alpha


def converted(picture: Picture, mode: int) -> Any:
    """Return the pixels in a mode of `torchvision.io.ImageReadMode`, (height, width, channels).

    Args:
        mode: 0: as they are stored; 1: gray; 2: gray and alpha; 3: RGB; 4: RGB and alpha.
    """
    pixels, colour = picture.pixels, picture.colour
    if not mode or (mode, colour) in ((1, GRAY), (2, GRAY_ALPHA), (3, RGB), (4, RGB_ALPHA)):
        return pixels
    alpha = None
    if colour == PALETTE:
        alpha, pixels = picture.alpha[pixels], picture.palette[pixels[:, :, 0]]
    elif colour in (GRAY_ALPHA, RGB_ALPHA):
        alpha, pixels = pixels[:, :, -1:], pixels[:, :, :-1]
    if mode in (1, 2):
        pixels = pixels if pixels.shape[2] == 1 else _gray(pixels)
    elif pixels.shape[2] == 1:
        pixels = np.repeat(pixels, 3, 2)
    if mode in (1, 3):
        return np.ascontiguousarray(pixels)
    if alpha is None:
        alpha = np.full((*pixels.shape[:2], 1), np.iinfo(pixels.dtype).max, pixels.dtype)
    return np.concatenate([pixels, alpha], 2)


def _gray(pixels: Any) -> Any:
    """Weigh colours in integers: of 8 bits cut, of 16 bits rounded, equal ones as they are."""
    red, green, blue = (pixels[:, :, k].astype(np.uint32) for k in range(3))
    half = 16384 if pixels.dtype == np.uint16 else 0
    made = (red * _RED + green * _GREEN + blue * (32768 - _RED - _GREEN) + half) >> 15
    same = (red == green) & (red == blue)
    return np.where(same, red, made).astype(pixels.dtype).reshape(*pixels.shape[:2], 1)
