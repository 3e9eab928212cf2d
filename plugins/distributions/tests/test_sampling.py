"""Numbers drawn: how they are distributed, and how they move with the parameters."""

from __future__ import annotations

import math

import pytest

import tangrad
from tangrad import distributions as d

COUNT = 20_000
mpmath = pytest.importorskip("mpmath")


def double(*values):
    return [tangrad.tensor(value, dtype=tangrad.float64) for value in values]


def distance(drawn, distribution_function):
    """Return Kolmogorov and Smirnov's distance, scaled: above 1.95 once in 1000 times."""
    ordered = drawn.sort().values
    steps = tangrad.arange(1, COUNT + 1, dtype=tangrad.float64) / COUNT
    return float((distribution_function(ordered) - steps).abs().max()) * math.sqrt(COUNT)


def made(name, *parameters):
    return getattr(d, name)(*double(*parameters))


@pytest.mark.parametrize(
    "p",
    [
        made("Cauchy", 1.0, 2.0),
        made("Chi2", 0.7),
        made("ContinuousBernoulli", 0.8),
        made("Exponential", 2.0),
        made("Gamma", 0.05, 1.0),
        made("Gamma", 0.7, 3.0),
        made("Gamma", 40.0, 0.1),
        made("GeneralizedPareto", 0.0, 2.0, 0.3),
        made("Gumbel", 1.0, 2.0),
        made("HalfCauchy", 2.0),
        made("HalfNormal", 2.0),
        made("InverseGamma", 3.0, 2.0),
        made("Kumaraswamy", 0.5, 2.0),
        made("Laplace", 1.0, 2.0),
        made("LogNormal", 0.5, 0.4),
        made("Normal", 1.0, 2.0),
        made("Pareto", 1.0, 3.0),
        made("Uniform", -1.0, 3.0),
        made("Weibull", 2.0, 0.7),
    ],
    ids=repr,
)
def test_numbers_follow_the_distribution_function(p):
    tangrad.manual_seed(5)
    below = distance(p.sample((COUNT,)), p.cdf)
    assert min(below, abs(math.sqrt(COUNT) - below)) < 1.95


@pytest.mark.parametrize(
    "p",
    [
        made("Bernoulli", [0.1, 0.9]),
        made("Beta", [0.2, 5.0], [0.3, 2.0]),
        d.Binomial(*double([3.0, 100.0, 1e6], [0.3, 0.8, 0.01])),
        made("Categorical", [0.2, 0.5, 0.3]),
        made("Dirichlet", [0.1, 2.0, 7.0]),
        made("FisherSnedecor", 3.0, 30.0),
        made("Geometric", [0.1, 0.8]),
        d.Multinomial(7, *double([0.2, 0.5, 0.3])),
        d.MultivariateNormal(*double([1.0, 2.0], [[2.0, 0.5], [0.5, 1.0]])),
        d.LowRankMultivariateNormal(*double([1.0, 2.0], [[1.0], [0.5]], [0.3, 0.7])),
        made("NegativeBinomial", [3.0, 0.7], [0.2, 0.9]),
        made("OneHotCategorical", [0.2, 0.5, 0.3]),
        made("Poisson", [0.3, 30.0]),
        made("StudentT", 12.0, 1.0, 2.0),
        d.Wishart(*double(5.0, [[2.0, 0.5], [0.5, 1.0]])).expand((1,)),
        d.MixtureSameFamily(
            made("Categorical", [0.3, 0.7]), made("Normal", [-1.0, 2.0], [0.5, 1.0])
        ),
    ],
    ids=lambda p: type(p).__name__,
)
def test_moments(p):
    tangrad.manual_seed(7)
    count = 2000 if isinstance(p, d.Wishart) else COUNT
    drawn = p.sample((count,)).double()
    mean, variance = p.mean, p.variance
    if isinstance(p, d.Categorical):
        places = tangrad.arange(3.0)
        mean = (p.probs * places).sum()
        variance = (p.probs * (places - mean) ** 2).sum()
    error = (variance / count).sqrt()
    assert (drawn.mean(0) - mean).abs().le(5 * error + 1e-12).all()
    fourth = ((drawn - mean) ** 4).mean(0)
    spread = ((fourth - variance**2).clamp(min=0) / count).sqrt()
    assert ((drawn - mean) ** 2).mean(0).sub(variance).abs().le(6 * spread + 1e-12).all()


def test_angles():
    p = made("VonMises", 3.0, 2.0)
    tangrad.manual_seed(3)
    drawn = p.sample((COUNT,))
    assert drawn.abs().max() <= math.pi
    direction = tangrad.complex(drawn.cos(), drawn.sin()).mean()
    assert abs(abs(complex(direction)) - float(1 - p.variance)) < 0.02
    assert abs(float(direction.angle()) - 3.0) < 0.03


