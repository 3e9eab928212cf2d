"""Small pictures of tensors as PNG files in HTML: no library of images is needed."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np

LARGEST = 96  # elements of a picture's side; more are skipped evenly
SMALLEST = 8  # sides of what is taken for an image
SHOWN = 4  # images of a batch
WIDTH = 160  # of a picture on the page, in pixels
# Colours at equal distances, red, green and blue: from low to high, and around zero.
_RISING = np.array([[32, 20, 70], [60, 80, 140], [40, 145, 140], [120, 195, 85], [250, 230, 60]])
_AROUND = np.array(
    [[35, 75, 160], [140, 175, 215], [245, 245, 245], [225, 150, 125], [165, 30, 45]]
)


def png(pixels: np.ndarray[Any, Any]) -> bytes:
    """Return a PNG file.

    Args:
        pixels: uint8, of shape `(height, width)` in grey or `(height, width, 3)` in colours.
    """
    height, width = pixels.shape[:2]
    colours = 2 if pixels.ndim == 3 else 0
    rows = pixels.reshape(height, -1)
    # Each row is led by a byte that tells its filter: none.
    data = np.zeros((height, rows.shape[1] + 1), dtype=np.uint8)
    data[:, 1:] = rows
    header = struct.pack(">IIBBBBB", width, height, 8, colours, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(data.tobytes())), (b"IEND", b"")]
    file = b"\x89PNG\r\n\x1a\n"
    for kind, content in parts:
        checked = kind + content
        file += struct.pack(">I", len(content)) + checked
        file += struct.pack(">I", zlib.crc32(checked))
    return file


def image_tag(pixels: np.ndarray[Any, Any], title: str) -> str:
    """Return an `<img>` that holds its picture."""
    height, width = pixels.shape[:2]
    shown = min(WIDTH, max(width, 16) * max(1, WIDTH // max(width, height, 1)))
    text = base64.b64encode(png(pixels)).decode()
    return (
        f'<img alt="{title}" title="{title}" width="{shown}" '
        f'style="image-rendering:pixelated;margin:2px" src="data:image/png;base64,{text}">'
    )


def heat_map(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the colours of a matrix: around zero, if it has both signs; NaN and inf in grey.

    Args:
        values: float64, two-dimensional.

    Returns:
        uint8, with a last dimension of 3.
    """
    finite = np.isfinite(values)
    known = values[finite]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)
    colours = _RISING
    if low < 0 < high:
        high = max(-low, high)
        low, colours = -high, _AROUND
    span = high / 2 - low / 2  # halves: the difference may be no finite number
    share = np.zeros(values.shape)
    if span > 0:
        share[finite] = (known / 2 - low / 2) / span
    place = share * (len(colours) - 1)
    below = np.minimum(place.astype(np.int64), len(colours) - 2)
    part = (place - below)[..., None]
    found = colours[below] * (1 - part) + colours[below + 1] * part
    found[~finite] = 128
    return found.round().astype(np.uint8)


def image(values: np.ndarray[Any, Any], is_byte: bool) -> np.ndarray[Any, Any]:
    """Return the pixels of an image.

    Args:
        values: float64 of shape `(channels, height, width)`, one or three channels or more, of
            which three are taken.
        is_byte: the numbers are 0 to 255. Else they are taken for 0 to 1 if they lie there, and
            spread from the least to the greatest if they do not.
    """
    values = np.nan_to_num(values[:3] if len(values) >= 3 else values[:1])
    low, high = float(values.min()), float(values.max())
    if is_byte:
        low, high = 0.0, 255.0
    elif low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    span = high / 2 - low / 2
    shares = (values / 2 - low / 2) / span if span > 0 else np.zeros(values.shape)
    pixels = (np.clip(shares, 0, 1) * 255).round().astype(np.uint8)
    return pixels[0] if len(pixels) == 1 else np.moveaxis(pixels, 0, -1)
