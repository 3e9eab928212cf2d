"""Observed and learned fake quantization, and the search of ranges, beside PyTorch's ops."""

import numpy as np
import pytest
import torch
from quantized_pairs import both, data, ours, theirs

import tangrad


def close(a, b, tolerance=1e-6):
    a, b = np.asarray(a.detach().numpy()), np.asarray(b.detach().numpy())
    assert a.shape == b.shape
    # Steps of float32: sums of gradients are taken in another order.
    assert np.allclose(a, b, rtol=tolerance, atol=tolerance), (a, b)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("by_channel", [False, True])
@pytest.mark.parametrize("rounding", [0, 1])
def test_observing_and_rounding_are_pytorchs(by_channel, symmetric, rounding):
    count = 5 if by_channel else 1
    states = [
        (
            side.full((count,), float("inf")),
            side.full((count,), float("-inf")),
            side.ones(count),
            side.zeros(count, dtype=side.int32),
        )
        for side in (torch, tangrad)
    ]
    levels = (-128, 127) if symmetric else (0, 255)
    for step in range(4):
        results = []
        for side, x, state in zip((torch, tangrad), both(data(5, 3, 2, seed=step)), states,
                                  strict=True):  # fmt: skip
            x.requires_grad_()
            y = side.fused_moving_avg_obs_fake_quant(
                x, side.tensor([int(step != 2)]), side.tensor([rounding]), *state, 0.1, *levels, 0,
                by_channel, symmetric,
            )  # fmt: skip
            (y * y).sum().backward()
            results.append((y, x.grad, *state))
        for a, b in zip(*results, strict=True):
            close(a, b)


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("zero", [0.0, 2.3, 2.6])
def test_learned_steps_have_pytorchs_gradients(axis, zero):
    results = []
    for side, x in zip((torch, tangrad), both(data(4, 6, scale=3)), strict=True):
        count = 1 if axis is None else x.shape[axis]
        scale = (side.arange(count).float() * 0.02 + 0.1).requires_grad_()
        level = side.full((count,), zero).requires_grad_()
        x.requires_grad_()
        if axis is None:
            y = side._fake_quantize_learnable_per_tensor_affine(x, scale, level, 0, 15, 0.5)
        else:
            y = side._fake_quantize_learnable_per_channel_affine(x, scale, level, axis, 0, 15, 0.5)
        (y * side.arange(24.0).reshape(4, 6)).sum().backward()
        results.append((y, x.grad, scale.grad, level.grad))
    for a, b in zip(*results, strict=True):
        close(a, b, 1e-5)


@pytest.mark.parametrize("seed", range(20))
def test_the_range_of_least_error_is_pytorchs(seed):
    generator = np.random.default_rng(seed)
    row = (generator.standard_t(3, 40) * 10.0 ** generator.integers(-3, 3)).astype("float32")
    bits, ratio = int(generator.choice([2, 4, 8])), float(generator.choice([0.16, 0.5, 0.9]))
    found = tangrad.choose_qparams_optimized(tangrad.from_numpy(row), 32, 200, ratio, bits)
    expected = torch.choose_qparams_optimized(torch.from_numpy(row), 32, 200, ratio, bits)
    for a, b in zip(expected, found, strict=True):
        close(a, b)


def test_modules_are_printed_as_pytorchs():
    for name in ("FakeQuantize", "FusedMovingAvgObsFakeQuantize"):
        expected, found = (repr(getattr(side, name)()) for side in (theirs, ours))
        assert found == expected.replace("torch.", "tangrad.")


def test_bad_input_is_refused():
    x = tangrad.ones(3, 4)
    with pytest.raises(RuntimeError, match="numel is out of the bound"):
        tangrad.choose_qparams_optimized(x, 13, 10, 0.1, 4)
    with pytest.raises(RuntimeError, match="NaN or infinity"):
        tangrad.choose_qparams_optimized(x / 0, 12, 10, 0.1, 4)
    with pytest.raises(RuntimeError, match="bit_width"):
        tangrad.choose_qparams_optimized(x, 12, 10, 0.1, 0)
    learned = tangrad._fake_quantize_learnable_per_tensor_affine
    one, zero = tangrad.ones(1), tangrad.zeros(1)
    with pytest.raises(RuntimeError, match="scale must have one element"):
        learned(x, tangrad.ones(2), zero, 0, 15)
    with pytest.raises(RuntimeError, match="less than or equal"):
        learned(x, one, zero, 15, 0)
    with pytest.raises(RuntimeError, match="scale must be positive"):
        learned(x, -one, zero, 0, 15)
    with pytest.raises(RuntimeError, match="float32"):
        learned(x.double(), one, zero, 0, 15)
    with pytest.raises(RuntimeError, match="channels of axis 1"):
        tangrad._fake_quantize_learnable_per_channel_affine(x, one, zero, 1, 0, 15)
    state = [tangrad.ones(1) for _ in range(3)] + [tangrad.zeros(1, dtype=tangrad.int32)]
    with pytest.raises(RuntimeError, match="ch_axis 2"):
        tangrad.fused_moving_avg_obs_fake_quant(x, one, one, *state, 0.1, 0, 255, 2, True)
    with pytest.raises(RuntimeError, match="averaging_const"):
        tangrad.fused_moving_avg_obs_fake_quant(x, one, one, *state, 1.5, 0, 255, 0)
