"""The ops of torchvision's extension `image`, by Pillow: files and bytes to pictures and back."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

import tangrad

# `torchvision.io.ImageReadMode`, as Pillow names what it means.
_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
_KEPT = ("L", "LA", "RGB", "RGBA")


def _read_file(filename: str) -> Any:
    return tangrad.frombuffer(bytearray(Path(filename).read_bytes()), dtype=tangrad.uint8)


def _write_file(filename: str, data: Any) -> Any:
    Path(filename).write_bytes(data.cpu().contiguous().numpy().tobytes())
    return data.new_empty(0)


def _tensor(picture: Any) -> Any:
    """Return a picture as (channels, height, width) of uint8."""
    pixels = np.array(picture)
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    return tangrad.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))


def _open(data: Any) -> Any:
    if data.dtype != tangrad.uint8 or data.dim() != 1 or not data.numel():
        raise RuntimeError(
            f"Expected a non empty 1-dimensional tensor of uint8, got {data.dtype} of shape "
            f"{tuple(data.shape)}"
        )
    try:
        return Image.open(io.BytesIO(data.cpu().contiguous().numpy().tobytes()))
    except OSError as error:
        raise RuntimeError(f"the bytes are no picture that Pillow can read: {error}") from None


def _decode(data: Any, mode: int = 0, apply_exif_orientation: bool = False) -> Any:
    picture = _open(data)
    if apply_exif_orientation:
        picture = ImageOps.exif_transpose(picture)
    wanted = _MODES.get(mode)
    if wanted is None and picture.mode not in _KEPT:
        wanted = "RGBA" if "transparency" in picture.info else "RGB"
    return _tensor(picture if wanted in (None, picture.mode) else picture.convert(wanted))


def _decode_gif(encoded_data: Any) -> Any:
    picture = _open(encoded_data)
    frames = []
    for number in range(getattr(picture, "n_frames", 1)):
        picture.seek(number)
        frames.append(_tensor(picture.convert("RGB")))
    return frames[0] if len(frames) == 1 else tangrad.stack(frames)


def _encoder(kind: str, option: str) -> Callable[[Any, int], Any]:
    def encode(data: Any, value: int) -> Any:
        if data.dtype != tangrad.uint8 or data.dim() != 3 or data.size(0) not in (1, 3):
            raise RuntimeError(
                f"Expected uint8 of shape (1 or 3, height, width), got {data.dtype} of shape "
                f"{tuple(data.shape)}"
            )
        pixels = data.permute(1, 2, 0).cpu().contiguous().numpy()
        picture = Image.fromarray(pixels[:, :, 0] if data.size(0) == 1 else pixels)
        target = io.BytesIO()
        picture.save(target, kind, **{option: int(value)})
        return tangrad.frombuffer(bytearray(target.getvalue()), dtype=tangrad.uint8)

    return encode


_COMPUTED: dict[str, Callable[..., Any]] = {
    "read_file": _read_file,
    "write_file": _write_file,
    "decode_image": _decode,
    "decode_png": _decode,
    "decode_jpeg": _decode,
    "decode_webp": _decode,
    "decode_gif": _decode_gif,
    "encode_png": _encoder("PNG", "compress_level"),
    "encode_jpeg": _encoder("JPEG", "quality"),
}
for _name, _kernel in _COMPUTED.items():
    tangrad.library.impl(f"image::{_name}", "default", _kernel)
