"""Functions of quantized tensors beside PyTorch's: the same integers, scales and refusals."""

import importlib

import numpy as np
import pytest
import torch
import torch.ao.nn.quantized.functional as their_functional
from quantized_pairs import data, quiet

import tangrad

our_functional = importlib.import_module("tangrad.ao.nn.quantized.functional")
SIDES = ((torch, their_functional), (tangrad, our_functional))


def quantized(side, shape, scale=0.05, zero=100, dtype="quint8", seed=0):
    x = side.from_numpy(data(*shape, seed=seed))
    return quiet(side.quantize_per_tensor, x, scale, zero, getattr(side, dtype))


def weight(side, shape):
    return quantized(side, shape, 0.02, 0, "qint8", seed=1)


CASES = {
    "avg_pool2d": ((2, 3, 6, 6), lambda f, x, w: f.avg_pool2d(x, 2)),
    "avg_pool3d": ((2, 3, 4, 4, 4), lambda f, x, w: f.avg_pool3d(x, 2, 1)),
    "adaptive_avg_pool2d": ((2, 3, 6, 6), lambda f, x, w: f.adaptive_avg_pool2d(x, 3)),
    "adaptive_avg_pool3d": ((2, 3, 4, 4, 4), lambda f, x, w: f.adaptive_avg_pool3d(x, 2)),
    "conv1d": (
        (2, 4, 9),
        lambda f, x, w: f.conv1d(x, w(3, 4, 3), None, padding=1, scale=0.3, zero_point=90),
    ),
    "conv2d": (
        (2, 4, 7, 7),
        lambda f, x, w: f.conv2d(x, w(6, 2, 3, 3), None, 2, 1, 1, 2, scale=0.2, zero_point=99),
    ),
    "conv3d": (
        (1, 2, 4, 4, 4),
        lambda f, x, w: f.conv3d(x, w(3, 2, 3, 3, 3), None, scale=0.2, zero_point=120),
    ),
    "linear": ((5, 16), lambda f, x, w: f.linear(x, w(7, 16), None, 0.2, 80)),
    "linear, scale of the input": ((5, 16), lambda f, x, w: f.linear(x, w(7, 16))),
    "max_pool1d": ((2, 3, 8), lambda f, x, w: f.max_pool1d(x, 3, 2, 1)),
    "max_pool2d": ((2, 3, 8, 8), lambda f, x, w: f.max_pool2d(x, 3, 2, 1)),
    "interpolate": ((2, 3, 4, 4), lambda f, x, w: f.interpolate(x, scale_factor=2)),
    "upsample": ((2, 3, 4, 4), lambda f, x, w: quiet(f.upsample, x, 8)),
    "upsample_nearest": ((2, 3, 4, 4), lambda f, x, w: quiet(f.upsample_nearest, x, 8)),
    "upsample_bilinear": ((2, 3, 4, 4), lambda f, x, w: quiet(f.upsample_bilinear, x, 7)),
    "celu": ((4, 6), lambda f, x, w: f.celu(x, 0.04, 60, 1.5)),
    "elu": ((4, 6), lambda f, x, w: f.elu(x, 0.04, 60, 1.5)),
    "leaky_relu": ((4, 6), lambda f, x, w: f.leaky_relu(x, 0.2)),
    "leaky_relu, rescaled": (
        (4, 6),
        lambda f, x, w: f.leaky_relu(x, 0.2, scale=0.03, zero_point=40),
    ),
    "leaky_relu, in place": ((4, 6), lambda f, x, w: f.leaky_relu(x, 0.2, True)),
    "hardtanh": ((4, 6), lambda f, x, w: f.hardtanh(x, -0.5, 0.7)),
    "hardtanh, in place": ((4, 6), lambda f, x, w: f.hardtanh(x, -0.5, 0.7, True)),
    "hardswish": ((4, 6), lambda f, x, w: f.hardswish(x, 0.03, 30)),
    "hardsigmoid": ((4, 6), lambda f, x, w: f.hardsigmoid(x)),
    "threshold": ((4, 6), lambda f, x, w: f.threshold(x, 0.2, -1.0)),
    "clamp": ((4, 6), lambda f, x, w: f.clamp(x, -0.5, 0.7)),
}
ONE_STEP = {"elu", "celu", "hardswish", "upsample_bilinear", "adaptive_avg_pool3d", "hardsigmoid"}


@pytest.mark.parametrize("name", CASES)
def test_integers_are_pytorchs(name):
    shape, call = CASES[name]
    a, b = (
        call(functional, quantized(side, shape), lambda *size, side=side: weight(side, size))
        for side, functional in SIDES
    )
    assert (b.q_scale(), b.q_zero_point()) == (pytest.approx(a.q_scale()), a.q_zero_point())
    apart = abs(a.int_repr().numpy().astype(int) - b.int_repr().numpy()).max()
    assert apart <= (name in ONE_STEP)


def test_every_name_is_there():
    assert sorted(our_functional.__all__) == sorted(their_functional.__all__)
    assert tangrad.nn.quantized.functional is our_functional


def test_numbers_and_other_dtypes_are_refused():
    x = quantized(tangrad, (2, 3, 4, 4))
    for name in ("avg_pool2d", "interpolate", "hardtanh", "threshold"):
        with pytest.raises(ValueError, match=f"'quantized.{name}' must be quantized"):
            getattr(our_functional, name)(x.dequantize(), 2, 2)
    with pytest.raises(NotImplementedError, match="weight must be tangrad.qint8"):
        our_functional.conv2d(x, quantized(tangrad, (3, 3, 2, 2)), None)
    with pytest.raises(NotImplementedError, match="zero-padding"):
        our_functional.conv2d(x, weight(tangrad, (3, 3, 2, 2)), None, padding_mode="reflect")
    with pytest.raises(ValueError, match="must have 4 dimensions"):
        our_functional.conv2d(x[0], weight(tangrad, (3, 3, 2, 2)), None)
    with pytest.raises(NotImplementedError, match="return_indices"):
        our_functional.max_pool2d(x, 2, return_indices=True)


@pytest.mark.parametrize("name", ["quantized_max_pool1d", "quantized_max_pool2d"])
def test_pooling_under_its_own_name(name):
    shape = (2, 3, 8) if name.endswith("1d") else (2, 3, 8, 8)
    places = len(shape) - 2
    for rest in ((2,), (3, 2, 1), (2, 1, 0, 2)):
        rest = [[extent] * places for extent in rest]
        a, b = (getattr(side, name)(quantized(side, shape), *rest) for side, _ in SIDES)
        assert np.array_equal(a.int_repr().numpy(), b.int_repr().numpy())
    with pytest.raises(RuntimeError, match="expected a tensor quantized with one scale"):
        getattr(tangrad, name)(tangrad.ones(*shape), [2])


def test_batch_norm_under_its_own_name():
    parts = [data(3, seed=n) for n in range(3)]
    made = []
    for side, _ in SIDES:
        gain, bias, mean = (side.from_numpy(part) for part in parts)
        x = quantized(side, (2, 3, 4, 4))
        spread = side.from_numpy(abs(parts[0]) + 0.5)
        made.append(side.quantized_batch_norm(x, gain, bias, mean, spread, 1e-5, 0.1, 90))
    a, b = (m.int_repr().numpy().astype(int) for m in made)
    assert abs(a - b).max() <= 1
    assert (made[1].q_scale(), made[1].q_zero_point()) == (0.1, 90)
