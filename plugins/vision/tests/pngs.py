"""Write PNG files of every kind, as decoders' tests need them."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np

PASSES = (
    (0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2),
    (1, 0, 2, 1),
)  # fmt: skip


def block(kind: bytes, body: bytes) -> bytes:
    """Return a block with its length and checksum."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def head(width: int, height: int, depth: int, colour: int, interlaced: bool = False) -> bytes:
    """Return the signature and the first block."""
    body = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced)
    return b"\x89PNG\r\n\x1a\n" + block(b"IHDR", body)


def packed(row: Any, depth: int) -> bytes:
    """Return one row of numbers as bytes."""
    if depth >= 8:
        return bytes(row.astype(">u2" if depth == 16 else "u1").tobytes())
    bits = "".join(format(int(v), f"0{depth}b") for v in row.flatten())
    bits += "0" * (-len(bits) % 8)
    return bytes(int(bits[i : i + 8], 2) for i in range(0, len(bits), 8))


def filtered(pixels: Any, depth: int, generator: Any) -> bytes:
    """Return rows, each by a filter that is drawn."""
    step, above, made = max(1, depth * pixels.shape[2] // 8), None, bytearray()
    for row in pixels:
        line, kind = packed(row, depth), int(generator.integers(0, 5))
        up = above or bytes(len(line))
        made.append(kind)
        for i, value in enumerate(line):
            a, b, c = (line[i - step], up[i], up[i - step]) if i >= step else (0, up[i], 0)
            p = a + b - c
            near = sorted((a, b, c), key=lambda v: abs(p - v))[0]
            made.append((value - (0, a, b, (a + b) // 2, near)[kind]) & 255)
        above = line
    return bytes(made)


def write(
    pixels: Any, depth: int, colour: int, *, interlaced: bool = False, before: bytes = b"",
    seed: int = 0,
) -> bytes:  # fmt: skip
    """Return a PNG of (height, width, channels) numbers; `before` are blocks before the pixels."""
    generator = np.random.default_rng(seed)
    parts = [pixels[y::dy, x::dx] for y, x, dy, dx in PASSES] if interlaced else [pixels]
    raw = b"".join(filtered(part, depth, generator) for part in parts if part.size)
    data = zlib.compress(raw)
    blocks = b"".join(block(b"IDAT", data[i : i + 100]) for i in range(0, len(data), 100))
    start = head(pixels.shape[1], pixels.shape[0], depth, colour, interlaced)
    return start + before + blocks + block(b"IEND", b"")
