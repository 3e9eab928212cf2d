"""The ops of torchvision's extension `image`: files and bytes to pictures and back.

PNG and GIF are read by `png` and `gif`, JPEG and WEBP by Pillow, which writes all kinds. A decoded
picture is (channels, height, width) whose channels lie beside each other in memory, as torchvision
has it.
"""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image

import tangrad
from tangrad_vision import _kernels, gif, orientation, png

# `torchvision.io.ImageReadMode`.
UNCHANGED, GRAY, GRAY_ALPHA, RGB, RGB_ALPHA = range(5)
_UNSUPPORTED = (
    "Unsupported image file. Only jpeg, png, webp and gif are currently supported. For avif and "
    "heic format, please rely on `decode_avif` and `decode_heic` directly."
)
_JPEG_SIDE = 65500  # the most that libjpeg writes
# A tensor read from a file knows which, so that errors can name it.
_PATH = "_read_from"


def _read_file(filename: str) -> Any:
    try:
        data = np.fromfile(filename, np.uint8)
    except OSError as error:
        raise RuntimeError(f"[Errno {error.errno}] {error.strerror}: '{filename}'") from None
    if not data.size:
        raise RuntimeError(f"Expected a non empty file: '{filename}'")
    made = tangrad.from_numpy(data)
    setattr(made, _PATH, filename)
    return made


def _write_file(filename: str, data: Any) -> Any:
    if data.device.type != "cpu":
        raise RuntimeError(f"Input tensor should be on CPU, got {data.device}")
    if data.dtype != tangrad.uint8:
        raise RuntimeError(f"Input tensor dtype should be uint8, got {data.dtype}")
    if data.dim() != 1:
        raise RuntimeError(
            f"Input data should be a 1-dimensional tensor, got shape {tuple(data.shape)}"
        )
    try:
        with open(filename, "wb") as stream:
            stream.write(data.contiguous().numpy())
    except OSError as error:
        raise RuntimeError(f"Error opening output file '{filename}': {error.strerror}") from None
    return data.new_empty(0)


def _bytes(data: Any) -> bytes:
    """Return the bytes of an encoded picture.

    Raises:
        RuntimeError: the tensor is not contiguous, 1-dimensional, of uint8 and on the host.
    """
    if data.device.type != "cpu":
        raise RuntimeError(f"Input tensor should be on CPU, got {data.device}")
    if data.dtype != tangrad.uint8:
        raise RuntimeError(f"Input tensor must have uint8 data type, got {data.dtype}")
    if data.dim() != 1 or not data.numel():
        raise RuntimeError(
            "Input tensor must be 1-dimensional and non-empty, got a tensor of shape "
            f"{tuple(data.shape)}: Expected a non empty 1-dimensional tensor"
        )
    if not data.is_contiguous():
        raise RuntimeError("Input tensor must be contiguous.")
    return bytes(data.numpy())


