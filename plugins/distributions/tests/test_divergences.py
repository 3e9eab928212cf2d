"""Divergences of all pairs of distributions against PyTorch's, and how functions are found."""

from __future__ import annotations

import pytest
from distribution_cases import CASES, COVARIANCE, Framework, close, outcome

import tangrad
from tangrad import distributions as d

torch = pytest.importorskip("torch", reason="torch is the oracle")

# Batches of five, so that every pair can be compared.
FIVE = {
    "Bernoulli": lambda f: f.d.Bernoulli(f.t([0.1, 0.5, 0.8, 0.0, 1.0])),
    "Beta": lambda f: f.d.Beta(f.t([0.5, 2.0, 3.0, 1.2, 1.0]), f.t([0.5, 1.5, 4.0, 1.0, 2.0])),
    "Binomial": lambda f: f.d.Binomial(5, f.t([0.1, 0.5, 0.8, 0.2, 0.9])),
    "Categorical": CASES["Categorical"],
    "Cauchy": lambda f: f.d.Cauchy(f.t([0.0, 1.5, 2.0, -1.0, 3.0]), f.t([1.0, 2.0, 0.5, 0.7, 3.0])),
    "Chi2": lambda f: f.d.Chi2(f.t([0.5, 1.5, 7.0, 2.0, 3.0])),
    "ContinuousBernoulli": lambda f: f.d.ContinuousBernoulli(f.t([0.1, 0.5, 0.8, 0.4995, 0.3])),
    "Dirichlet": CASES["Dirichlet"],
    "Exponential": lambda f: f.d.Exponential(f.t([0.5, 1.5, 2.0, 3.0, 4.0])),
    "Gamma": lambda f: f.d.Gamma(f.t([0.5, 1.5, 7.0, 2.0, 3.0]), f.t([1.0, 2.0, 0.3, 0.4, 0.5])),
    "Geometric": lambda f: f.d.Geometric(f.t([0.1, 0.5, 0.8, 0.3, 0.4])),
    "Gumbel": lambda f: f.d.Gumbel(f.t([0.0, 0.5, 1.0, 2.0, -1.0]), f.t([1.0, 0.7, 2.0, 3.0, 0.5])),
    "HalfNormal": lambda f: f.d.HalfNormal(f.t([1.0, 0.7, 2.0, 3.0, 4.0])),
    "Independent": CASES["Independent"],
    "Laplace": lambda f: f.d.Laplace(
        f.t([0.0, 1.5, 2.0, -1.0, 3.0]), f.t([1.0, 2.0, 0.5, 0.7, 3.0])
    ),
    "LogNormal": lambda f: f.d.LogNormal(
        f.t([0.0, 1.5, 2.0, -1.0, 3.0]), f.t([1.0, 2.0, 0.5, 0.7, 3.0])
    ),
    "LogisticNormal": CASES["LogisticNormal"],
    "LowRankMultivariateNormal": lambda f: f.d.LowRankMultivariateNormal(
        f.t([0.0, 1.0]), f.t([[[1.0], [0.5]], [[0.2], [0.7]]]), f.t([[1.0, 2.0], [0.5, 1.0]])
    ),
    "MultivariateNormal": lambda f: f.d.MultivariateNormal(
        f.t([[0.0, 1.0], [1.0, 2.0]]), f.t([COVARIANCE, COVARIANCE])
    ),
    "Normal": lambda f: f.d.Normal(f.t([0.0, 1.5, 2.0, -1.0, 3.0]), f.t([1.0, 2.0, 0.5, 0.7, 3.0])),
    "OneHotCategorical": CASES["OneHotCategorical"],
    "Pareto": lambda f: f.d.Pareto(f.t([1.0, 0.5, 2.0, 1.0, 1.0]), f.t([1.0, 0.7, 3.0, 2.0, 2.5])),
    "Poisson": lambda f: f.d.Poisson(f.t([1.0, 0.5, 2.0, 1.0, 1.0])),
    "StudentT": CASES["StudentT"],
    "Uniform": lambda f: f.d.Uniform(
        f.t([0.1, 0.5, 0.05, 0.2, 3.0]), f.t([0.95, 0.7, 0.9, 1.5, 4.0])
    ),
    "wide Uniform": lambda f: f.d.Uniform(
        f.t([-1.0, 0.5, -0.1, 0.2, -3.0]), f.t([2.0, 0.7, 1.2, 1.5, 4.0])
    ),
    "Weibull": CASES["Weibull"],
}


