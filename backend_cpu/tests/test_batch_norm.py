"""Batch normalization and its gradient agree with float64, whatever the layout."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tangrad
from tangrad.nn.functional import batch_norm
from tangrad_cpu import _kernels

TOLERANCE = {"float32": 2e-5, "float64": 1e-12, "float16": 1e-2, "bfloat16": 6e-2}
# Runs of a channel: single numbers, short ones that are gathered, long ones cut into pieces.
SHAPES = [(2, 1), (300, 7), (40, 600), (9, 3, 5), (130, 2, 49), (2, 3, 5000), (3, 70, 4, 8)]


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from(SHAPES),
    st.sampled_from(sorted(TOLERANCE)),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["packed", "channels last", "gaps"]),
)
def test_result_and_gradients(
    shape: tuple[int, ...], dtype: str, affine: bool, training: bool, layout: str
) -> None:
    rng = np.random.default_rng(shape[0])
    kind = getattr(tangrad, dtype)
    values = rng.standard_normal(shape) * 3 + 10
    x = tangrad.from_numpy(values).to(kind)
    if layout == "channels last" and x.ndim == 4:
        x = x.contiguous(memory_format=tangrad.channels_last)
    elif layout == "gaps":
        x = tangrad.stack([x, x], -1)[..., 0]
    g = tangrad.from_numpy(rng.standard_normal(shape)).to(kind)
    channels = shape[1]
    weight = tangrad.from_numpy(rng.standard_normal(channels)).to(kind) if affine else None
    bias = tangrad.from_numpy(rng.standard_normal(channels)).to(kind) if affine else None
    running_mean = tangrad.full((channels,), 9.0)
    running_var = tangrad.full((channels,), 4.0)
    leaves = [x.detach().requires_grad_()]
    if affine:
        leaves += [weight.requires_grad_(), bias.requires_grad_()]
    y = batch_norm(leaves[0], running_mean, running_var, weight, bias, training, 0.25)
    y.backward(g)

    axes, wide = (0, *range(2, len(shape))), (1, -1) + (1,) * (len(shape) - 2)
    exact, cotangent = x.double().numpy(), g.double().numpy()
    count = exact.size // channels
    mean, var = (exact.mean(axes), exact.var(axes)) if training else (9.0, 4.0)
    mean, var = np.broadcast_to(mean, channels), np.broadcast_to(var, channels)
    rstd = (1 / np.sqrt(var + 1e-5)).reshape(wide)
    normal = (exact - mean.reshape(wide)) * rstd
    w = weight.detach().double().numpy().reshape(wide) if affine else 1.0
    b = bias.detach().double().numpy().reshape(wide) if affine else 0.0
    by_weight, by_bias = (cotangent * normal).sum(axes), cotangent.sum(axes)
    inner = cotangent
    if training:
        inner = inner - (by_bias / count).reshape(wide) - normal * (by_weight / count).reshape(wide)
    close = TOLERANCE[dtype]
    np.testing.assert_allclose(y.detach().double().numpy(), normal * w + b, rtol=close, atol=close)
    expected = [inner * w * rstd, by_weight, by_bias]
    for tensor, gradient in zip(leaves, expected, strict=False):
        # Gradients of parameters add the errors of all elements of a channel.
        np.testing.assert_allclose(
            tensor.grad.double().numpy(), gradient, rtol=8 * close, atol=4 * close * count**0.5
        )
    if training:
        np.testing.assert_allclose(running_mean.numpy(), 6.75 + 0.25 * mean, rtol=1e-5)
        unbiased = var * (count / (count - 1))
        np.testing.assert_allclose(running_var.numpy(), 3 + 0.25 * unbiased, rtol=1e-4)
    else:
        assert running_mean.tolist() == [9.0] * channels


def test_variance_of_numbers_far_from_zero_is_accurate() -> None:
    x = tangrad.randn(64, 3, 40, generator=tangrad.Generator().manual_seed(0)) + 10_000
    exact = x.double().numpy()
    y = batch_norm(x, None, None, training=True).double().numpy()
    centered = exact - exact.mean((0, 2), keepdims=True)
    # Numbers of this size are known to 2^-11; the mean is used as float32.
    np.testing.assert_allclose(y, centered / exact.std((0, 2), keepdims=True), atol=2e-3)


def test_channels_last_stays() -> None:
    x = tangrad.randn(2, 3, 4, 5).contiguous(memory_format=tangrad.channels_last)
    y = batch_norm(x.requires_grad_(), None, None, training=True)
    assert y.stride() == x.stride()
    y.sum().backward()
    assert x.grad.shape == x.shape


@pytest.mark.parametrize("shape", [(4, 8), (4, 8, 3)])
def test_missing_working_memory_is_an_error(shape: tuple[int, ...]) -> None:
    x = tangrad.randn(*shape)
    _kernels.fail_scratch_after(0)
    try:
        with pytest.raises(MemoryError, match="working space"):
            batch_norm(x, None, None, training=True)
    finally:
        _kernels.fail_scratch_after(-1)
    assert batch_norm(x, None, None, training=True).shape == shape
