"""Distributions on an interval and on the simplex: uniform, beta, Dirichlet's, Bernoulli's."""

from __future__ import annotations

import math
from typing import Any

import tangrad
from tangrad.distributions import constraints
from tangrad.distributions.counts import ProbsOrLogits
from tangrad.distributions.distribution import Distribution, ExponentialFamily
from tangrad.distributions.utils import (
    broadcast_all,
    clamp_probs,
    lazy_property,
    logits_to_probs,
)

__all__ = ["Beta", "ContinuousBernoulli", "Dirichlet", "Uniform"]


class Uniform(Distribution):
    """The uniform distribution on [low, high).

    Args:
        low: the lower end, included.
        high: the upper end.
    """

    has_rsample = True
    low: Any
    high: Any

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self._take(validate_args, low=low, high=high)

    @property
    def arg_constraints(self) -> Any:
        return {
            "low": constraints.less_than(self.high),
            "high": constraints.greater_than(self.low),
        }

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return constraints.interval(self.low, self.high)

    @property
    def mean(self) -> Any:
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Any:
        return math.nan * self.high

    @property
    def stddev(self) -> Any:
        return (self.high - self.low) / math.sqrt(12)

    @property
    def variance(self) -> Any:
        return (self.high - self.low).pow(2) / 12

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        drawn = tangrad.rand(shape, dtype=self.low.dtype, device=self.low.device)
        return self.low + drawn * (self.high - self.low)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        inside = (self.low <= value) & (self.high > value)
        return inside.type_as(self.low).log() - tangrad.log(self.high - self.low)

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return ((value - self.low) / (self.high - self.low)).clamp(min=0, max=1)

    def icdf(self, value: Any) -> Any:
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Any:
        return tangrad.log(self.high - self.low)


class Dirichlet(ExponentialFamily):
    """Dirichlet's distribution of points of the simplex.

    Args:
        concentration: shape (..., k).
    """

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True
    concentration: Any

    def __init__(self, concentration: Any, validate_args: bool | None = None) -> None:
        if concentration.dim() < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args)

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        return tangrad._sample_dirichlet(self.concentration.expand(shape))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        a = self.concentration
        norm = tangrad.lgamma(a.sum(-1)) - tangrad.lgamma(a).sum(-1)
        return tangrad.xlogy(a - 1.0, value).sum(-1) + norm

    @property
    def mean(self) -> Any:
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def mode(self) -> Any:
        """The most probable point; of several corners the first."""
        above = (self.concentration - 1).clamp(min=0.0)
        mode = above / above.sum(-1, True)
        low = (self.concentration < 1).all(-1, keepdim=True)
        corner = tangrad.nn.functional.one_hot(mode.argmax(-1), mode.shape[-1]).to(mode)
        return tangrad.where(low, corner, mode)

    @property
    def variance(self) -> Any:
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total.pow(2) * (total + 1))

    def entropy(self) -> Any:
        a, k = self.concentration, self.concentration.shape[-1]
        total = a.sum(-1)
        return (
            tangrad.lgamma(a).sum(-1)
            - tangrad.lgamma(total)
            - (k - total) * tangrad.digamma(total)
            - ((a - 1.0) * tangrad.digamma(a)).sum(-1)
        )

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return (self.concentration,)

    def _log_normalizer(self, *natural_params: Any) -> Any:
        (x,) = natural_params
        return x.lgamma().sum(-1) - tangrad.lgamma(x.sum(-1))


class Beta(ExponentialFamily):
    """The beta distribution.

    Args:
        concentration1: the first shape: the larger, the nearer to 1.
        concentration0: the second shape: the larger, the nearer to 0.
    """

    arg_constraints = {
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }
    support = constraints.unit_interval
    has_rsample = True

    def __init__(
        self, concentration1: Any, concentration0: Any, validate_args: bool | None = None
    ) -> None:
        both = broadcast_all(concentration1, concentration0)
        self._dirichlet = Dirichlet(tangrad.stack(both, -1), validate_args=validate_args)
        super().__init__(self._dirichlet.batch_shape, validate_args=validate_args)

    @property
    def concentration1(self) -> Any:
        """The first shape."""
        return self._dirichlet.concentration[..., 0]

    @property
    def concentration0(self) -> Any:
        """The second shape."""
        return self._dirichlet.concentration[..., 1]

    @property
    def mean(self) -> Any:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Any:
        return self._dirichlet.mode[..., 0]

    @property
    def variance(self) -> Any:
        a, b = self.concentration1, self.concentration0
        return a * b / ((a + b).pow(2) * (a + b + 1))

    def rsample(self, sample_shape: Any = ()) -> Any:
        return self._dirichlet.rsample(sample_shape).select(-1, 0)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return self._dirichlet.log_prob(tangrad.stack([value, 1.0 - value], -1))

    def entropy(self) -> Any:
        return self._dirichlet.entropy()

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return self.concentration1, self.concentration0

    def _log_normalizer(self, *natural_params: Any) -> Any:
        x, y = natural_params
        return tangrad.lgamma(x) + tangrad.lgamma(y) - tangrad.lgamma(x + y)


