"""Convolution by its definition, and its three faces as each other's adjoints."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tangrad
from tangrad.ops.nn.convolution import convolution_input, convolution_weight


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape)


def correlate(x: Any, w: Any, stride: int, padding: int, dilation: int, groups: int) -> Any:
    """Sum over taps and channels, one output element after the other."""
    x = np.pad(x, [(0, 0), (0, 0), (padding, padding), (padding, padding)])
    taps = [
        (n - dilation * (k - 1) - 1) // stride + 1
        for n, k in zip(x.shape[2:], w.shape[2:], strict=True)
    ]
    result = np.zeros((x.shape[0], w.shape[0], *taps))
    per_group, outputs = w.shape[1], w.shape[0] // groups
    for n, o, i, j in np.ndindex(*result.shape):
        first = o // outputs * per_group
        seen = x[n, first : first + per_group, i * stride :, j * stride :]
        seen = seen[:, ::dilation, ::dilation][:, : w.shape[2], : w.shape[3]]
        result[n, o, i, j] = (seen * w[o]).sum()
    return result


CASES = [(1, 0, 1, 1), (2, 1, 1, 1), (1, 1, 2, 1), (3, 2, 1, 2), (1, 0, 2, 2)]


@pytest.mark.parametrize(("stride", "padding", "dilation", "groups"), CASES)
def test_conv2d_correlates(stride: int, padding: int, dilation: int, groups: int) -> None:
    x, w = numbers(2, 4, 6, 5), numbers(6, 4 // groups, 2, 3, seed=1)
    result = tangrad.conv2d(
        tangrad.tensor(x), tangrad.tensor(w), None, stride, padding, dilation, groups
    )
    expected = correlate(x, w, stride, padding, dilation, groups)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("stride", "padding", "dilation", "groups"), CASES)
def test_the_three_faces_are_adjoint(stride: int, padding: int, dilation: int, groups: int) -> None:
    args = (stride,) * 2, (padding,) * 2, (dilation,) * 2, groups
    x, w = tangrad.tensor(numbers(2, 4, 6, 5)), tangrad.tensor(numbers(4, 4 // groups, 2, 3))
    y = tangrad.conv2d(x, w, None, *args)
    g = tangrad.tensor(numbers(*y.shape, seed=2))
    product = (y * g).sum().item()
    by_input = (convolution_input(w, g, x.shape, *args) * x).sum().item()
    by_weight = (convolution_weight(x, g, w.shape, *args) * w).sum().item()
    assert by_input == pytest.approx(product)
    assert by_weight == pytest.approx(product)


def test_same_padding_keeps_the_size_and_pads_the_end_more() -> None:
    x, w = tangrad.ones(1, 1, 3, 3), tangrad.ones(1, 1, 2, 2)
    result = tangrad.conv2d(x, w, padding="same")
    assert result.shape == (1, 1, 3, 3)
    assert result[0, 0].tolist() == [[4, 4, 2], [4, 4, 2], [2, 2, 1]]


def test_an_unbatched_image_gives_an_unbatched_result() -> None:
    assert tangrad.conv2d(tangrad.ones(2, 4, 4), tangrad.ones(3, 2, 2, 2)).shape == (3, 3, 3)


def test_a_batch_without_samples_gives_zero_gradients() -> None:
    weight = tangrad.ones(3, 2, 2, 2, requires_grad=True)
    tangrad.conv2d(tangrad.ones(0, 2, 4, 4), weight).sum().backward()
    assert weight.grad.tolist() == tangrad.zeros(3, 2, 2, 2).tolist()


def test_wrong_channels_are_named() -> None:
    with pytest.raises(RuntimeError, match="to have 3 channels, but got 2 channels instead"):
        tangrad.conv2d(tangrad.ones(1, 2, 4, 4), tangrad.ones(1, 3, 2, 2))


@pytest.mark.parametrize("name", ["Conv2d", "ConvTranspose2d"])
@pytest.mark.parametrize("window", [1, 3])
def test_images_come_channels_last_where_the_weight_is(name: str, window: int) -> None:
    made = []
    for t in (tangrad, torch):
        layer = getattr(t.nn, name)(4, 8, window).to(memory_format=t.channels_last)
        made.append(layer(t.ones(2, 4, 8, 8)).stride())
    assert made[0] == made[1]
    assert made[0][1] == 1