def test_correlations():
    p = d.LKJCholesky(3, 1.5)
    tangrad.manual_seed(3)
    factors = p.sample((4000,))
    correlations = (factors @ factors.mT)[:, [0, 0, 1], [1, 2, 2]]
    # Each is 2 b - 1 of a number b of Beta(c, c), where c = concentration + (n - 2) / 2.
    marginal = d.Beta(2.0, 2.0)
    assert correlations.mean(0).abs().max() < 0.04
    assert (correlations.var(0) - 4 * marginal.variance).abs().max() < 0.02


def quantile_slope(function, density, a):
    """Return how a number moves with a at a fixed place of its distribution function."""
    return float(-mpmath.diff(function, a) / density)


@pytest.mark.parametrize(
    ("a", "x"),
    [
        (0.5, 0.2),
        (0.1, 3.0),
        (3.0, 20.0),
        (5.0, 3.0),
        (5.0, 9.0),
        (999.0, 1020.0),
        (1100.0, 1000.0),
    ],
)
def test_gamma_numbers_move_as_quantiles_do(a, x):
    def below(shape):
        return mpmath.gammainc(shape, 0, x, regularized=True)

    density = mpmath.mpf(x) ** (a - 1) * mpmath.exp(-x) / mpmath.gamma(a)
    slope = tangrad._standard_gamma_grad(*double([a], [x]))
    assert slope.item() == pytest.approx(quantile_slope(below, density, a), rel=1e-9)


@pytest.mark.parametrize(
    ("x", "a", "b"),
    [(0.2, 1.5, 3), (0.9, 1.5, 3), (0.5, 0.1, 0.1), (0.99, 30, 0.2), (0.3, 300, 700)],
)
def test_beta_numbers_move_as_quantiles_do(x, a, b):
    def below(shape):
        return mpmath.betainc(shape, b, 0, x, regularized=True)

    density = mpmath.mpf(x) ** (a - 1) * mpmath.mpf(1 - x) ** (b - 1) / mpmath.beta(a, b)
    slope = tangrad._dirichlet_grad(*double([x], [a], [a + b])) * (1 - x)
    assert slope.item() == pytest.approx(quantile_slope(below, density, a), rel=1e-9)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("Beta", (2.0, 3.0)),
        ("Chi2", (6.0,)),
        ("ContinuousBernoulli", (0.3,)),
        ("Exponential", (2.0,)),
        ("FisherSnedecor", (4.0, 20.0)),
        ("Gamma", (2.0, 3.0)),
        ("InverseGamma", (6.0, 2.0)),
        ("Kumaraswamy", (2.0, 3.0)),
        ("LogNormal", (0.5, 0.3)),
        ("Normal", (1.0, 2.0)),
        ("Pareto", (1.0, 6.0)),
        ("Weibull", (2.0, 1.5)),
    ],
)
def test_gradients_of_means_pass_through_numbers(name, parameters):
    leaves = [value.requires_grad_() for value in double(*parameters)]
    p = getattr(d, name)(*leaves)
    tangrad.manual_seed(1)
    sampled = tangrad.autograd.grad(p.rsample((COUNT,)).mean(), leaves, retain_graph=True)
    exact = tangrad.autograd.grad(p.mean.sum(), leaves, allow_unused=True)
    for mine, expected in zip(sampled, exact, strict=True):
        assert float(mine) == pytest.approx(float(expected or 0), rel=0.05, abs=0.02)


def test_gradients_of_dirichlets_numbers():
    a = tangrad.tensor([0.7, 2.0, 3.0], dtype=tangrad.float64, requires_grad=True)
    tangrad.manual_seed(1)
    p = d.Dirichlet(a)
    weight = tangrad.tensor([1.0, -2.0, 3.0], dtype=tangrad.float64)
    (sampled,) = tangrad.autograd.grad((p.rsample((COUNT,)) * weight).sum(-1).mean(), a)
    (exact,) = tangrad.autograd.grad((p.mean * weight).sum(), a)
    assert sampled.allclose(exact, rtol=0.05, atol=0.02)


def test_straight_through_gradients_are_those_of_probabilities():
    probs = tangrad.tensor([0.2, 0.8], requires_grad=True)
    drawn = d.OneHotCategoricalStraightThrough(probs).rsample()
    assert drawn.detach().sum() == 1
    (mine,) = tangrad.autograd.grad(drawn[0], probs)
    (expected,) = tangrad.autograd.grad((probs / probs.sum())[0], probs)
    assert mine.allclose(expected)


def test_wrong_parameters_of_random_ops_give_nan():
    nan = float("nan")
    gamma = tangrad._standard_gamma(tangrad.tensor([-1.0, nan, 2.0])).isnan()
    assert gamma.tolist() == [True, True, False]
    drawn = tangrad.binomial(tangrad.tensor([-1.0, 2.0, 2.0]), tangrad.tensor([0.5, 1.5, 0.5]))
    assert drawn.isnan().tolist() == [True, True, False]
