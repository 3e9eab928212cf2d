"""The distributions' numbers, against their distribution functions and moments."""

from __future__ import annotations

import math

import pytest

import tangrad
from tangrad.random import Generator

COUNT = 20_000


def generator(seed=3):
    return Generator().manual_seed(seed)


def distance(sample, distribution_function):
    """Return Kolmogorov and Smirnov's distance, scaled: above 1.95 once in 1000 times."""
    ordered = sample.double().sort().values
    expected = distribution_function(ordered)
    steps = tangrad.arange(1, COUNT + 1, dtype=tangrad.float64) / COUNT
    return float((expected - steps).abs().max()) * math.sqrt(COUNT)


@pytest.mark.parametrize("dtype", [tangrad.float32, tangrad.float64])
def test_continuous_distributions(dtype):
    x = tangrad.empty(COUNT, dtype=dtype)
    x.cauchy_(2.0, 3.0, generator=generator())
    assert distance(x, lambda v: 0.5 + ((v - 2) / 3).atan() / math.pi) < 1.95
    x.log_normal_(0.5, 0.25, generator=generator())
    assert distance(x, lambda v: tangrad.special.ndtr((v.log() - 0.5) / 0.25)) < 1.95
    x.exponential_(2.0, generator=generator())
    assert distance(x, lambda v: 1 - (-2 * v).exp()) < 1.95


@pytest.mark.parametrize("mean", [0.01, 0.7, 4.0, 30.0, 1234.5])
def test_poisson(mean):
    x = tangrad.poisson(tangrad.full((COUNT,), mean, dtype=tangrad.float64), generator())
    assert abs(float(x.mean()) - mean) < 4 * math.sqrt(mean / COUNT)
    assert abs(float(x.var()) / mean - 1) < 4 * math.sqrt((2 + 1 / mean) / COUNT)
    # The probability of each value, beside how often it came.
    for k in range(int(max(0, mean - 2 * math.sqrt(mean))), int(mean + 2 * math.sqrt(mean)) + 1):
        probability = math.exp(k * math.log(mean) - mean - math.lgamma(k + 1))
        spread = math.sqrt(probability * (1 - probability) / COUNT)
        assert abs(float((x == k).double().mean()) - probability) < 5 * spread


def test_poisson_of_extreme_means():
    means = tangrad.tensor([0.0, 1e-300, 1e9, 1e16], dtype=tangrad.float64)
    x = tangrad.poisson(means, generator())
    assert x[:2].tolist() == [0, 0]
    assert (x[2:] - means[2:]).abs().div(means[2:].sqrt()).max() < 6
    with pytest.raises(RuntimeError, match="non-negative"):
        tangrad.poisson(tangrad.tensor([float("nan")]))


@pytest.mark.parametrize("dtype", [tangrad.float32, tangrad.int64, tangrad.uint8])
def test_geometric(dtype):
    x = tangrad.empty(COUNT, dtype=dtype).geometric_(0.25, generator=generator()).double()
    assert float(x.min()) == 1
    for k in range(1, 8):
        probability = 0.25 * 0.75 ** (k - 1)
        spread = math.sqrt(probability * (1 - probability) / COUNT)
        assert abs(float((x == k).double().mean()) - probability) < 5 * spread


def test_what_is_overwritten_has_no_gradient():
    leaf = tangrad.ones(3, requires_grad=True)
    for write in ("cauchy_", "log_normal_", "exponential_"):
        x = leaf * 2
        getattr(x, write)()
        x.sum().backward()
        assert leaf.grad.tolist() == [0, 0, 0]


def test_poisson_passes_no_gradient():
    rate = tangrad.full((3,), 4.0, requires_grad=True)
    tangrad.poisson(rate).sum().backward()
    assert rate.grad.tolist() == [0, 0, 0]
