"""GIF as its frames are stored, and drawn one over the other as torchvision does.

CompuServe, "Graphics Interchange Format, Version 89a", 1990. Pillow draws frames by rules of its
own (what lies below a transparent pixel of the first one, above all), so it does not read them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tangrad_vision import _kernels

_BACKGROUND = 2  # how a frame says that those before it are wiped out


class Broken(ValueError):
    """A file is no GIF, or ends too early; the text names the place."""


@dataclass
class _Frame:
    left: int
    top: int
    indices: Any
    colours: Any
    transparent: int
    disposal: int


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        part = self.data[self.at : self.at + count]
        if len(part) < count:
            raise Broken(f"DGifSlurp() failed - 102: the GIF ends at byte {len(self.data)}")
        self.at += count
        return part

    def short(self) -> int:
        return int.from_bytes(self.take(2), "little")

    def blocks(self) -> bytes:
        """Return the blocks up to the empty one."""
        found = []
        while size := self.take(1)[0]:
            found.append(self.take(size))
        return b"".join(found)

    def colours(self, packed: int) -> Any:
        count = 2 << (packed & 7)
        return np.frombuffer(self.take(3 * count), np.uint8).reshape(count, 3)


def decode(data: bytes, most_pixels: int | None) -> Any:
    """Return the frames of a GIF, (frames, height, width, 3) of uint8.

    Args:
        data: the file's bytes.
        most_pixels: pixels that all frames together may have; None: any number.

    Raises:
        Broken: it is no GIF, a part of it is missing or wrong, or it has more pixels.
    """
    reader = _Reader(data)
    if data[:6] not in (b"GIF87a", b"GIF89a"):
        raise Broken("DGifOpenFileName() failed - 103: the bytes are no GIF")
    reader.at = 6
    width, height = reader.short(), reader.short()
    packed, background, _ = reader.take(3)
    colours = reader.colours(packed) if packed & 0x80 else None
    frames, drawn = [], 0
    for frame in _frames(reader, colours, most_pixels):
        drawn += max(width * height, frame.indices.size)
        if most_pixels is not None and drawn > most_pixels:
            raise Broken(
                f"the GIF has {len(frames) + 1} frames or more of {width} by {height} pixels, "
                f"above the {most_pixels} that PIL.Image.MAX_IMAGE_PIXELS allows: a decompression "
                "bomb?"
            )
        frames.append(frame)
    if not frames:
        raise Broken("GIF file should contain at least one image!")
    shape = max(height, frames[0].indices.shape[0]), max(width, frames[0].indices.shape[1])
    below = np.zeros(3, np.uint8)
    if colours is not None and background < len(colours):
        below = colours[background]
    out = np.empty((len(frames), *shape, 3), np.uint8)
    for number, frame in enumerate(frames):
        out[number] = below if not number or frame.disposal == _BACKGROUND else out[number - 1]
        _draw(out[number], frame)
    return out


def _frames(reader: _Reader, colours: Any, most_pixels: int | None) -> Iterator[_Frame]:
    transparent, disposal = -1, 0
    while True:
        at = reader.at
        kind = reader.take(1)[0]
        if kind == 0x3B:
            return
        if kind == 0x21:
            label, body = reader.take(1)[0], reader.blocks()
            if label == 0xF9 and len(body) >= 4:
                disposal = body[0] >> 2 & 7
                transparent = body[3] if body[0] & 1 else -1
        elif kind == 0x2C:
            yield _frame(reader, colours, transparent, disposal, most_pixels)
            transparent, disposal = -1, 0
        else:
            raise Broken(f"DGifSlurp() failed - 107: byte {at} of the GIF starts no block")


def _frame(
    reader: _Reader, colours: Any, transparent: int, disposal: int, most_pixels: int | None
) -> _Frame:
    left, top, width, height = (reader.short() for _ in range(4))
    packed, at = reader.take(1)[0], reader.at
    table = reader.colours(packed) if packed & 0x80 else colours
    if table is None:
        raise Broken(f"the picture at byte {at} of the GIF has no colours, neither has the file")
    if most_pixels is not None and width * height > most_pixels:
        raise Broken(
            f"the picture at byte {at} of the GIF says that it has {width} by {height} pixels, "
            f"more than the {most_pixels} that PIL.Image.MAX_IMAGE_PIXELS allows: a decompression "
            "bomb?"
        )
    least, packed_bytes = reader.take(1)[0], reader.blocks()
    if not 1 <= least <= 8:
        raise Broken(f"DGifSlurp() failed - 112: codes of {least} bits at byte {at} of the GIF")
    indices, made = _kernels.lzw(packed_bytes, least, width * height)
    if made != width * height:
        raise Broken(
            f"DGifSlurp() failed - 112: the picture at byte {at} of the GIF has {max(made, 0)} of "
            f"{width * height} pixels"
        )
    rows = np.frombuffer(indices, np.uint8).reshape(height, width)
    if packed & 0x40:
        order = [y for start, step in ((0, 8), (4, 8), (2, 4), (1, 2))
                 for y in range(start, height, step)]  # fmt: skip
        woven = np.empty_like(rows)
        woven[order] = rows
        rows = woven
    return _Frame(left, top, rows, table, transparent, disposal)


def _draw(canvas: Any, frame: _Frame) -> None:
    height = max(0, min(frame.indices.shape[0], canvas.shape[0] - frame.top))
    width = max(0, min(frame.indices.shape[1], canvas.shape[1] - frame.left))
    indices = frame.indices[:height, :width]
    place = canvas[frame.top : frame.top + height, frame.left : frame.left + width]
    table = np.zeros((256, 3), np.uint8)
    table[: len(frame.colours)] = frame.colours
    shown = indices != frame.transparent
    if shown.all():
        place[:] = table[indices]
    else:
        place[shown] = table[indices[shown]]
