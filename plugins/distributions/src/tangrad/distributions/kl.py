"""Kullback and Leibler's divergence, in closed form, by the types of two distributions.

Where the distributions are of different kinds it is the cross entropy, which follows from a few
moments of the first one, less the entropy of the first.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

import tangrad
from tangrad.distributions.choices import Categorical, OneHotCategorical
from tangrad.distributions.compound import Independent, TransformedDistribution
from tangrad.distributions.counts import Bernoulli, Binomial, Geometric, Poisson
from tangrad.distributions.derived import Gumbel, HalfNormal, Pareto
from tangrad.distributions.distribution import Distribution, ExponentialFamily, bregman_parts
from tangrad.distributions.interval import Beta, ContinuousBernoulli, Dirichlet, Uniform
from tangrad.distributions.line import Cauchy, Laplace, Normal
from tangrad.distributions.multivariate import (
    LowRankMultivariateNormal,
    MultivariateNormal,
    log_diagonal,
    low_rank_squared_length,
    squared_length,
)
from tangrad.distributions.positive import Exponential, Gamma
from tangrad.distributions.utils import euler_constant, sum_rightmost
from tangrad.nn.functional import softplus

__all__ = ["kl_divergence", "register_kl"]

_KL_REGISTRY: dict[tuple[type, type], Callable[[Any, Any], Any]] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Any], Any]:
    """Register a function for the divergence of two types of distributions; a decorator.

    The function for the most specific types is used. If the types of p and of q disagree about
    which that is, that of p decides and a `RuntimeWarning` says so.

    Args:
        type_p: of the first distribution.
        type_q: of the second one.

    Raises:
        TypeError: a type is no class, or neither is one of distributions.
    """
    for name, kind in (("type_p", type_p), ("type_q", type_q)):
        if not isinstance(kind, type):
            raise TypeError(f"Expected {name} to be a Distribution subclass but got {kind}")

    def register(function: Any) -> Any:
        _KL_REGISTRY[type_p, type_q] = function
        _find.cache_clear()
        return function

    return register


@functools.cache
def _find(type_p: type, type_q: type) -> Callable[[Any, Any], Any] | None:
    p_order, q_order = type_p.__mro__, type_q.__mro__
    places = [
        (p_order.index(p), q_order.index(q))
        for p, q in _KL_REGISTRY
        if p in p_order and q in q_order
    ]
    if not places:
        return None
    by_p, by_q = min(places), min(places, key=lambda place: place[::-1])
    found = _KL_REGISTRY[p_order[by_p[0]], q_order[by_p[1]]]
    if found is not _KL_REGISTRY[p_order[by_q[0]], q_order[by_q[1]]]:
        warnings.warn(
            f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). Please register_kl("
            f"{p_order[by_p[0]].__name__}, {q_order[by_q[1]].__name__})",
            RuntimeWarning,
            stacklevel=3,
        )
    return found


def kl_divergence(p: Distribution, q: Distribution) -> Any:
    """Return the integral of `p(x) log(p(x) / q(x))`, shape `batch_shape`.

    Raises:
        NotImplementedError: nothing is registered for these types.
    """
    found = _find(type(p), type(q))  # type: ignore[arg-type]
    if found is None:
        raise NotImplementedError(
            f"No KL(p || q) is implemented for p type {type(p).__name__} and q type "
            f"{type(q).__name__}: register_kl registers one"
        )
    return found(p, q)


def _infinite(p: Any, q: Any) -> Any:
    """Answer where p has numbers that q has not."""
    return tangrad.full(p.batch_shape, math.inf, dtype=p.mean.dtype, device=p.mean.device)


def _unless(outside: Any, value: Any) -> Any:
    return tangrad.where(outside, math.inf, value)


# Of one kind -----------------------------------------------------------------------------------


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Any, q: Any) -> Any:
    one = p.probs * (softplus(-q.logits) - softplus(-p.logits))
    zero = (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))
    one = _unless(q.probs == 0, one).masked_fill(p.probs == 0, 0)
    return one + _unless(q.probs == 1, zero).masked_fill(p.probs == 1, 0)


@register_kl(Binomial, Binomial)
def _binomial(p: Any, q: Any) -> Any:
    if (p.total_count < q.total_count).any():
        raise NotImplementedError(
            "KL between Binomials where q.total_count > p.total_count is not implemented"
        )
    odds = p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p()
    return _unless(p.total_count > q.total_count, p.total_count * odds)


@register_kl(Categorical, Categorical)
def _categorical(p: Any, q: Any) -> Any:
    terms = _unless(q.probs == 0, p.probs * (p.logits - q.logits))
    return terms.masked_fill(p.probs == 0, 0).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p: Any, q: Any) -> Any:
    return _categorical(p._categorical, q._categorical)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoulli(p: Any, q: Any) -> Any:
    return -p.entropy() + _bernoulli_energy(p, q)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Any, q: Any) -> Any:
    a, b = p.concentration, q.concentration
    norm = a.sum(-1).lgamma() - b.sum(-1).lgamma() - (a.lgamma() - b.lgamma()).sum(-1)
    return norm + ((a - b) * (a.digamma() - a.sum(-1, keepdim=True).digamma())).sum(-1)


@register_kl(Beta, Beta)
def _beta(p: Any, q: Any) -> Any:
    return _dirichlet(p._dirichlet, q._dirichlet)


@register_kl(Exponential, Exponential)
def _exponential(p: Any, q: Any) -> Any:
    ratio = q.rate / p.rate
    return -ratio.log() + ratio - 1


@register_kl(ExponentialFamily, ExponentialFamily)
def _family(p: Any, q: Any) -> Any:
    """Return Bregman's divergence of the log normalizer between the natural parameters."""
    if type(p) is not type(q):
        raise NotImplementedError(
            "The cross KL-divergence between different exponential families cannot be computed "
            f"using Bregman divergences: {type(p).__name__} and {type(q).__name__}"
        )
    at_p, value, slopes = bregman_parts(p)
    at_q = q._natural_params
    divergence = q._log_normalizer(*at_q) - value
    for theta, other, slope in zip(at_p, at_q, slopes, strict=True):
        term = (other - theta) * slope
        divergence = divergence - term.reshape((*divergence.shape, -1)).sum(-1)
    return divergence


