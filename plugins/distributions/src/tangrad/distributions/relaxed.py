"""Relaxations of discrete distributions to continuous ones, through which gradients pass.

Maddison, Mnih and Teh: "The concrete distribution: a continuous relaxation of discrete random
variables"; Jang, Gu and Poole: "Categorical reparameterization with Gumbel-softmax", both 2017.
"""

from __future__ import annotations

import math
from typing import Any

import tangrad
from tangrad.distributions import constraints
from tangrad.distributions.choices import ByCategorical, Categorical
from tangrad.distributions.compound import TransformedDistribution
from tangrad.distributions.counts import ProbsOrLogits
from tangrad.distributions.transforms import ExpTransform, SigmoidTransform
from tangrad.distributions.utils import broadcast_all, clamp_probs

__all__ = [
    "ExpRelaxedCategorical",
    "LogitRelaxedBernoulli",
    "RelaxedBernoulli",
    "RelaxedOneHotCategorical",
]


class LogitRelaxedBernoulli(ProbsOrLogits):
    """The distribution of the logits of a relaxed truth value.

    Args:
        temperature: the lower, the nearer to 0 and 1 the sigmoid of the numbers.
        probs: the probability of 1.
        logits: instead, its log-odds.
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.real
    has_rsample = True

    def __init__(
        self,
        temperature: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        self.temperature = temperature
        self._take_either(validate_args, probs, logits)

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        probs = clamp_probs(self.probs.expand(shape))
        u = clamp_probs(tangrad.rand(shape, dtype=probs.dtype, device=probs.device))
        odds = u.log() - (-u).log1p() + probs.log() - (-probs).log1p()
        return odds / self.temperature

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        apart = logits - value * self.temperature
        return self.temperature.log() + apart - 2 * apart.exp().log1p()


class _Relaxed(TransformedDistribution):
    """A relaxed choice, with the parameters of what it is transformed from."""

    has_rsample: Any = True

    @property
    def temperature(self) -> Any:
        """How far from a choice."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Any:
        """The log-odds of a truth value, or the logarithms of the probabilities."""
        return self.base_dist.logits

    @property
    def probs(self) -> Any:
        """The probability of 1, or the probabilities."""
        return self.base_dist.probs


class RelaxedBernoulli(_Relaxed):
    """A relaxed truth value in (0, 1).

    Args:
        temperature: the lower, the nearer to 0 and 1.
        probs: the probability of 1.
        logits: instead, its log-odds.
    """

    arg_constraints = LogitRelaxedBernoulli.arg_constraints
    support = constraints.unit_interval

    def __init__(
        self,
        temperature: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        base = LogitRelaxedBernoulli(temperature, probs, logits)
        super().__init__(base, SigmoidTransform(), validate_args=validate_args)


class ExpRelaxedCategorical(ByCategorical):
    """The distribution of the logarithms of a relaxed one-hot choice.

    Args:
        temperature: the lower, the nearer to the corners.
        probs: shape (..., k), not negative; normalized to sum to 1.
        logits: instead, logarithms of probabilities; normalized too.
    """

    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        temperature: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        self._categorical = Categorical(probs, logits)
        self.temperature = temperature
        shape = self._categorical.param_shape
        super().__init__(self._categorical.batch_shape, shape[-1:], validate_args)

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        u = clamp_probs(tangrad.rand(shape, dtype=self.logits.dtype, device=self.logits.device))
        scores = (self.logits - (-(u.log())).log()) / self.temperature
        return scores - scores.logsumexp(dim=-1, keepdim=True)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        k = self._event_shape[0]
        logits, value = broadcast_all(self.logits, value)
        scale = math.lgamma(k) + (k - 1) * self.temperature.log()
        score = logits - value * self.temperature
        return (score - score.logsumexp(dim=-1, keepdim=True)).sum(-1) + scale


class RelaxedOneHotCategorical(_Relaxed):
    """A relaxed one-hot choice: a point of the simplex.

    Args:
        temperature: the lower, the nearer to the corners.
        probs: shape (..., k), not negative; normalized to sum to 1.
        logits: instead, logarithms of probabilities; normalized too.
    """

    arg_constraints = ExpRelaxedCategorical.arg_constraints
    support = constraints.simplex

    def __init__(
        self,
        temperature: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)
