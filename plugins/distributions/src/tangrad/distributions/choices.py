"""Distributions of a choice of several: categorical, by number or one-hot; multinomial."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.distributions import constraints
from tangrad.distributions.counts import Binomial, ProbsOrLogits
from tangrad.distributions.distribution import Distribution
from tangrad.distributions.utils import broadcast_all, forget

__all__ = [
    "Categorical",
    "Multinomial",
    "OneHotCategorical",
    "OneHotCategoricalStraightThrough",
]

_CHOICE = {"probs": constraints.simplex, "logits": constraints.real_vector}


class Categorical(ProbsOrLogits):
    """The distribution of the number of a choice.

    Args:
        probs: shape (..., k), not negative; normalized to sum to 1.
        logits: instead, logarithms of probabilities; normalized too.
    """

    arg_constraints = _CHOICE
    has_enumerate_support = True
    _is_binary = False

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        given = logits if probs is None else probs
        if given.dim() < 1:
            name = "logits" if probs is None else "probs"
            raise ValueError(f"`{name}` parameter must be at least one-dimensional.")
        forget(self, "probs", "logits")
        if probs is None:
            self.logits = logits - logits.logsumexp(dim=-1, keepdim=True)
        else:
            self.probs = probs / probs.sum(-1, keepdim=True)
        self._num_events = given.shape[-1]
        super().__init__(given.shape[:-1], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self._num_events - 1)

    def _undefined(self) -> Any:
        param = self._param
        return tangrad.full(
            self._extended_shape(), tangrad.nan, dtype=param.dtype, device=param.device
        )

    @property
    def mean(self) -> Any:
        return self._undefined()

    @property
    def mode(self) -> Any:
        return self.probs.argmax(dim=-1)

    @property
    def variance(self) -> Any:
        return self._undefined()

    def sample(self, sample_shape: Any = ()) -> Any:
        sample_shape = tangrad.Size(sample_shape)
        rows = self.probs.detach().reshape(-1, self._num_events)
        drawn = tangrad.multinomial(rows, sample_shape.numel(), True).T
        return drawn.reshape(self._extended_shape(sample_shape))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        value = value.long().unsqueeze(-1)
        value, logits = tangrad.broadcast_tensors(value, self.logits)
        return logits.gather(-1, value[..., :1]).squeeze(-1)

    def entropy(self) -> Any:
        logits = self.logits.clamp(min=tangrad.finfo(self.logits.dtype).min)
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Any:
        values = tangrad.arange(self._num_events, device=self._param.device)
        return self._enumerated(values, expand)


class ByCategorical(Distribution):
    """Keep probabilities or logits in a categorical distribution."""

    arg_constraints: Any = _CHOICE
    _categorical: Categorical

    @property
    def _param(self) -> Any:
        return self._categorical._param

    @property
    def probs(self) -> Any:
        """The probabilities."""
        return self._categorical.probs

    @property
    def logits(self) -> Any:
        """The logarithms of the probabilities."""
        return self._categorical.logits

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter that was given."""
        return self._categorical.param_shape


class OneHotCategorical(ByCategorical):
    """The distribution of a choice as a vector with one 1.

    Args:
        probs: shape (..., k), not negative; normalized to sum to 1.
        logits: instead, logarithms of probabilities; normalized too.
    """

    support = constraints.one_hot
    has_enumerate_support = True

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._categorical = Categorical(probs, logits)
        shape = self._categorical.param_shape
        super().__init__(self._categorical.batch_shape, shape[-1:], validate_args)

    @property
    def mean(self) -> Any:
        return self.probs

    @property
    def mode(self) -> Any:
        return self._one_hot(self._categorical.mode)

    @property
    def variance(self) -> Any:
        return self.probs * (1 - self.probs)

    def _one_hot(self, places: Any) -> Any:
        return tangrad.nn.functional.one_hot(places, self._event_shape[0]).to(self.probs)

    def sample(self, sample_shape: Any = ()) -> Any:
        return self._one_hot(self._categorical.sample(sample_shape))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return self._categorical.log_prob(value.max(-1).indices)

    def entropy(self) -> Any:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Any:
        n = self._event_shape[0]
        values = tangrad.eye(n, dtype=self._param.dtype, device=self._param.device)
        values = values.reshape((n, *(1,) * len(self._batch_shape), n))
        return values.expand((n, *self._batch_shape, n)) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """A one-hot choice whose gradient is passed to the probabilities (Bengio et al., 2013)."""

    has_rsample = True

    def rsample(self, sample_shape: Any = ()) -> Any:
        samples = self.sample(sample_shape)
        return samples + (self.probs - self.probs.detach())


class Multinomial(ByCategorical):
    """The distribution of how often each choice was taken in trials.

    Args:
        total_count: the number of trials, one for the whole batch.
        probs: shape (..., k), not negative; normalized to sum to 1.
        logits: instead, logarithms of probabilities; normalized too.
    """

    def __init__(
        self,
        total_count: int = 1,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._categorical = Categorical(probs, logits)
        self._binomial = Binomial(total_count, probs=self.probs)
        shape = self._categorical.param_shape
        super().__init__(self._categorical.batch_shape, shape[-1:], validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        return constraints.multinomial(self.total_count)

    @property
    def mean(self) -> Any:
        return self.probs * self.total_count

    @property
    def variance(self) -> Any:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Any:
        sample_shape = tangrad.Size(sample_shape)
        choices = self._categorical.sample(tangrad.Size((self.total_count,)) + sample_shape)
        choices = choices.movedim(0, -1)
        counts = choices.new_zeros(self._extended_shape(sample_shape))
        return counts.scatter_add(-1, choices, tangrad.ones_like(choices)).type_as(self.probs)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        logits = logits.masked_fill((value == 0) & (logits == -tangrad.inf), 0)
        ways = tangrad.lgamma(value.sum(-1) + 1) - tangrad.lgamma(value + 1).sum(-1)
        return ways + (logits * value).sum(-1)

    def entropy(self) -> Any:
        n = tangrad.tensor(self.total_count)
        chosen = self._categorical.entropy()
        # Of each count, how likely it is times the ways that are lost by its order.
        counts = self._binomial.enumerate_support(expand=False)[1:]
        likely = tangrad.exp(self._binomial.log_prob(counts))
        ways = (likely * tangrad.lgamma(counts + 1)).sum((0, -1))
        return n * chosen - tangrad.lgamma(n + 1) + ways