@register_kl(Gamma, Gamma)
def _gamma(p: Any, q: Any) -> Any:
    a, b = p.concentration, q.concentration
    return (
        b * (p.rate / q.rate).log()
        + b.lgamma()
        - a.lgamma()
        + (a - b) * a.digamma()
        + (q.rate - p.rate) * (a / p.rate)
    )


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Any, q: Any) -> Any:
    ratio, apart = p.scale / q.scale, (p.loc - q.loc) / q.scale
    tail = tangrad.exp((1 + ratio).lgamma() - apart)
    return -ratio.log() + apart + ratio * euler_constant + tail - (1 + euler_constant)


@register_kl(Geometric, Geometric)
def _geometric(p: Any, q: Any) -> Any:
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(Laplace, Laplace)
def _laplace(p: Any, q: Any) -> Any:
    ratio, apart = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + apart / q.scale + ratio * (-apart / p.scale).exp() - 1


@register_kl(Normal, Normal)
def _normal(p: Any, q: Any) -> Any:
    ratio = (p.scale / q.scale).pow(2)
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).pow(2) - 1 - ratio.log())


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: Any, q: Any) -> Any:
    return _normal(p.base_dist, q.base_dist)


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Any, q: Any) -> Any:
    apart = (p.scale + q.scale).pow(2) + (p.loc - q.loc).pow(2)
    return apart.log() - (4 * p.scale * q.scale).log()


@register_kl(Pareto, Pareto)
def _pareto(p: Any, q: Any) -> Any:
    ratio = q.alpha / p.alpha
    value = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return _unless(p.scale < q.scale, value)


@register_kl(Poisson, Poisson)
def _poisson(p: Any, q: Any) -> Any:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Uniform, Uniform)
def _uniform(p: Any, q: Any) -> Any:
    value = ((q.high - q.low) / (p.high - p.low)).log()
    return _unless((q.low > p.low) | (q.high < p.high), value)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: Any, q: Any) -> Any:
    if p.transforms != q.transforms:
        raise NotImplementedError(
            f"KL of transformed distributions needs equal transforms: {p.transforms} and "
            f"{q.transforms}"
        )
    if p.event_shape != q.event_shape:
        raise NotImplementedError(
            "KL of transformed distributions needs equal event shapes: "
            f"{tuple(p.event_shape)} and {tuple(q.event_shape)}"
        )
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Independent, Independent)
def _independent(p: Any, q: Any) -> Any:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError(
            "KL of independent distributions needs equal reinterpreted_batch_ndims: "
            f"{p.reinterpreted_batch_ndims} and {q.reinterpreted_batch_ndims}"
        )
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


