"""Convolution of images whose channels are neighbours, against the one plane by plane."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tangrad
from tangrad.ops.nn.convolution import convolution_input
from tangrad.ops.nn.convolution_channels_last import convolution_channels_last
from tangrad_cpu import _kernels

F = tangrad.nn.functional


def whole_numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    """Give numbers whose sums of products are exact in any order."""
    return tangrad.from_numpy(rng.integers(-4, 5, shape).astype(dtype))


def last(x: Any) -> Any:
    return x.contiguous(memory_format=tangrad.channels_last)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["float32", "float64"]),
    st.sampled_from([2, 3, 4, 16, 31, 128, 256, 300]),
    st.sampled_from([1, 7, 8, 16, 33, 65]),
    st.data(),
)
def test_results_are_those_of_planes(
    seed: int, dtype: str, channels: int, maps: int, data: Any
) -> None:
    def pair(low: int, high: int) -> tuple[int, int]:
        return (data.draw(st.integers(low, high)), data.draw(st.integers(low, high)))

    kernel, stride, padding, dilation, more = (
        pair(1, 4),
        pair(1, 3),
        pair(0, 3),
        pair(1, 3),
        pair(0, 16),
    )
    sizes = tuple((k - 1) * d + 1 + m for k, d, m in zip(kernel, dilation, more, strict=True))
    rng = np.random.default_rng(seed)
    x = whole_numbers(rng, (data.draw(st.integers(1, 3)), channels, *sizes), dtype)
    w = whole_numbers(rng, (maps, channels, *kernel), dtype)
    windows = (stride, padding, dilation)
    wanted = F.conv2d(x, w, None, *windows)
    pixels = last(x).permute(0, 2, 3, 1)
    if data.draw(st.booleans()):  # rows and images with gaps
        pixels = pixels.repeat_interleave(2, 1)[:, ::2]
    if data.draw(st.booleans()):
        w = last(w)
    found = convolution_channels_last(pixels, w, *windows)
    assert found.is_contiguous()
    assert found.permute(0, 3, 1, 2).equal(wanted)
    if maps >= 8:
        through = F.conv2d(last(x), w, None, *windows)
        assert through.equal(wanted)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(0, 2),
    st.integers(1, 2),
)
def test_gradients_are_those_of_planes(
    seed: int, side: int, stride: int, padding: int, dilation: int
) -> None:
    rng = np.random.default_rng(seed)
    x, w = (
        whole_numbers(rng, (2, 9, 7, 8), "float32"),
        whole_numbers(rng, (9, 9, side, side), "float32"),
    )
    b = whole_numbers(rng, (9,), "float32")
    found = []
    for form in (last, lambda t: t.clone()):
        leaves = [form(x).requires_grad_(), form(w).requires_grad_(), b.clone().requires_grad_()]
        y = F.conv2d(*leaves, stride, padding, dilation)
        seeds = tangrad.arange(y.numel()).remainder(7).reshape(y.shape).to(y.dtype)
        found.append([y.detach(), *tangrad.autograd.grad(y, leaves, seeds)])
    for mine, other in zip(*found, strict=True):
        assert mine.equal(other)
    if stride == 1 and padding < side:
        assert found[0][1].is_contiguous(memory_format=tangrad.channels_last)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["float32", "float64", "bfloat16"]),
    st.sampled_from([1, 3, 8, 16, 31, 256, 300]),
    st.sampled_from([1, 2, 7, 16, 33, 65]),
    st.data(),
)
def test_inputs_are_those_of_planes(
    seed: int, dtype: str, maps: int, channels: int, data: Any
) -> None:
    def pair(low: int, high: int) -> tuple[int, int]:
        return (data.draw(st.integers(low, high)), data.draw(st.integers(low, high)))

    kernel, stride, dilation, out = pair(1, 4), pair(1, 3), pair(1, 3), pair(1, 17)
    padding = tuple(
        data.draw(st.integers(0, (k - 1) * d)) for k, d in zip(kernel, dilation, strict=True)
    )
    size = tuple(
        max(1, (n - 1) * s + (k - 1) * d + 1 - 2 * p + data.draw(st.integers(0, s - 1)))
        for n, s, k, d, p in zip(out, stride, kernel, dilation, padding, strict=True)
    )
    out = tuple(
        (n + 2 * p - (k - 1) * d - 1) // s + 1
        for n, s, k, d, p in zip(size, stride, kernel, dilation, padding, strict=True)
    )
    groups = data.draw(st.sampled_from([1, 1, 2]))
    if min(out) < 1:
        return
    rng = np.random.default_rng(seed)
    images = data.draw(st.integers(1, 3))
    grad = whole_numbers(rng, (images, maps * groups, *out), "float64").to(getattr(tangrad, dtype))
    w = whole_numbers(rng, (maps * groups, channels, *kernel), "float64").to(grad.dtype)
    steps = (stride, padding, dilation, groups)
    shape = (images, channels * groups, *size)
    wanted = convolution_input(w, grad, shape, *steps)
    turned, last_format = last(grad), tangrad.channels_last
    if data.draw(st.booleans()):  # rows with gaps
        turned = turned.repeat_interleave(2, 2)[:, :, ::2]
    found = convolution_input(last(w) if data.draw(st.booleans()) else w, turned, shape, *steps)
    assert found.equal(wanted)
    if min(out) > 1 and maps * groups > 1 and turned.is_contiguous(memory_format=last_format):
        assert found.is_contiguous(memory_format=last_format)


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize(("groups", "maps"), [(1, 12), (1, 5), (3, 12)])
def test_transposed_ones_and_their_gradients_are_those_of_planes(
    stride: int, groups: int, maps: int
) -> None:
    rng = np.random.default_rng(3)
    x = whole_numbers(rng, (2, 12, 7, 8), "float32")
    w = whole_numbers(rng, (12, maps // groups, 3, 2), "float32")
    b = whole_numbers(rng, (maps // groups * groups,), "float32")
    found = []
    for form in (last, lambda t: t.clone()):
        leaves = [form(x).requires_grad_(), form(w).requires_grad_(), b.clone().requires_grad_()]
        y = F.conv_transpose2d(*leaves, stride, 1, stride - 1, groups)
        seeds = tangrad.arange(y.numel()).remainder(7).reshape(y.shape).to(y.dtype)
        found.append([y, *tangrad.autograd.grad(y, leaves, seeds)])
    for mine, other in zip(*found, strict=True):
        assert mine.equal(other)
    assert found[0][0].is_contiguous(memory_format=tangrad.channels_last)


def test_further_derivatives_of_transposed_ones_are_right() -> None:
    x = last(tangrad.rand(1, 3, 3, 2, dtype=tangrad.float64)).requires_grad_()
    w = tangrad.rand(3, 2, 2, 2, dtype=tangrad.float64, requires_grad=True)
    f = lambda a, b: F.conv_transpose2d(a, b, None, 2)  # noqa: E731
    assert tangrad.autograd.gradcheck(f, (x, w))
    assert tangrad.autograd.gradgradcheck(f, (x, w))


def test_an_input_without_an_infinity_in_its_windows_has_none() -> None:
    grad = tangrad.ones(1, 8, 5, 5)
    grad[0, 3, 2, 2] = float("inf")
    w = tangrad.ones(8, 4, 2, 2)
    found = F.conv_transpose2d(last(grad), w, None, 2)
    assert found.equal(F.conv_transpose2d(grad, w, None, 2))
    assert int(found.isinf().sum()) == 4 * 4


def test_second_derivatives_are_right() -> None:
    x = last(tangrad.rand(1, 2, 3, 4, dtype=tangrad.float64)).requires_grad_()
    w = tangrad.rand(8, 2, 2, 2, dtype=tangrad.float64, requires_grad=True)
    assert tangrad.autograd.gradgradcheck(lambda a, b: F.conv2d(a, b, None, 1, 1), (x, w))
    assert tangrad.autograd.gradcheck(
        lambda a, b: F.conv2d(a, b, None, 2), (x, w), check_forward_ad=True
    )


def test_a_number_that_is_none_stays_in_its_windows() -> None:
    x = tangrad.ones(1, 3, 4, 4)
    x[0, 1, 0, 0] = float("nan")
    x[0, 0, 3, 3] = float("inf")
    w = tangrad.ones(8, 3, 2, 2)
    found, wanted = F.conv2d(last(x), w, padding=1), F.conv2d(x, w, padding=1)
    np.testing.assert_array_equal(found.numpy(), wanted.numpy())


@pytest.mark.parametrize("shape", [(0, 3, 4, 4), (2, 3, 4, 4)])
def test_no_images_and_no_maps_give_nothing(shape: tuple[int, ...]) -> None:
    pixels = tangrad.ones(shape).permute(0, 2, 3, 1).contiguous()
    found = convolution_channels_last(pixels, tangrad.ones(8, 3, 2, 2), (1, 1), (0, 0), (1, 1))
    assert tuple(found.shape) == (shape[0], 3, 3, 8)


def test_batching_is_that_of_single_images() -> None:
    x, w = tangrad.rand(3, 2, 5, 5, 4), tangrad.rand(3, 8, 4, 2, 2)
    windows = ((1, 1), (1, 0), (1, 1))
    wanted = tangrad.stack(
        [convolution_channels_last(a, b, *windows) for a, b in zip(x, w, strict=True)]
    )
    both = tangrad.vmap(lambda a, b: convolution_channels_last(a, b, *windows))(x, w)
    tangrad.testing.assert_close(both, wanted)
    one = tangrad.vmap(lambda a: convolution_channels_last(a, w[0], *windows))(x)
    tangrad.testing.assert_close(one[0], wanted[0])


def test_bits_do_not_depend_on_the_threads() -> None:
    before = tangrad.get_num_threads()
    given_ = [
        (tangrad.rand(2, 30, 29, 64), tangrad.rand(70, 64, 3, 3)),
        (tangrad.rand(3, 7, 7, 256), tangrad.rand(256, 256, 3, 3)),
    ]
    found = []
    try:
        for threads in (1, 2, 5):
            _kernels.set_num_threads(threads)
            found.append(
                [
                    y.contiguous().numpy().tobytes()
                    for x, w in given_
                    for y in (
                        convolution_channels_last(x, w, (1, 1), (1, 1), (1, 1)),
                        F.conv_transpose2d(x.permute(0, 3, 1, 2), w.transpose(0, 1), None, 2),
                    )
                ]
            )
    finally:
        tangrad.set_num_threads(before)
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("calls", [0, 1])
def test_missing_working_memory_is_an_error(calls: int) -> None:
    x, w = tangrad.rand(1, 5, 5, 8), tangrad.rand(8, 8, 3, 3)
    _kernels.fail_scratch_after(calls)
    try:
        with pytest.raises(MemoryError):
            convolution_channels_last(x, w, (1, 1), (1, 1), (1, 1))
    finally:
        _kernels.fail_scratch_after(-1)


@pytest.mark.parametrize(("dtype", "calls"), [("float32", 0), ("float32", 1), ("bfloat16", 0)])
def test_missing_working_memory_for_an_input_is_an_error(dtype: str, calls: int) -> None:
    grad = last(tangrad.rand(1, 256, 5, 5)).to(getattr(tangrad, dtype))
    w = tangrad.rand(256, 8, 3, 3).to(grad.dtype)
    _kernels.fail_scratch_after(calls)
    try:
        with pytest.raises(MemoryError):
            F.conv_transpose2d(grad, w)
    finally:
        _kernels.fail_scratch_after(-1)
