"""Distributions of counts: Bernoulli's, binomial, geometric, negative binomial, Poisson's."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.distributions import constraints
from tangrad.distributions.distribution import Distribution, ExponentialFamily
from tangrad.distributions.positive import Gamma
from tangrad.distributions.utils import (
    broadcast_all,
    forget,
    lazy_property,
    logits_to_probs,
    probs_to_logits,
)
from tangrad.nn.functional import binary_cross_entropy_with_logits

__all__ = ["Bernoulli", "Binomial", "Geometric", "NegativeBinomial", "Poisson"]


class ProbsOrLogits(Distribution):
    """Hold probabilities of success or, instead, their logits; the others follow."""

    _is_binary = True

    def _take_either(
        self, validate_args: bool | None, probs: Any, logits: Any, **others: Any
    ) -> None:
        """Keep the one of `probs` and `logits` that was given, broadcast with other parameters.

        Raises:
            ValueError: both were given, or none.
        """
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        given = {"logits": logits} if probs is None else {"probs": probs}
        forget(self, "probs", "logits")
        self._take(validate_args, **others, **given)

    @property
    def _param(self) -> Any:
        return vars(self).get("probs", vars(self).get("logits"))

    @lazy_property
    def probs(self) -> Any:
        """The probabilities."""
        return logits_to_probs(self.logits, self._is_binary)

    @lazy_property
    def logits(self) -> Any:
        """The logarithms of probabilities, or of odds where there is one event."""
        return probs_to_logits(self.probs, self._is_binary)

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter that was given."""
        return self._param.size()

    def _log_likelihood(self, value: Any) -> Any:
        """Return the logarithm of probability of truth or of its opposite, or between them."""
        logits, value = broadcast_all(self.logits, value)
        return -binary_cross_entropy_with_logits(logits, value, reduction="none")


class Bernoulli(ProbsOrLogits, ExponentialFamily):
    """The distribution of 1, of probability `probs`, and 0.

    Args:
        probs: the probability of 1.
        logits: instead, its log-odds.
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.boolean
    has_enumerate_support = True
    _mean_carrier_measure = 0

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._take_either(validate_args, probs, logits)

    @property
    def mean(self) -> Any:
        return self.probs

    @property
    def mode(self) -> Any:
        return (self.probs >= 0.5).to(self.probs).masked_fill(self.probs == 0.5, tangrad.nan)

    @property
    def variance(self) -> Any:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Any:
        with tangrad.no_grad():
            return tangrad.bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return self._log_likelihood(value)

    def entropy(self) -> Any:
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Any:
        values = tangrad.arange(2, dtype=self._param.dtype, device=self._param.device)
        return self._enumerated(values, expand)

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return (tangrad.logit(self.probs),)

    def _log_normalizer(self, *natural_params: Any) -> Any:
        return tangrad.log1p(tangrad.exp(natural_params[0]))


class Binomial(ProbsOrLogits):
    """The distribution of the number of successes in trials.

    Args:
        total_count: the number of trials.
        probs: the probability of success.
        logits: instead, its log-odds.
    """

    arg_constraints = {
        "total_count": constraints.nonnegative_integer,
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    has_enumerate_support = True
    total_count: Any

    def __init__(
        self,
        total_count: Any = 1,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        self._take_either(validate_args, probs, logits, total_count=total_count)
        self.total_count = self.total_count.type_as(self._param)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Any:
        return self.total_count * self.probs

    @property
    def mode(self) -> Any:
        return ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count)

    @property
    def variance(self) -> Any:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        with tangrad.no_grad():
            return tangrad.binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        ways = (
            tangrad.lgamma(self.total_count + 1)
            - tangrad.lgamma(value + 1)
            - tangrad.lgamma(self.total_count - value + 1)
        )
        failed = tangrad.nn.functional.softplus(self.logits)  # -log(1 - probs)
        return ways + value * self.logits - self.total_count * failed

    def entropy(self) -> Any:
        """Return the entropy.

        Raises:
            NotImplementedError: the numbers of trials differ within the batch.
        """
        log_prob = self.log_prob(self.enumerate_support(False))
        return -(log_prob.exp() * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Any:
        """Return all values.

        Raises:
            NotImplementedError: the numbers of trials differ within the batch.
        """
        total = int(self.total_count.max())
        if not self.total_count.min() == total:
            raise NotImplementedError(
                "Inhomogeneous total count not supported by `enumerate_support`."
            )
        values = tangrad.arange(1 + total, dtype=self._param.dtype, device=self._param.device)
        return self._enumerated(values, expand)


class Geometric(ProbsOrLogits):
    """The distribution of the number of failures before the first success.

    Args:
        probs: the probability of success, above 0.
        logits: instead, its log-odds.
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.nonnegative_integer

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._take_either(validate_args, probs, logits)
        if self._validate_args and probs is not None and not (self.probs > 0).all():
            raise ValueError(
                f"Expected parameter probs (Tensor of shape {tuple(self.probs.shape)}) of "
                f"distribution {self!r} to be positive but found invalid values:\n{self.probs}"
            )

    @property
    def mean(self) -> Any:
        return 1.0 / self.probs - 1.0

    @property
    def mode(self) -> Any:
        return tangrad.zeros_like(self.probs)

    @property
    def variance(self) -> Any:
        return (1.0 / self.probs - 1.0) / self.probs

    def sample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        with tangrad.no_grad():
            u = self.probs.new_empty(shape).uniform_(tangrad.finfo(self.probs.dtype).tiny, 1)
            return (u.log() / (-self.probs).log1p()).floor()

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        value, probs = broadcast_all(value, self.probs)
        certain = (probs == 1) & (value == 0)  # 0 failures, where a failure has probability 0
        return value * (-probs.masked_fill(certain, 0)).log1p() + self.probs.log()

    def entropy(self) -> Any:
        return (
            binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none") / self.probs
        )