# Multivariate normal ---------------------------------------------------------------------------


def _require_one_event_shape(p: Any, q: Any) -> None:
    if p.event_shape != q.event_shape:
        raise ValueError(
            f"KL-divergence between two {type(p).__name__} and {type(q).__name__} with different "
            f"event shapes cannot be computed: {tuple(p.event_shape)}, {tuple(q.event_shape)}"
        )


def _log_determinant(d: Any) -> Any:
    if isinstance(d, LowRankMultivariateNormal):
        return d._log_determinant()
    return 2 * log_diagonal(d._unbroadcasted_scale_tril)


def _columns(d: Any) -> list[Any]:
    """Return matrices of which the sum of `C Cᵀ` is the covariance."""
    if isinstance(d, LowRankMultivariateNormal):
        own = d._unbroadcasted_cov_diag.sqrt().diag_embed()
        return [d._unbroadcasted_cov_factor, own]
    return [d._unbroadcasted_scale_tril]


def _lengths(q: Any, vectors: Any) -> Any:
    """Return the squared lengths of vectors, shape (..., n), in units of q's covariance."""
    if isinstance(q, LowRankMultivariateNormal):
        return low_rank_squared_length(
            q._unbroadcasted_cov_factor.unsqueeze(-3),
            q._unbroadcasted_cov_diag.unsqueeze(-2),
            vectors,
            q._capacitance_tril.unsqueeze(-3),
        )
    return squared_length(q._unbroadcasted_scale_tril.unsqueeze(-3), vectors)


def _multivariate(p: Any, q: Any) -> Any:
    """Add the volumes' ratio and what q's covariance makes of p's and of the means' distance."""
    _require_one_event_shape(p, q)
    trace = sum(_lengths(q, columns.mT).sum(-1) for columns in _columns(p))
    apart = _lengths(q, (q.loc - p.loc).unsqueeze(-2)).squeeze(-1)
    volume = _log_determinant(q) - _log_determinant(p)
    return 0.5 * (volume + trace + apart - p.event_shape[0])


_MULTIVARIATE: tuple[type, ...] = (MultivariateNormal, LowRankMultivariateNormal)
for _p in _MULTIVARIATE:
    for _q in _MULTIVARIATE:
        register_kl(_p, _q)(_multivariate)


# Of two kinds: energies, the means of -log q under p -------------------------------------------


def _mean_log(p: Any) -> Any:
    """Return the mean of log x."""
    match p:
        case Beta():
            a = p.concentration1
            return a.digamma() - (a + p.concentration0).digamma()
        case Exponential():
            return -p.rate.log() - euler_constant
        case Pareto():
            return p.scale.log() + p.alpha.reciprocal()
        case Uniform():
            return _mean_log_between(p.low, p.high)
    raise TypeError(f"no mean of log x of {type(p).__name__} is known")


def _mean_log_between(low: Any, high: Any) -> Any:
    return (tangrad.xlogy(high, high) - tangrad.xlogy(low, low)) / (high - low) - 1


def _mean_exp(p: Any, t: Any) -> Any:
    """Return the mean of exp(-t x)."""
    match p:
        case Exponential():
            return p.rate / (p.rate + t)
        case Gamma():
            return (1 + t / p.rate).pow(-p.concentration)
        case Normal():
            return (-p.loc * t + (p.scale * t).pow(2) / 2).exp()
        case Uniform():
            return ((-p.low * t).exp() - (-p.high * t).exp()) / (t * (p.high - p.low))
    raise TypeError(f"no mean of exp(-t x) of {type(p).__name__} is known")


def _bernoulli_energy(p: Any, q: Any) -> Any:
    return -p.mean * q.logits - (-q.probs).log1p() - q._log_norm()


def _exponential_energy(p: Any, q: Any) -> Any:
    return q.rate * p.mean - q.rate.log()


def _gamma_energy(p: Any, q: Any) -> Any:
    a = q.concentration
    return a.lgamma() - a * q.rate.log() - (a - 1) * _mean_log(p) + q.rate * p.mean