def _decoder(decode: Callable[..., Any]) -> Callable[..., Any]:
    """Return an op that calls a decoder of bytes, with errors that name the file."""

    def decoded(data: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return decode(_bytes(data), *args, **kwargs)
        except (RuntimeError, ValueError, Image.DecompressionBombError) as error:
            path = getattr(data, _PATH, None)
            place = f" (in '{os.fspath(path)}')" if path is not None else ""
            raise RuntimeError(f"{error}{place}") from None

    return decoded


def most_pixels() -> int | None:
    """Return how many pixels a picture may have: Pillow's limit, twice what it warns of."""
    limit = Image.MAX_IMAGE_PIXELS
    return None if limit is None else 2 * limit


def _tensor(pixels: Any) -> Any:
    """Return (height, width, channels) as (channels, height, width), the same memory."""
    return tangrad.from_numpy(np.ascontiguousarray(pixels)).permute(2, 0, 1)


def _png(data: bytes, mode: int = UNCHANGED, apply_exif_orientation: bool = False) -> Any:
    if mode not in range(5):
        raise RuntimeError(f"The provided mode is not supported for PNG files: {mode}")
    picture = png.decode(data, most_pixels())
    pixels = png.converted(picture, mode)
    if apply_exif_orientation and picture.exif is not None:
        pixels = orientation.applied(pixels, orientation.found(picture.exif))
    return _tensor(pixels)


def _opened(data: bytes, kind: str) -> Any:
    """Return what Pillow makes of the head of a picture.

    Raises:
        RuntimeError: it is broken.
    """
    try:
        return Image.open(io.BytesIO(data), formats=(kind,))
    except (OSError, SyntaxError, ValueError) as error:
        raise RuntimeError(f"Image is incomplete or truncated at its head: {error}") from None


def _raw(picture: Any) -> bytearray:
    """Return a picture's bytes; colours straight from Pillow's own memory, of four bytes each."""
    if picture.mode == "RGB" and hasattr(picture, "__arrow_c_array__"):
        picture.load()
        try:
            array = picture.__arrow_c_array__()[1]
            return _kernels.colours(array, picture.width * picture.height)
        except ValueError:  # it lies in several blocks
            pass
    return bytearray(picture.tobytes())


def _loaded(picture: Any, size: int) -> Any:
    """Return a picture's pixels, (height, width, channels)."""
    try:
        pixels = np.frombuffer(_raw(picture), np.uint8)
    except (OSError, SyntaxError, ValueError) as error:
        text = str(error)
        if "truncated" in text.lower():
            raise RuntimeError(f"Image is incomplete or truncated: {text} of {size}") from None
        raise RuntimeError(
            f"the data of the picture are broken ({text}), such as: Unsupported marker type"
        ) from None
    return pixels.reshape(picture.height, picture.width, -1)


def _jpeg(data: bytes, mode: int = UNCHANGED, apply_exif_orientation: bool = False) -> Any:
    if data[:3] != b"\xff\xd8\xff":
        raise RuntimeError(
            f"Not a JPEG file: starts with 0x{data[:2].hex(' ').replace(' ', ' 0x')}"
        )
    if mode not in (UNCHANGED, GRAY, RGB):
        raise RuntimeError(f"The provided mode is not supported for JPEG files: {mode}")
    picture = _opened(data, "JPEG")
    if picture.mode == "CMYK":
        # Pillow turns them round, as if all were Adobe's; torchvision gives what is stored.
        pixels = 255 - _loaded(picture, len(data))
        if mode != UNCHANGED:
            pixels = _from_inks(pixels, mode)
    else:
        if mode == GRAY:
            picture.draft("L", None)  # the brightness as it is stored, not one of the colours
        pixels = _loaded(picture, len(data))
        if mode == RGB and pixels.shape[2] == 1:
            pixels = np.repeat(pixels, 3, 2)
    if apply_exif_orientation:
        found = picture.info.get("exif", b"").removeprefix(b"Exif\0\0")
        pixels = orientation.applied(pixels, orientation.found(found))
    return _tensor(pixels)


def _from_inks(inks: Any, mode: int) -> Any:
    """Return colours or brightness of inverted inks: black minus what the colour takes of it."""
    black = inks[:, :, 3:].astype(np.int32)
    taken = black * (255 - inks[:, :, :3].astype(np.int32)) + 128
    colours = np.clip(black - (((taken >> 8) + taken) >> 8), 0, 255)
    if mode == GRAY:
        # The weights of ITU-R BT.601 in 65536ths.
        colours = (colours @ np.array([19595, 38470, 7471], np.int32) + 0x8000 >> 16)[:, :, None]
    return colours.astype(np.uint8)


def _webp(data: bytes, mode: int = UNCHANGED) -> Any:
    if data[:4] != b"RIFF" or data[8:12] != b"WEBP":
        raise RuntimeError("WebPGetFeatures failed with error code 3: the bytes are no WEBP")
    picture = _opened(data, "WEBP")
    if getattr(picture, "is_animated", False):
        raise RuntimeError("Animated webp files are not supported.")
    if mode in (GRAY, GRAY_ALPHA):
        warnings.warn(
            "Webp does not support grayscale conversions. The returned tensor will be in the "
            "colorspace of the original image.",
            stacklevel=2,
        )
    pixels = _loaded(picture, len(data))
    if mode == RGB:
        pixels = np.ascontiguousarray(pixels[:, :, :3])
    elif mode == RGB_ALPHA and pixels.shape[2] == 3:
        pixels = np.concatenate([pixels, np.full_like(pixels[:, :, :1], 255)], 2)
    return _tensor(pixels)


def _gif(data: bytes) -> Any:
    frames = tangrad.from_numpy(gif.decode(data, most_pixels())).permute(0, 3, 1, 2)
    return frames[0] if len(frames) == 1 else frames


def _image(data: bytes, mode: int = UNCHANGED, apply_exif_orientation: bool = False) -> Any:
    if data[:3] == b"\xff\xd8\xff":
        return _jpeg(data, mode, apply_exif_orientation)
    if data[:4] == png.SIGNATURE[:4]:
        return _png(data, mode, apply_exif_orientation)
    if data[:6] in (b"GIF87a", b"GIF89a"):
        return _gif(data)
    if data[:4] == b"RIFF" and data[8:15] == b"WEBPVP8":
        return _webp(data, mode)
    raise RuntimeError(_UNSUPPORTED)


def _encoder(kind: str, option: str) -> Callable[[Any, int], Any]:
    def encode(data: Any, value: int) -> Any:
        if kind == "PNG" and not 0 <= value <= 9:
            raise RuntimeError(f"Compression level should be between 0 and 9, got {value}")
        if data.device.type != "cpu":
            raise RuntimeError(f"Input tensor should be on CPU, got {data.device}")
        if data.dtype != tangrad.uint8:
            raise RuntimeError(f"Input tensor dtype should be uint8, got {data.dtype}")
        if data.dim() != 3:
            raise RuntimeError(
                f"Input data should be a 3-dimensional tensor, got shape {tuple(data.shape)}"
            )
        if data.size(0) not in (1, 3):
            raise RuntimeError(f"The number of channels should be 1 or 3, got: {data.size(0)}")
        if not data.numel():
            raise RuntimeError(f"{kind} has no pictures without pixels: {tuple(data.shape)}")
        if kind == "JPEG" and max(data.shape) > _JPEG_SIDE:
            raise RuntimeError(
                f"Maximum supported image dimension is {_JPEG_SIDE} pixels, got {tuple(data.shape)}"
            )
        pixels = data.permute(1, 2, 0).contiguous().numpy()
        picture = Image.fromarray(pixels[:, :, 0] if data.size(0) == 1 else pixels)
        target = io.BytesIO()
        picture.save(target, kind, **{option: int(value)})
        return tangrad.frombuffer(bytearray(target.getvalue()), dtype=tangrad.uint8)

    return encode


_COMPUTED: dict[str, Callable[..., Any]] = {
    "read_file": _read_file,
    "write_file": _write_file,
    "decode_image": _decoder(_image),
    "decode_png": _decoder(_png),
    "decode_jpeg": _decoder(_jpeg),
    "decode_webp": _decoder(_webp),
    "decode_gif": _decoder(_gif),
    "encode_png": _encoder("PNG", "compress_level"),
    "encode_jpeg": _encoder("JPEG", "quality"),
}
for _name, _kernel in _COMPUTED.items():
    tangrad.library.impl(f"image::{_name}", "default", _kernel)
