"""Distributions by name, as functions of a framework: what is tested of each against PyTorch."""

from __future__ import annotations

import math

import tangrad

COVARIANCE = [[2.0, 0.5], [0.5, 1.0]]


class Framework:
    """Make the same distributions with tangrad and with PyTorch.

    Attributes:
        leaves: the parameters made so far, all of which require gradients.
    """

    def __init__(self, module, gradients=True):
        self.module, self.d, self.leaves = module, module.distributions, []
        self.gradients = gradients

    def t(self, values, dtype="float64"):
        """Return a parameter."""
        made = self.module.tensor(
            values, dtype=getattr(self.module, dtype), requires_grad=self.gradients
        )
        self.leaves.append(made)
        return made

    def value(self, values):
        """Return a tensor of numbers as they were drawn by PyTorch."""
        return self.module.tensor(
            values.tolist(), dtype=getattr(self.module, str(values.dtype).partition(".")[2])
        )


CASES = {
    "Bernoulli": lambda f: f.d.Bernoulli(f.t([0.1, 0.5, 0.8, 0.0, 1.0])),
    "Bernoulli by logits": lambda f: f.d.Bernoulli(logits=f.t([0.1, -0.5, 0.0])),
    "Beta": lambda f: f.d.Beta(f.t([0.5, 2.0, 3.0]), f.t([0.5, 1.5, 4.0])),
    "Binomial": lambda f: f.d.Binomial(5, f.t([0.1, 0.5, 0.8, 0.0, 1.0])),
    "Binomial by logits": lambda f: f.d.Binomial(f.module.tensor([5, 3]), logits=f.t([0.1, -0.5])),
    "Categorical": lambda f: f.d.Categorical(f.t([[0.1, 0.2, 0.7], [0.0, 0.5, 0.5]])),
    "Categorical by logits": lambda f: f.d.Categorical(
        logits=f.t([[0.1, 0.2, 0.7], [-5.0, 0.5, 0.5]])
    ),
    "Cauchy": lambda f: f.d.Cauchy(f.t([0.0, 1.5]), f.t([1.0, 2.0])),
    "Chi2": lambda f: f.d.Chi2(f.t([0.5, 1.5, 7.0])),
    "ContinuousBernoulli": lambda f: f.d.ContinuousBernoulli(f.t([0.1, 0.45, 0.8, 0.4995])),
    "ContinuousBernoulli by logits": lambda f: f.d.ContinuousBernoulli(
        logits=f.t([0.1, -0.5, 1e-4])
    ),
    "Dirichlet": lambda f: f.d.Dirichlet(f.t([[0.5, 2.0, 3.0], [1.0, 1.5, 0.7], [0.2, 0.3, 0.4]])),
    "Exponential": lambda f: f.d.Exponential(f.t([0.5, 1.5])),
    "FisherSnedecor": lambda f: f.d.FisherSnedecor(f.t([1.0, 3.0, 7.0]), f.t([5.0, 4.5, 9.0])),
    "Gamma": lambda f: f.d.Gamma(f.t([0.5, 1.5, 7.0]), f.t([1.0, 2.0, 0.3])),
    "GeneralizedPareto": lambda f: f.d.GeneralizedPareto(
        *(f.t(v, "float32") for v in ([1.0, 2.0, 0.0], [2.0, 0.5, 1.0], [0.3, -0.4, 0.0]))
    ),
    "Geometric": lambda f: f.d.Geometric(f.t([0.1, 0.45, 0.8, 1.0])),
    "Geometric by logits": lambda f: f.d.Geometric(logits=f.t([0.1, 0.5, -0.8])),
    "Gumbel": lambda f: f.d.Gumbel(f.t([0.0, 0.5]), f.t([1.0, 0.7])),
    "HalfCauchy": lambda f: f.d.HalfCauchy(f.t([1.0, 0.7])),
    "HalfNormal": lambda f: f.d.HalfNormal(f.t([1.0, 0.7])),
    "Independent": lambda f: f.d.Independent(f.d.Normal(f.t([[0.0, 1.5]]), f.t([1.0, 2.0])), 1),
    "InverseGamma": lambda f: f.d.InverseGamma(f.t([0.5, 1.5, 3.0]), f.t([1.0, 2.0, 0.3])),
    "Kumaraswamy": lambda f: f.d.Kumaraswamy(f.t([1.0, 0.5, 2.0]), f.t([1.0, 0.7, 3.0])),
    "LKJCholesky": lambda f: f.d.LKJCholesky(3, f.t([1.0, 0.5, 2.0])),
    "Laplace": lambda f: f.d.Laplace(f.t([0.0, 1.5]), f.t([1.0, 2.0])),
    "LogNormal": lambda f: f.d.LogNormal(f.t([0.0, 0.5]), f.t([1.0, 0.7])),
    "LogisticNormal": lambda f: f.d.LogisticNormal(
        f.t([[0.0, 0.5], [1.0, 2.0]]), f.t([[1.0, 0.7], [0.5, 0.2]])
    ),
    "LowRankMultivariateNormal": lambda f: f.d.LowRankMultivariateNormal(
        f.t([0.0, 1.0, 2.0]), f.t([[1.0], [0.5], [0.3]]), f.t([[1.0, 2.0, 1.0], [0.5, 1.0, 1.0]])
    ),
    "MixtureSameFamily": lambda f: f.d.MixtureSameFamily(
        f.d.Categorical(f.t([[0.3, 0.7], [0.5, 0.5]])),
        f.d.Normal(f.t([[0.0, 1.0], [2.0, 3.0]]), f.t([1.0, 0.5])),
    ),
    "MixtureSameFamily of vectors": lambda f: f.d.MixtureSameFamily(
        f.d.Categorical(f.t([0.3, 0.7])),
        f.d.MultivariateNormal(f.t([[0.0, 1.0], [2.0, 3.0]]), f.t(COVARIANCE)),
    ),
    "Multinomial": lambda f: f.d.Multinomial(4, f.t([[0.1, 0.2, 0.7], [0.2, 0.4, 0.4]])),
    "MultivariateNormal": lambda f: f.d.MultivariateNormal(
        f.t([[0.0, 1.0], [1.0, 2.0], [3.0, 3.0]]), f.t(COVARIANCE)
    ),
    "MultivariateNormal by precision": lambda f: f.d.MultivariateNormal(
        f.t([0.0, 1.0]), precision_matrix=f.t([COVARIANCE, COVARIANCE])
    ),
    "MultivariateNormal by factor": lambda f: f.d.MultivariateNormal(
        f.t([0.0, 1.0]), scale_tril=f.t([[1.0, 0.0], [0.5, 2.0]])
    ),
    "NegativeBinomial": lambda f: f.d.NegativeBinomial(f.t([3.0, 2.5, 0.5]), f.t([0.1, 0.5, 0.8])),
    "NegativeBinomial by logits": lambda f: f.d.NegativeBinomial(
        f.t([3.0, 2.5, 0.5]), logits=f.t([0.1, 0.5, 0.8])
    ),
    "Normal": lambda f: f.d.Normal(f.t([0.0, 1.5]), f.t([1.0, 2.0])),
    "OneHotCategorical": lambda f: f.d.OneHotCategorical(f.t([[0.1, 0.2, 0.7], [0.0, 0.5, 0.5]])),
    "OneHotCategoricalStraightThrough": lambda f: f.d.OneHotCategoricalStraightThrough(
        f.t([[0.1, 0.2, 0.7], [0.0, 0.5, 0.5]])
    ),
    "Pareto": lambda f: f.d.Pareto(f.t([1.0, 0.5, 2.0]), f.t([2.5, 4.0, 3.0])),
    "Poisson": lambda f: f.d.Poisson(f.t([3.0, 2.5, 0.1])),
    "RelaxedBernoulli": lambda f: f.d.RelaxedBernoulli(f.t(0.5), f.t([0.3, 0.7])),
    "RelaxedBernoulli by logits": lambda f: f.d.RelaxedBernoulli(f.t(0.5), logits=f.t([0.3, 0.7])),
    "RelaxedOneHotCategorical": lambda f: f.d.RelaxedOneHotCategorical(
        f.t(0.5), f.t([[0.3, 0.6, 0.1], [0.2, 0.2, 0.6]])
    ),
    "StudentT": lambda f: f.d.StudentT(f.t([0.5, 1.5, 3.5]), f.t(1.0), f.t([1.0, 2.0, 3.0])),
    "TransformedDistribution": lambda f: f.d.TransformedDistribution(
        f.d.Normal(f.t([0.0, 1.0]), f.t(1.0)),
        [f.d.AffineTransform(1.0, -2.0), f.d.SigmoidTransform()],
    ),
    "Uniform": lambda f: f.d.Uniform(f.t([0.0, -1.0]), f.t([1.0, 3.0])),
    "VonMises": lambda f: f.d.VonMises(f.t([0.0, 1.5]), f.t([1.0, 20.0])),
    "Weibull": lambda f: f.d.Weibull(f.t([1.0, 0.5]), f.t([1.0, 0.7])),
    "Wishart": lambda f: f.d.Wishart(f.t([3.0, 5.0]), f.t(COVARIANCE)),
    "Wishart by precision": lambda f: f.d.Wishart(
        f.t(4.0), precision_matrix=f.t([COVARIANCE, COVARIANCE])
    ),
}
# PyTorch's Bessel functions have 7 digits; it computes the generalized Pareto in float32 only.
TOLERANCE = {"VonMises": 1e-5, "GeneralizedPareto": 1e-4}


def ours(name):
    """Return a distribution of tangrad."""
    return CASES[name](Framework(tangrad))


def plain(value):
    """Return Python data of a result."""
    return value.detach().tolist() if hasattr(value, "detach") else value


def close(a, b, tolerance):
    """Say whether two results of `plain` agree."""
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(close(x, y, tolerance) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) and isinstance(b, float):
        both_nan = math.isnan(a) and math.isnan(b)
        return both_nan or math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance)
    return a == b


def outcome(function, *arguments):
    """Return Python data of a result, or the name of the exception."""
    try:
        return plain(function(*arguments))
    except Exception as error:
        return type(error).__name__