def _gumbel_energy(p: Any, q: Any) -> Any:
    t = q.scale.reciprocal()
    return q.scale.log() + (p.mean - q.loc) * t + (q.loc * t).exp() * _mean_exp(p, t)


def _normal_energy(p: Any, q: Any) -> Any:
    square = q.scale.pow(2)
    spread = p.variance + (p.mean - q.loc).pow(2)
    return 0.5 * (2 * math.pi * square).log() + spread / (2 * square)


def _uniform_energy(p: Any, q: Any) -> Any:
    energy = (q.high - q.low).log()
    return _unless((q.low > 0) | (q.high < 1), energy)  # p is on the unit interval


def _beta_energy(p: Any, q: Any) -> Any:
    a, b = q.concentration1, q.concentration0
    norm = a.lgamma() + b.lgamma() - (a + b).lgamma()
    other = _mean_log_between(1 - p.high, 1 - p.low)
    return norm - (a - 1) * _mean_log(p) - (b - 1) * other


def _pareto_energy(p: Any, q: Any) -> Any:
    return (q.alpha + 1) * _mean_log(p) - q.alpha.log() - q.alpha * q.scale.log()


def _poisson_energy(p: Any, q: Any) -> Any:
    return q.rate - p.probs * q.rate.log()


def _laplace_energy(p: Any, q: Any) -> Any:
    apart = p.loc - q.loc
    z = apart / p.scale
    distance = math.sqrt(2 / math.pi) * p.scale * (-0.5 * z.pow(2)).exp()
    distance = distance + apart * (math.sqrt(0.5) * z).erf()
    return (2 * q.scale).log() + distance / q.scale


_ENERGIES: dict[type, tuple[Callable[[Any, Any], Any], tuple[type, ...]]] = {
    ContinuousBernoulli: (_bernoulli_energy, (Beta,)),
    Exponential: (_exponential_energy, (Beta, ContinuousBernoulli, Gamma, Pareto)),
    Gamma: (_gamma_energy, (Beta, Exponential, Pareto)),
    Gumbel: (_gumbel_energy, (Exponential, Gamma, Normal, Uniform)),
    Laplace: (_laplace_energy, (Normal,)),
    Normal: (
        _normal_energy,
        (Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel, Laplace, Pareto, Uniform),
    ),
    Poisson: (_poisson_energy, (Bernoulli,)),
    Uniform: (_uniform_energy, (Beta, ContinuousBernoulli)),
}

# A uniform distribution may reach beyond q's support.
_UNIFORM: dict[type, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    Beta: (_beta_energy, lambda p, q: (p.low < 0) | (p.high > 1)),
    ContinuousBernoulli: (_bernoulli_energy, lambda p, q: (p.low < 0) | (p.high > 1)),
    Exponential: (_exponential_energy, lambda p, q: p.low < 0),
    Gamma: (_gamma_energy, lambda p, q: p.low < 0),
    Pareto: (_pareto_energy, lambda p, q: p.low < q.scale),
}

_BOUNDED = (Uniform, Pareto, ContinuousBernoulli, Beta)
_INFINITE: dict[type, tuple[type, ...]] = {
    Beta: (Pareto,),
    ContinuousBernoulli: (Pareto,),
    Exponential: _BOUNDED,
    Gamma: _BOUNDED,
    Gumbel: (*_BOUNDED, Gamma, Exponential),
    Laplace: (*_BOUNDED, Gamma, Exponential),
    Normal: (*_BOUNDED, Gamma, Exponential),
    Pareto: (Uniform, ContinuousBernoulli, Beta),
    Poisson: (Binomial, Bernoulli),
}


def _cross(energy: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda p, q: energy(p, q) - p.entropy()


def _cross_unless(
    energy: Callable[[Any, Any], Any], outside: Callable[[Any, Any], Any]
) -> Callable[[Any, Any], Any]:
    return lambda p, q: _unless(outside(p, q), energy(p, q) - p.entropy())


for _q, (_energy, _firsts) in _ENERGIES.items():
    for _p in _firsts:
        register_kl(_p, _q)(_cross(_energy))
for _q, (_energy, _outside) in _UNIFORM.items():
    register_kl(Uniform, _q)(_cross_unless(_energy, _outside))
for _p, _seconds in _INFINITE.items():
    for _q in _seconds:
        register_kl(_p, _q)(_infinite)
