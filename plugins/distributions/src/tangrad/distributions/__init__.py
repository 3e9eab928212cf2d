"""Probability distributions, their transforms, constraints and divergences: `torch.distributions`.

A file here holds a family of distributions, where PyTorch has a file for each class. The names of
PyTorch's files stand for ours, so that `tangrad.distributions.normal.Normal` is found too.
"""

import sys

from tangrad.distributions import constraint_registry as constraint_registry
from tangrad.distributions import constraints as constraints
from tangrad.distributions import kl as kl
from tangrad.distributions import transforms as transforms
from tangrad.distributions import utils as utils
from tangrad.distributions.choices import (
    Categorical,
    Multinomial,
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
)
from tangrad.distributions.compound import (
    Independent,
    MixtureSameFamily,
    TransformedDistribution,
)
from tangrad.distributions.constraint_registry import (
    biject_to,
    transform_to,
)
from tangrad.distributions.counts import (
    Bernoulli,
    Binomial,
    Geometric,
    NegativeBinomial,
    Poisson,
)
from tangrad.distributions.derived import (
    Gumbel,
    HalfCauchy,
    HalfNormal,
    InverseGamma,
    Kumaraswamy,
    LogisticNormal,
    LogNormal,
    Pareto,
    Weibull,
)
from tangrad.distributions.distribution import (
    Distribution,
    ExponentialFamily,
)
from tangrad.distributions.interval import (
    Beta,
    ContinuousBernoulli,
    Dirichlet,
    Uniform,
)
from tangrad.distributions.kl import (
    kl_divergence,
    register_kl,
)
from tangrad.distributions.line import (
    Cauchy,
    Laplace,
    Normal,
    StudentT,
    VonMises,
)
from tangrad.distributions.matrices import (
    LKJCholesky,
    Wishart,
)
from tangrad.distributions.multivariate import (
    LowRankMultivariateNormal,
    MultivariateNormal,
)
from tangrad.distributions.positive import (
    Chi2,
    Exponential,
    FisherSnedecor,
    Gamma,
    GeneralizedPareto,
)
from tangrad.distributions.relaxed import (
    RelaxedBernoulli,
    RelaxedOneHotCategorical,
)
from tangrad.distributions.transforms import (
    AbsTransform,
    AffineTransform,
    CatTransform,
    ComposeTransform,
    CorrCholeskyTransform,
    CumulativeDistributionTransform,
    ExpTransform,
    IndependentTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    PowerTransform,
    ReshapeTransform,
    SigmoidTransform,
    SoftmaxTransform,
    SoftplusTransform,
    StackTransform,
    StickBreakingTransform,
    TanhTransform,
    Transform,
    identity_transform,
)

__all__ = [
    "AbsTransform",
    "AffineTransform",
    "Bernoulli",
    "Beta",
    "Binomial",
    "CatTransform",
    "Categorical",
    "Cauchy",
    "Chi2",
    "ComposeTransform",
    "ContinuousBernoulli",
    "CorrCholeskyTransform",
    "CumulativeDistributionTransform",
    "Dirichlet",
    "Distribution",
    "ExpTransform",
    "Exponential",
    "ExponentialFamily",
    "FisherSnedecor",
    "Gamma",
    "GeneralizedPareto",
    "Geometric",
    "Gumbel",
    "HalfCauchy",
    "HalfNormal",
    "Independent",
    "IndependentTransform",
    "InverseGamma",
    "Kumaraswamy",
    "LKJCholesky",
    "Laplace",
    "LogNormal",
    "LogisticNormal",
    "LowRankMultivariateNormal",
    "LowerCholeskyTransform",
    "MixtureSameFamily",
    "Multinomial",
    "MultivariateNormal",
    "NegativeBinomial",
    "Normal",
    "OneHotCategorical",
    "OneHotCategoricalStraightThrough",
    "Pareto",
    "Poisson",
    "PositiveDefiniteTransform",
    "PowerTransform",
    "RelaxedBernoulli",
    "RelaxedOneHotCategorical",
    "ReshapeTransform",
    "SigmoidTransform",
    "SoftmaxTransform",
    "SoftplusTransform",
    "StackTransform",
    "StickBreakingTransform",
    "StudentT",
    "TanhTransform",
    "Transform",
    "TransformedDistribution",
    "Uniform",
    "VonMises",
    "Weibull",
    "Wishart",
    "biject_to",
    "identity_transform",
    "kl_divergence",
    "register_kl",
    "transform_to",
]

_FILES = {
    "choices": "categorical multinomial one_hot_categorical",
    "compound": "independent mixture_same_family transformed_distribution",
    "counts": "bernoulli binomial geometric negative_binomial poisson",
    "derived": "gumbel half_cauchy half_normal inverse_gamma kumaraswamy log_normal"
    " logistic_normal pareto weibull",
    "distribution": "exp_family",
    "interval": "beta continuous_bernoulli dirichlet uniform",
    "line": "cauchy laplace normal studentT von_mises",
    "matrices": "lkj_cholesky wishart",
    "multivariate": "lowrank_multivariate_normal multivariate_normal",
    "positive": "chi2 exponential fishersnedecor gamma generalized_pareto",
    "relaxed": "relaxed_bernoulli relaxed_categorical",
}
for _ours, _theirs in _FILES.items():
    for _name in _theirs.split():
        globals()[_name] = sys.modules[f"{__name__}.{_name}"] = sys.modules[f"{__name__}.{_ours}"]