@pytest.mark.parametrize("first", FIVE)
def test_every_pair(first):
    for second in FIVE:
        found = []
        for module in (tangrad, torch):
            f = Framework(module)
            p, q = FIVE[first](f), FIVE[second](f)
            found.append(outcome(module.distributions.kl_divergence, p, q))
        mine, theirs = found
        assert close(mine, theirs, 1e-7), f"{second}: tangrad {mine}, torch {theirs}"


def test_every_registered_pair_is_registered():
    def names(module):
        return {(p.__name__, q.__name__) for p, q in module.distributions.kl._KL_REGISTRY}

    assert names(torch) <= names(tangrad)


def test_unit_interval_within_a_uniform_of_the_same_ends_is_finite():
    p = d.ContinuousBernoulli(tangrad.tensor([0.2]))
    assert d.kl_divergence(p, d.Uniform(0.0, 1.0)).isfinite().all()
    assert d.kl_divergence(d.Uniform(0.0, 1.0), p).isfinite().all()
    assert d.kl_divergence(p, d.Uniform(0.1, 1.0)) == tangrad.inf


def test_divergence_of_families_follows_from_their_normalizers():
    def bregman(p, q):
        return d.kl._KL_REGISTRY[d.ExponentialFamily, d.ExponentialFamily](p, q)

    for name in ("Bernoulli", "Exponential", "Gamma", "Dirichlet", "Normal", "Poisson", "Beta"):
        f = Framework(tangrad)
        if name == "Bernoulli":
            p, q = d.Bernoulli(f.t([0.2, 0.7])), d.Bernoulli(f.t([0.5, 0.6]))
        else:
            p, q = FIVE[name](f), FIVE[name](f).expand(FIVE[name](f).batch_shape)
        assert bregman(p, q).allclose(d.kl_divergence(p, q), atol=1e-6), name
    wishart = CASES["Wishart"](Framework(tangrad))
    other = d.Wishart(wishart.df + 1, wishart.covariance_matrix)
    half = wishart.df / 2
    expected = (half + 0.5).mvlgamma(2) - half.mvlgamma(2)
    expected = expected - (half.digamma() + (half - 0.5).digamma()) / 2
    assert d.kl_divergence(wishart, other).allclose(expected)


def test_entropy_of_families_follows_from_their_normalizers():
    for name in ("ContinuousBernoulli", "Exponential", "Gamma", "Normal"):
        p = FIVE[name](Framework(tangrad))
        assert d.ExponentialFamily.entropy(p).allclose(p.entropy(), atol=1e-4), name


def test_the_most_specific_function_is_found_and_ambiguity_told():
    class A(d.Distribution):
        arg_constraints = {}  # noqa: RUF012

    class B(A):
        pass

    d.register_kl(A, A)(lambda p, q: "AA")
    assert d.kl_divergence(B(), B()) == "AA"
    d.register_kl(B, A)(lambda p, q: "BA")
    assert d.kl_divergence(B(), A()) == "BA"
    d.register_kl(A, B)(lambda p, q: "AB")
    with pytest.warns(RuntimeWarning, match="register_kl"):
        assert d.kl_divergence(B(), B()) == "BA"
    with pytest.raises(TypeError, match="type_q"):
        d.register_kl(A, 3)
    with pytest.raises(NotImplementedError, match="A and q type Normal"):
        d.kl_divergence(A(), d.Normal(0.0, 1.0))
