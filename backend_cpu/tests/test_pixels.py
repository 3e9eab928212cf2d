"""Resampled pictures of bytes are the reference's to the bit, whatever their layout and size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tangrad
import tangrad.nn.functional as F
from tangrad_cpu import _kernels

sizes = st.sampled_from([1, 2, 3, 7, 15, 16, 17, 31, 64, 65, 70, 129])


def laid_out(x: np.ndarray[Any, Any], layout: str) -> Any:
    """Return the picture (N, C, H, W) in one of the layouts that kernels tell apart."""
    pixels = tangrad.from_numpy(x)
    if layout == "channels_last":
        return pixels.contiguous(memory_format=tangrad.channels_last)
    if layout == "every second":
        return pixels.repeat_interleave(2, 3)[..., ::2]
    if layout == "turned":
        return pixels.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0)
    if layout == "cropped":
        wide = F.pad(pixels, (3, 2, 1, 4), value=255)
        return wide.contiguous(memory_format=tangrad.channels_last)[:, :, 1:-4, 3:-2]
    return pixels


@settings(max_examples=120, deadline=None)
@given(
    st.integers(0, 2**31),
    st.sampled_from([1, 2, 3]),
    st.sampled_from([1, 2, 3, 4, 5]),
    st.tuples(sizes, sizes),
    st.tuples(sizes, sizes),
    st.sampled_from([("bilinear", False), ("bilinear", True), ("bicubic", True)]),
    st.sampled_from(["planes", "channels_last", "every second", "turned", "cropped"]),
    st.sampled_from(["noise", "white", "edges"]),
)
def test_resampled_bytes_are_those_of_the_reference(
    seed: int,
    pictures: int,
    channels: int,
    old: tuple[int, int],
    new: tuple[int, int],
    mode: tuple[Any, bool],
    layout: str,
    content: str,
) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 256, (pictures, channels, *old)).astype(np.uint8)
    if content != "noise":
        # Curves overshoot at edges, and sums reach both ends of what a byte holds.
        x = np.full_like(x, 255) if content == "white" else (x > 127).astype(np.uint8) * 255
    given_, reference = laid_out(x, layout), tangrad.from_numpy(x).to("reference")
    found, wanted = (
        F.interpolate(y, new, mode=mode[0], antialias=mode[1]) for y in (given_, reference)
    )
    np.testing.assert_array_equal(found.numpy(), wanted.cpu().numpy())


def test_sums_beyond_single_precision_are_exact() -> None:
    x = (np.random.default_rng(20744).integers(0, 256, (1, 2, 70, 64)) > 127).astype(np.uint8) * 255
    found, wanted = (
        F.interpolate(y, (17, 129), mode="bilinear", antialias=True)
        for y in (tangrad.from_numpy(x), tangrad.from_numpy(x).to("reference"))
    )
    assert found[0, 1, 11, 110] == 130
    np.testing.assert_array_equal(found.numpy(), wanted.cpu().numpy())


def test_resampled_bytes_do_not_depend_on_the_threads() -> None:
    x = np.random.default_rng(0).integers(0, 256, (2, 3, 75, 91)).astype(np.uint8)
    before, found = tangrad.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            _kernels.set_num_threads(threads)
            found.append([
                F.interpolate(laid_out(x, layout), (40, 131), mode="bicubic", antialias=True)
                .numpy()
                .tobytes()
                for layout in ("planes", "channels_last")
            ])  # fmt: skip
    finally:
        tangrad.set_num_threads(before)
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("layout", ["planes", "every second"])
@pytest.mark.parametrize("calls", range(3))
def test_missing_memory_for_bytes_is_an_error(calls: int, layout: str) -> None:
    x = laid_out(np.zeros((1, 3, 40, 40), np.uint8), layout)
    _kernels.fail_scratch_after(calls)
    try:
        with pytest.raises(MemoryError, match="interpolate"):
            F.interpolate(x, (20, 20), mode="bilinear", antialias=True)
    finally:
        _kernels.fail_scratch_after(-1)
    assert F.interpolate(x, (20, 20), mode="bilinear", antialias=True).eq(0).all()