class NegativeBinomial(ProbsOrLogits):
    """The distribution of the number of successes before `total_count` failures.

    Args:
        total_count: the number of failures, also a fraction.
        probs: the probability of success, in [0, 1).
        logits: instead, its log-odds.
    """

    arg_constraints = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer
    total_count: Any

    def __init__(
        self,
        total_count: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        self._take_either(validate_args, probs, logits, total_count=total_count)
        self.total_count = self.total_count.type_as(self._param)

    @property
    def mean(self) -> Any:
        return self.total_count * tangrad.exp(self.logits)

    @property
    def mode(self) -> Any:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0)

    @property
    def variance(self) -> Any:
        return self.mean / tangrad.sigmoid(-self.logits)

    @lazy_property
    def _gamma(self) -> Gamma:
        """The distribution of Poisson's rate."""
        return Gamma(self.total_count, tangrad.exp(-self.logits), validate_args=False)

    def sample(self, sample_shape: Any = ()) -> Any:
        with tangrad.no_grad():
            return tangrad.poisson(self._gamma.sample(sample_shape))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        log_sigmoid = tangrad.nn.functional.logsigmoid
        likely = self.total_count * log_sigmoid(-self.logits) + value * log_sigmoid(self.logits)
        total = self.total_count + value
        ways = tangrad.lgamma(total) - tangrad.lgamma(1.0 + value) - self.total_count.lgamma()
        # Of no failures and no successes there is one way, though gamma(0) is infinite.
        return likely + ways.masked_fill(total == 0.0, 0.0)


class Poisson(ExponentialFamily):
    """Poisson's distribution of the number of independent events.

    Args:
        rate: the mean.
    """

    arg_constraints = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer
    rate: Any

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        self._take(validate_args, rate=rate)

    @property
    def mean(self) -> Any:
        return self.rate

    @property
    def mode(self) -> Any:
        return self.rate.floor()

    @property
    def variance(self) -> Any:
        return self.rate

    def sample(self, sample_shape: Any = ()) -> Any:
        with tangrad.no_grad():
            return tangrad.poisson(self.rate.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        rate, value = broadcast_all(self.rate, value)
        return value.xlogy(rate) - rate - (value + 1).lgamma()

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return (tangrad.log(self.rate),)

    def _log_normalizer(self, *natural_params: Any) -> Any:
        return tangrad.exp(natural_params[0])
