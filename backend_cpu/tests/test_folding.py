"""Windows become columns, and columns are added up, as on the reference device."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tangrad
from tangrad.ops.nn.unfold import col2im, im2col
from tangrad_cpu import _kernels


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(["float32", "float64", "bfloat16"]), st.data())
def test_agrees_with_the_reference(dtype: str, data: st.DataObject) -> None:
    def pair(low: int, high: int) -> tuple[int, int]:
        return (data.draw(st.integers(low, high)), data.draw(st.integers(low, high)))

    kernel, dilation, padding, stride, more = (
        pair(1, 4),
        pair(1, 3),
        pair(0, 4),
        pair(1, 3),
        pair(0, 20),
    )
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    size = tuple(max(1, r + m - 2 * p) for r, m, p in zip(reach, more, padding, strict=True))
    positions = [
        (n + 2 * p - r) // s + 1 for n, p, r, s in zip(size, padding, reach, stride, strict=True)
    ]
    if min(positions) < 1:
        return
    lead = data.draw(st.sampled_from([(), (1,), (3,), (0,)]))
    channels = data.draw(st.integers(1, 3))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**31)))
    shape = (*lead, channels * kernel[0] * kernel[1], positions[0] * positions[1])
    values = rng.standard_normal(shape)
    values[rng.random(shape) < 0.02] = rng.choice([np.nan, np.inf, -0.0])
    x = tangrad.from_numpy(values).to(getattr(tangrad, dtype))
    if data.draw(st.booleans()):
        x = x.transpose(-1, -2).contiguous().transpose(-1, -2)
    geometry = (size, kernel, dilation, padding, stride)
    got, wanted = col2im(x, *geometry), col2im(x.to("reference"), *geometry)
    assert got.shape == wanted.shape
    np.testing.assert_array_equal(got.float().numpy(), wanted.cpu().float().numpy())
    image = tangrad.from_numpy(rng.standard_normal(tuple(got.shape))).to(got.dtype)
    if data.draw(st.booleans()):
        image = image.transpose(-1, -3).contiguous().transpose(-1, -3)
    got, wanted = (im2col(y, *geometry[1:]) for y in (image, image.to("reference")))
    assert got.shape == wanted.shape
    np.testing.assert_array_equal(got.float().numpy(), wanted.cpu().float().numpy())


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    x = tangrad.randn(4, 16 * 9, 40 * 41)
    before, found = _kernels.get_num_threads(), []
    try:
        for threads in (1, 2, 4):
            _kernels.set_num_threads(threads)
            y = col2im(x, (40, 41), (3, 3), (1, 1), (1, 1), (1, 1))
            z = im2col(y, (3, 3), (1, 1), (1, 1), (1, 1))
            found.append((y.numpy().tobytes(), z.numpy().tobytes()))
    finally:
        _kernels.set_num_threads(before)
    assert found[0] == found[1] == found[2]


def test_missing_working_memory_is_an_error() -> None:
    x = tangrad.randn(1, 9, 8).transpose(1, 2)
    _kernels.fail_scratch_after(0)
    try:
        with pytest.raises(MemoryError, match="fold"):
            tangrad.nn.functional.fold(x, (4, 4), 2)
    finally:
        _kernels.fail_scratch_after(-1)
