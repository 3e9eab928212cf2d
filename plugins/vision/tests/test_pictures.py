"""Pictures as they are stored, and in every mode that torchvision reads them in."""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pngs
import pytest
from PIL import Image

import tangrad

KINDS = [
    (colour, depth, channels)
    for colour, channels, depths in (
        (0, 1, (1, 2, 4, 8, 16)), (2, 3, (8, 16)), (3, 1, (1, 2, 4, 8)), (4, 2, (8, 16)),
        (6, 4, (8, 16)),
    )
    for depth in depths
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def loaded(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Load a file that has the extension's name and nothing in it."""
    folder = tmp_path_factory.mktemp("site") / "torchvision"
    folder.mkdir()
    (folder / "image_stable.so").write_bytes(b"")
    tangrad.ops.load_library(str(folder / "image_stable.so"))


def as_tensor(data: bytes) -> Any:
    return tangrad.frombuffer(bytearray(data), dtype=tangrad.uint8)


def decoded(data: bytes, mode: int = 0, exif: bool = False) -> Any:
    """Return what `decode_image` gives, (height, width, channels)."""
    made = tangrad.ops.image.decode_image(as_tensor(data), mode, exif)
    assert made.stride(0) == 1  # channels lie side by side
    return made.permute(1, 2, 0).numpy()


def drawn(depth: int, channels: int) -> Any:
    pixels = np.random.default_rng(depth).integers(0, 1 << depth, (13, 11, channels))
    if channels > 2:
        pixels[:4] = pixels[:4, :, :1]  # gray ones, too
    return pixels


def palette(depth: int) -> Any:
    return np.random.default_rng(9).integers(0, 256, (1 << depth, 3)).astype(np.uint8)


def saved(picture: Any, kind: str, **options: Any) -> bytes:
    target = io.BytesIO()
    picture.save(target, kind, **options)
    return target.getvalue()


def smooth(channels: int, height: int = 33, width: int = 41) -> Any:
    y, x = np.mgrid[:height, :width]
    waves = [(np.sin(x / 7 + k) + np.cos(y / 5 * (k + 1))) * 60 + 128 for k in range(channels)]
    return np.stack(waves, -1).astype(np.uint8)


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize(("colour", "depth", "channels"), KINDS)
def test_png_is_read_as_it_is_stored(
    colour: int, depth: int, channels: int, interlaced: bool
) -> None:
    pixels = drawn(depth, channels)
    before = pngs.block(b"PLTE", palette(depth).tobytes()) if colour == 3 else b""
    got = decoded(pngs.write(pixels, depth, colour, interlaced=interlaced, before=before))
    stretched = 255 // ((1 << depth) - 1) if colour == 0 and depth < 8 else 1
    assert got.dtype == (np.uint16 if depth == 16 else np.uint8)
    np.testing.assert_array_equal(got, pixels * stretched)


@pytest.mark.parametrize("mode", [1, 2, 3, 4])
@pytest.mark.parametrize(("colour", "depth", "channels"), KINDS)
def test_png_is_read_in_every_mode(colour: int, depth: int, channels: int, mode: int) -> None:
    pixels, most = drawn(depth, channels), 65535 if depth == 16 else 255
    before = b""
    if colour == 3:
        colours, alpha = palette(depth), np.arange(1 << depth, dtype=np.uint8)
        before = pngs.block(b"PLTE", colours.tobytes()) + pngs.block(b"tRNS", alpha.tobytes())
    got = decoded(pngs.write(pixels, depth, colour, before=before), mode)
    assert got.shape == (13, 11, mode)
    if colour == 3:
        rgb, opacity = colours[pixels[:, :, 0]].astype(int), alpha[pixels[:, :, 0]]
    else:
        shown = pixels * (most // ((1 << depth) - 1))
        rgb = shown[:, :, :3] if channels > 2 else np.repeat(shown[:, :, :1], 3, 2)
        opacity = shown[:, :, -1] if colour in (4, 6) else np.full((13, 11), most)
    if mode > 2:
        np.testing.assert_array_equal(got[:, :, :3], rgb)
    else:
        expected = rgb @ np.array([0.2989, 0.587, 0.1141])
        np.testing.assert_allclose(got[:, :, 0], expected, atol=most / 2000 + 1)
        equal = (rgb == rgb[:, :, :1]).all(2)
        np.testing.assert_array_equal(got[:, :, 0][equal], rgb[:, :, 0][equal])
    if mode in (2, 4):
        np.testing.assert_array_equal(got[:, :, -1], opacity)


@pytest.mark.parametrize("kind", ["RGB", "RGBA", "L", "LA", "P", "1"])
def test_png_of_pillow_agrees_with_pillow(kind: str) -> None:
    pixels = smooth(3)
    picture = Image.fromarray(pixels).convert(kind)
    got = decoded(saved(picture, "PNG"))
    expected = np.array(picture).reshape(33, 41, -1)
    np.testing.assert_array_equal(got, expected * (255 if kind == "1" else 1))


def test_inks_of_jpeg_are_as_they_are_stored_or_colours() -> None:
    data = saved(Image.fromarray(smooth(4), "CMYK"), "JPEG", quality=95)
    inks = decoded(data)
    with Image.open(io.BytesIO(data)) as picture:
        np.testing.assert_array_equal(inks, 255 - np.array(picture))
        np.testing.assert_allclose(decoded(data, 3).astype(int), picture.convert("RGB"), atol=1)
        np.testing.assert_allclose(
            decoded(data, 1)[:, :, 0].astype(int), picture.convert("L"), atol=1
        )


@pytest.mark.parametrize("kind", ["L", "RGB"])
def test_jpeg_is_read_in_its_modes(kind: str) -> None:
    data = saved(Image.fromarray(smooth(3)).convert(kind), "JPEG")
    with Image.open(io.BytesIO(data)) as picture:
        np.testing.assert_array_equal(decoded(data, 3), np.array(picture.convert("RGB")))
        stored = np.array(picture).reshape(33, 41, -1)
        np.testing.assert_array_equal(decoded(data), stored)
        gray = np.array(picture.convert("L")).astype(int)
        np.testing.assert_allclose(decoded(data, 1)[:, :, 0], gray, atol=2)
    for mode in (2, 4):
        with pytest.raises(RuntimeError, match="not supported for JPEG"):
            decoded(data, mode)


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
@pytest.mark.parametrize("turned", range(10))
def test_pictures_are_turned_as_exif_says(kind: str, turned: int) -> None:
    picture, exif = Image.fromarray(smooth(3)), Image.Exif()
    exif[0x0112] = turned
    data = saved(picture, kind, exif=exif)
    plain = decoded(data)
    expected = {
        2: np.fliplr, 3: lambda p: np.rot90(p, 2), 4: np.flipud, 5: lambda p: p.swapaxes(0, 1),
        6: lambda p: np.rot90(p, -1), 7: lambda p: np.rot90(p, 2).swapaxes(0, 1), 8: np.rot90,
    }.get(turned, lambda p: p)(plain)  # fmt: skip
    np.testing.assert_array_equal(decoded(data, exif=True), expected)


@pytest.mark.parametrize("size", [1, 7, 10, 23, 65533])
def test_exif_that_is_broken_turns_nothing(size: int) -> None:
    data = saved(Image.fromarray(smooth(3)), "JPEG", exif=b"1" * size)
    np.testing.assert_array_equal(decoded(data, exif=True), decoded(data))


def test_gif_is_read_frame_by_frame() -> None:
    frames = [Image.fromarray(np.roll(smooth(3), k, 1)).quantize(30) for k in range(3)]
    one = decoded(saved(frames[0], "GIF"))
    np.testing.assert_array_equal(one, np.array(frames[0].convert("RGB")))
    woven = decoded(saved(frames[0], "GIF", interlace=1))
    np.testing.assert_array_equal(woven, one)
    data = saved(frames[0], "GIF", save_all=True, append_images=frames[1:])
    made = tangrad.ops.image.decode_gif(as_tensor(data))
    assert made.shape == (3, 3, 33, 41)
    assert made.is_contiguous(memory_format=tangrad.channels_last)
    for got, frame in zip(made, frames, strict=True):
        np.testing.assert_array_equal(got.permute(1, 2, 0).numpy(), np.array(frame.convert("RGB")))


def test_a_transparent_pixel_of_gif_shows_what_is_below() -> None:
    indices = np.zeros((4, 4), np.uint8)
    indices[1:3] = 1
    frames = [Image.fromarray(i, "P") for i in (np.full((4, 4), 2, np.uint8), indices)]
    for frame in frames:
        frame.putpalette([9, 9, 9, 200, 0, 0, 0, 0, 200])
    data = saved(
        frames[0], "GIF", save_all=True, append_images=frames[1:], transparency=0, disposal=1,
        optimize=False,
    )  # fmt: skip
    second = tangrad.ops.image.decode_gif(as_tensor(data))[1]
    assert second[:, 0, 0].tolist() == [0, 0, 200]
    assert second[:, 1, 1].tolist() == [200, 0, 0]


@pytest.mark.parametrize(("channels", "mode", "expected"), [(3, 0, 3), (4, 0, 4), (3, 4, 4), (4, 3, 3)])  # noqa: E501  # fmt: skip
def test_webp_is_read_with_and_without_alpha(channels: int, mode: int, expected: int) -> None:
    pixels = smooth(channels)
    pixels[:, :, 3:] |= 1
    got = decoded(saved(Image.fromarray(pixels), "WEBP", lossless=True), mode)
    both = min(channels, expected)
    assert got.shape == (33, 41, expected)
    np.testing.assert_array_equal(got[:, :, :both], pixels[:, :, :both])
    assert (got[:, :, channels:] == 255).all()


def test_gray_of_webp_is_a_warning_and_colours() -> None:
    data = saved(Image.fromarray(smooth(3)), "WEBP")
    with pytest.warns(UserWarning, match="does not support grayscale"):
        assert decoded(data, 1).shape == (33, 41, 3)
    moving = [Image.fromarray(smooth(3)), Image.fromarray(255 - smooth(3))]
    data = saved(moving[0], "WEBP", save_all=True, append_images=moving[1:])
    with pytest.raises(RuntimeError, match="Animated webp"):
        decoded(data)


# --- what is no picture ------------------------------------------------------------------------


def test_files_that_end_too_early_are_refused_by_name(tmp_path: Path) -> None:
    picture = Image.fromarray(smooth(3))
    for kind in ("PNG", "JPEG", "GIF", "WEBP"):
        data = saved(picture, kind)
        for cut in (15, 30, len(data) // 2, len(data) - 30):
            path = tmp_path / f"{cut}.{kind}"
            path.write_bytes(data[:cut])
            read = tangrad.ops.image.read_file(str(path))
            with pytest.raises(RuntimeError, match=f"(?s)[0-9].*{cut}.{kind}"):
                tangrad.ops.image.decode_image(read, 0)


def test_files_with_changed_bytes_give_pictures_or_errors() -> None:
    generator = np.random.default_rng(5)
    originals = [saved(Image.fromarray(smooth(3)), k) for k in ("PNG", "JPEG", "GIF", "WEBP")]
    originals.append(pngs.write(drawn(16, 3), 16, 2, interlaced=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for data in originals:
            for _ in range(60):
                changed = bytearray(data)
                for at in generator.integers(0, len(data), 3):
                    changed[at] = generator.integers(0, 256)
                try:
                    decoded(bytes(changed))
                except RuntimeError:
                    continue


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x89PNG", "too small for png"),
        (pngs.head(1 << 20, 1 << 20, 8, 2) + pngs.block(b"IDAT", b"x"), "decompression bomb"),
        (pngs.head(9000, 9000, 8, 2) + pngs.block(b"IDAT", b"x"), "Out of bound read"),
        (pngs.head(4, 4, 3, 2), "bit depth 3"),
        (pngs.head(0, 4, 8, 2), "0 by 4 pixels"),
        (pngs.head(4, 4, 8, 3) + pngs.block(b"IDAT", zlib.compress(bytes(20))), "no palette"),
        (pngs.head(4, 4, 8, 0) + pngs.block(b"IDAT", zlib.compress(b"\x07" * 20)), "filter 7"),
        (pngs.head(4, 4, 8, 0)[:-1] + b"?" + pngs.block(b"IDAT", b""), "wrong checksum"),
        (b"GIF89a" + struct.pack("<HHBBB", 9, 9, 0, 0, 0) + b";", "at least one image"),
        (b"GIF89a" + struct.pack("<HHBBB", 9, 9, 0x80, 0, 0) + bytes(6) + b"," + struct.pack(
            "<HHHHB", 0, 0, 65535, 65535, 0), "decompression bomb"),
        (b"\xff\xd8\xff" + bytes(40), "truncated"),
        (b"neither of them, but long enough", "Unsupported image file"),
    ],
)  # fmt: skip
def test_hostile_files_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        decoded(data)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda image: image.decode_png(tangrad.zeros(2, 2).byte(), 0), "must be 1-dimensional"),
        (lambda image: image.decode_png(tangrad.ones(9), 0), "must have uint8 data type"),
        (lambda image: image.decode_jpeg(tangrad.ones(9).byte()[::2], 0), "must be contiguous"),
        (lambda image: image.decode_jpeg(tangrad.ones(9).byte(), 0), "Not a JPEG file"),
        (lambda image: image.decode_webp(tangrad.ones(9).byte(), 0), "WebPGetFeatures failed"),
        (lambda image: image.decode_gif(tangrad.ones(9).byte()), "DGifOpenFileName.* - 103"),
        (lambda image: image.encode_png(tangrad.ones(3, 2, 2), 6), "dtype should be uint8"),
        (lambda image: image.encode_png(tangrad.ones(3, 2, 2).byte(), 10), "between 0 and 9"),
        (lambda image: image.encode_jpeg(tangrad.ones(2, 2).byte(), 9), "3-dimensional"),
        (lambda image: image.encode_jpeg(tangrad.ones(5, 2, 2).byte(), 9), "1 or 3, got: 5"),
        (lambda image: image.encode_jpeg(tangrad.ones(1, 1, 65501).byte(), 9), "is 65500 pixels"),
        (lambda image: image.read_file("/no/such"), r"\[Errno 2\] No such file.*'/no/such'"),
        (lambda image: image.write_file("/no/such", tangrad.ones(2).byte()), "Error opening"),
        (lambda image: image.write_file("x", tangrad.ones(2)), "dtype should be uint8"),
    ],
)
def test_calls_that_cannot_be_are_refused(call: Any, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        call(tangrad.ops.image)
