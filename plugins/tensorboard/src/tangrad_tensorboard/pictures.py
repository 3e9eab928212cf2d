"""Arrays as PNG (ISO/IEC 15948), and sequences of them as animated PNG, by zlib alone."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np

_COLOR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}  # number of channels: PNG's code
_IN_A_ROW = 8


def _chunk(kind: bytes, content: bytes) -> bytes:
    crc = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", crc)


def _pixels(image: Any) -> bytes:
    height = image.shape[0]
    lines = np.ascontiguousarray(image).reshape(height, -1)
    # Each line begins with the number of its filter: none.
    return zlib.compress(np.insert(lines, 0, 0, axis=1).tobytes(), 6)


def png(frames: Any, fps: float = 4) -> bytes:
    """Return one picture, or several as an animation.

    Args:
        frames: bytes (frames, height, width, channels), with 1 to 4 channels.
        fps: frames in a second.
    """
    count, height, width, channels = frames.shape
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOR_TYPES[channels], 0, 0, 0)
    chunks = [b"\x89PNG\r\n\x1a\n", _chunk(b"IHDR", header)]
    if count == 1:
        chunks.append(_chunk(b"IDAT", _pixels(frames[0])))
        return b"".join([*chunks, _chunk(b"IEND", b"")])
    chunks.append(_chunk(b"acTL", struct.pack(">II", count, 0)))
    delay = (max(1, round(1000 / fps)), 1000)
    order = 0
    for i, frame in enumerate(frames):
        control = struct.pack(">IIIIIHHBB", order, width, height, 0, 0, *delay, 0, 0)
        chunks.append(_chunk(b"fcTL", control))
        order += 1
        if i == 0:  # shown alone by what knows no animations
            chunks.append(_chunk(b"IDAT", _pixels(frame)))
        else:
            chunks.append(_chunk(b"fdAT", struct.pack(">I", order) + _pixels(frame)))
            order += 1
    return b"".join([*chunks, _chunk(b"IEND", b"")])


def to_bytes(image: Any) -> Any:
    """Return an image as bytes: floats are from 0 to 1, integers from 0 to 255."""
    scaled = image if image.dtype == np.uint8 else np.asarray(image, np.float64)
    if image.dtype.kind in "fb":
        scaled = np.nan_to_num(scaled * 255)
    return np.clip(scaled, 0, 255).astype(np.uint8)


def arranged(image: Any, dataformats: str) -> Any:
    """Return images as one of (height, width, channels), several of them in a grid.

    Args:
        image: the array.
        dataformats: what its dimensions are: N, C, H and W in any order, or some of them.

    Raises:
        ValueError: the letters do not fit the array.
    """
    formats = dataformats.upper()
    if len(set(formats)) != len(formats) or not {"H", "W"} <= set(formats) <= set("NCHW"):
        raise ValueError(
            "dataformats has to consist of H, W and perhaps N and C, each once, got "
            f"{dataformats!r}"
        )
    if image.ndim != len(formats):
        raise ValueError(
            f"the image has shape {tuple(image.shape)}, which dataformats={dataformats!r} does not "
            "describe"
        )
    for letter in "CN":
        if letter not in formats:
            image, formats = image[..., None], formats + letter
    image = image.transpose([formats.index(letter) for letter in "NHWC"])
    if image.shape[3] not in _COLOR_TYPES:
        raise ValueError(f"an image has 1 to 4 channels, got {image.shape[3]}")
    return image[0] if image.shape[0] == 1 else _grid(image)


def _grid(images: Any) -> Any:
    count, height, width, channels = images.shape
    columns = min(count, _IN_A_ROW)
    rows = -(-count // columns)
    empty = np.zeros((rows * columns - count, height, width, channels), images.dtype)
    cells = np.concatenate([images, empty]).reshape(rows, columns, height, width, channels)
    return cells.transpose(0, 2, 1, 3, 4).reshape(rows * height, columns * width, channels)