class ContinuousBernoulli(ProbsOrLogits, ExponentialFamily):
    """The continuous Bernoulli distribution on [0, 1].

    Loaiza-Ganem and Cunningham: "The continuous Bernoulli: fixing a pervasive error in
    variational autoencoders", 2019.

    Args:
        probs: in (0, 1).
        logits: instead, the log-odds.
        lims: between these probabilities formulas that divide by their distance to 1/2 are
            replaced by Taylor's series there.
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(
        self,
        probs: Any = None,
        logits: Any = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        self._lims = lims
        if probs is not None:
            (probs,) = broadcast_all(probs)
            validate = self._validate_args if validate_args is None else validate_args
            if validate and not self.arg_constraints["probs"].check(probs).all():
                raise ValueError("The parameter probs has invalid values")
            probs = clamp_probs(probs)
        self._take_either(validate_args, probs, logits)

    @lazy_property
    def probs(self) -> Any:
        """The probabilities, of which none is 0 or 1."""
        return clamp_probs(logits_to_probs(self.logits, True))

    def _stable(self) -> Any:
        """Return where the closed forms keep their digits."""
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _away(self) -> Any:
        """Return the probabilities, moved out of the unstable region."""
        return tangrad.where(self._stable(), self.probs, self._lims[0])

    def _log_norm(self) -> Any:
        p, x = self._away(), (self.probs - 0.5) ** 2
        exact = tangrad.log((tangrad.log1p(-p) - p.log()).abs()) - tangrad.log((1 - 2 * p).abs())
        return tangrad.where(
            self._stable(), exact, math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x
        )

    @property
    def mean(self) -> Any:
        p, x = self._away(), self.probs - 0.5
        exact = p / (2.0 * p - 1.0) + 1.0 / (tangrad.log1p(-p) - p.log())
        return tangrad.where(self._stable(), exact, 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * x**2) * x)

    @property
    def variance(self) -> Any:
        p, x = self._away(), (self.probs - 0.5) ** 2
        exact = p * (p - 1.0) / (1.0 - 2.0 * p) ** 2 + 1.0 / (tangrad.log1p(-p) - p.log()) ** 2
        return tangrad.where(self._stable(), exact, 1 / 12.0 - (1 / 15.0 - 128 / 945.0 * x) * x)

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        return self.icdf(tangrad.rand(shape, dtype=self.probs.dtype, device=self.probs.device))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return self._log_likelihood(value) + self._log_norm()

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        p = self._away()
        exact = (p**value * (1.0 - p) ** (1.0 - value) + p - 1.0) / (2.0 * p - 1.0)
        return tangrad.where(self._stable(), exact, value).clamp(0.0, 1.0)

    def icdf(self, value: Any) -> Any:
        p = self._away()
        low = tangrad.log1p(-p)
        exact = (tangrad.log1p(-p + value * (2.0 * p - 1.0)) - low) / (p.log() - low)
        return tangrad.where(self._stable(), exact, value)

    def entropy(self) -> Any:
        low, high = tangrad.log1p(-self.probs), tangrad.log(self.probs)
        return self.mean * (low - high) - self._log_norm() - low

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return (self.logits,)

    def _log_normalizer(self, *natural_params: Any) -> Any:
        (x,) = natural_params
        stable = (x <= self._lims[0] - 0.5) | (x > self._lims[1] - 0.5)
        away = tangrad.where(stable, x, self._lims[0] - 0.5)
        exact = tangrad.log(tangrad.expm1(away).abs()) - tangrad.log(away.abs())
        return tangrad.where(stable, exact, 0.5 * x + x**2 / 24.0 - x**4 / 2880.0)
