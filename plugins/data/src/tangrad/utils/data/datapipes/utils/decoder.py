"""Decode files by the ends of their names: texts, numbers, JSON, tensors, pictures."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable
from typing import Any

import tangrad

__all__ = ["Decoder", "basichandlers", "extension_extract_fn", "imagehandler"]

_NUMBERS = ("cls", "cls2", "class", "count", "index", "inx", "id")
_PICTURES = ("jpg", "jpeg", "png", "ppm", "pgm", "pbm", "pnm")


def basichandlers(extension: str, data: bytes) -> Any:
    """Return what the bytes of a file hold, or None where the end of its name is unknown.

    Pickles are not among it: they run what a file says. Tensors (`pt`) are loaded as plain values.
    """
    if extension in ("txt", "text", "transcript"):
        return data.decode("utf-8")
    if extension in _NUMBERS:
        return int(data)
    if extension in ("json", "jsn"):
        return json.loads(data)
    if extension == "pt":
        return tangrad.load(io.BytesIO(data), weights_only=True)
    return None


def imagehandler(imagespec: str) -> Callable[[str, bytes], Any]:
    """Return what decodes pictures by Pillow.

    Args:
        imagespec: "torch", "pil" or nothing for NumPy, then "l", "rgb" or "rgba" (default: rgb),
            then "8" for bytes in place of numbers from 0 to 1.

    Raises:
        ValueError: it is none of these.
    """
    found = re.fullmatch(r"(torch|pil|)(l|rgb|rgba|)(8?)", imagespec.lower())
    if found is None or not imagespec:
        raise ValueError(f"unknown image specification: {imagespec}")
    kind, mode, in_bytes = found.groups()

    def decode(extension: str, data: bytes) -> Any:
        if extension.lower() not in _PICTURES:
            return None
        import numpy as np
        from PIL import Image

        picture = Image.open(io.BytesIO(data)).convert((mode or "rgb").upper())
        if kind == "pil":
            return picture
        pixels = np.asarray(picture)
        if not in_bytes:
            pixels = pixels.astype("float32") / np.float32(255)
        if kind != "torch":
            return pixels
        planes = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
        return tangrad.from_numpy(np.ascontiguousarray(planes))

    return decode


def extension_extract_fn(pathname: str) -> str:
    """Return the end of a file's name after the last dot, or ""."""
    return os.path.splitext(pathname)[1].removeprefix(".")


class Decoder:
    """Decode samples of (path, stream) by the first handler that knows how.

    Args:
        handlers: functions of a key and bytes, or of (path, bytes); None means: not mine.
        key_fn: path -> key.
    """

    def __init__(
        self,
        *handler: Callable[..., Any],
        key_fn: Callable[[str], str] = extension_extract_fn,
    ) -> None:
        self.handlers, self.key_fn = list(handler), key_fn

    def add_handler(self, *handler: Callable[..., Any]) -> None:
        """Add handlers, which are asked last."""
        self.handlers.extend(handler)

    def __call__(self, data: tuple[str, Any]) -> dict[str, Any]:
        """Return {path: what was decoded, or the bytes where no handler knows how}."""
        path, stream = data
        content = stream if isinstance(stream, bytes) else stream.read()
        key = self.key_fn(path)
        for handler in self.handlers:
            found = handler(key, content)
            if found is not None:
                return {path: found}
        return {path: content}
