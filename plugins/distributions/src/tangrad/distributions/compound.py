"""Distributions made of others: independent members, transformed, mixtures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tangrad
from tangrad.distributions import constraints
from tangrad.distributions.choices import Categorical
from tangrad.distributions.distribution import Distribution
from tangrad.distributions.transforms import ComposeTransform, Transform
from tangrad.distributions.utils import sum_rightmost

__all__ = ["Independent", "MixtureSameFamily", "TransformedDistribution"]


class Independent(Distribution):
    """Take dimensions at the end of a batch as parts of one event.

    Args:
        base_distribution: whose batch is taken.
        reinterpreted_batch_ndims: how many dimensions of it.

    Raises:
        ValueError: the batch has fewer dimensions.
    """

    arg_constraints: Any = {}

    def __init__(
        self,
        base_distribution: Any,
        reinterpreted_batch_ndims: int,
        validate_args: bool | None = None,
    ) -> None:
        dims = len(base_distribution.batch_shape)
        if reinterpreted_batch_ndims > dims:
            raise ValueError(
                "Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), "
                f"actual {reinterpreted_batch_ndims} vs {dims}"
            )
        shape = base_distribution.batch_shape + base_distribution.event_shape
        self.base_dist = base_distribution
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        kept = dims - reinterpreted_batch_ndims
        super().__init__(shape[:kept], shape[kept:], validate_args)

    @property
    def has_rsample(self) -> bool:
        return bool(self.base_dist.has_rsample)

    @property
    def has_enumerate_support(self) -> bool:
        return self.reinterpreted_batch_ndims == 0 and self.base_dist.has_enumerate_support

    @constraints.dependent_property
    def support(self) -> Any:
        support = self.base_dist.support
        taken = self.reinterpreted_batch_ndims
        return constraints.independent(support, taken) if taken else support

    @property
    def mean(self) -> Any:
        return self.base_dist.mean

    @property
    def mode(self) -> Any:
        return self.base_dist.mode

    @property
    def variance(self) -> Any:
        return self.base_dist.variance

    def sample(self, sample_shape: Any = ()) -> Any:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Any:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Any) -> Any:
        return sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Any:
        return sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand: bool = True) -> Any:
        """Return all values.

        Raises:
            NotImplementedError: the event is made of several numbers of the base.
        """
        if self.reinterpreted_batch_ndims > 0:
            raise NotImplementedError(
                "Enumeration over cartesian product is not implemented, for "
                f"reinterpreted_batch_ndims={self.reinterpreted_batch_ndims}"
            )
        return self.base_dist.enumerate_support(expand=expand)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_dist!r}, {self.reinterpreted_batch_ndims})"


class TransformedDistribution(Distribution):
    """The distribution of what transforms make of another's numbers.

    Args:
        base_distribution: of the numbers that are transformed.
        transforms: one, or a list that is applied from the first on.

    Raises:
        ValueError: the transforms are none, or do not fit the base's events.
    """

    arg_constraints: Any = {}
    base_dist: Any

    def __init__(
        self,
        base_distribution: Any,
        transforms: Transform | Sequence[Transform],
        validate_args: bool | None = None,
    ) -> None:
        self.transforms = [transforms] if isinstance(transforms, Transform) else transforms
        if not isinstance(self.transforms, list) or not all(
            isinstance(t, Transform) for t in self.transforms
        ):
            raise ValueError(
                "transforms must be a Transform or list of Transforms, but was "
                f"{type(transforms).__name__}: {transforms!r}"
            )
        base_shape = base_distribution.batch_shape + base_distribution.event_shape
        base_event_dim = len(base_distribution.event_shape)
        transform = ComposeTransform(self.transforms)
        if len(base_shape) < transform.domain.event_dim:
            raise ValueError(
                "base_distribution needs to have shape with size at least "
                f"{transform.domain.event_dim}, but got {tuple(base_shape)}."
            )
        shape = transform.forward_shape(base_shape)
        expanded = transform.inverse_shape(shape)
        if base_shape != expanded:
            base_distribution = base_distribution.expand(expanded[: len(expanded) - base_event_dim])
        # What the transforms see as one event may be a part of the base's batch.
        taken = transform.domain.event_dim - base_event_dim
        self.base_dist = Independent(base_distribution, taken) if taken > 0 else base_distribution
        change = transform.codomain.event_dim - transform.domain.event_dim
        event_dim = max(transform.codomain.event_dim, base_event_dim + change)
        kept = len(shape) - event_dim
        super().__init__(shape[:kept], shape[kept:], validate_args)

    def _expanded(self, name: str, value: Any, batch_shape: Any) -> Any:
        if name != "base_dist":
            return super()._expanded(name, value, batch_shape)
        shape = batch_shape + self._event_shape
        for transform in reversed(self.transforms):
            shape = transform.inverse_shape(shape)
        return value.expand(shape[: len(shape) - len(value.event_shape)])

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Any:
        if not self.transforms:
            return self.base_dist.support
        support = self.transforms[-1].codomain
        added = len(self._event_shape) - support.event_dim
        return constraints.independent(support, added) if added > 0 else support

    @property
    def has_rsample(self) -> bool:
        return bool(self.base_dist.has_rsample)

    def _forward(self, x: Any) -> Any:
        for transform in self.transforms:
            x = transform(x)
        return x

    def _backward(self, value: Any) -> Any:
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        return value

    def sample(self, sample_shape: Any = ()) -> Any:
        with tangrad.no_grad():
            return self._forward(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Any = ()) -> Any:
        return self._forward(self.base_dist.rsample(sample_shape))

    def log_prob(self, value: Any) -> Any:
        """Return the base's density at the inverse, over the change of volume."""
        if self._validate_args:
            self._validate_sample(value)
        event_dim, change, y = len(self._event_shape), 0.0, value
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            event_dim += transform.domain.event_dim - transform.codomain.event_dim
            change = change - sum_rightmost(
                transform.log_abs_det_jacobian(x, y), event_dim - transform.domain.event_dim
            )
            y = x
        base = self.base_dist.log_prob(y)
        return change + sum_rightmost(base, event_dim - len(self.base_dist.event_shape))

    def _monotonized(self, probability: Any) -> Any:
        """Mirror a probability if the transforms reverse the order."""
        sign: Any = 1
        for transform in self.transforms:
            sign = sign * transform.sign
        if isinstance(sign, int) and sign == 1:
            return probability
        return sign * (probability - 0.5) + 0.5

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return self._monotonized(self.base_dist.cdf(self._backward(value)))

    def icdf(self, value: Any) -> Any:
        return self._forward(self.base_dist.icdf(self._monotonized(value)))


class MixtureSameFamily(Distribution):
    """A mixture whose components are the last dimension of one distribution's batch.

    Args:
        mixture_distribution: a `Categorical` over k components.
        component_distribution: of a batch whose last dimension is k.

    Raises:
        ValueError: they do not fit.
    """

    arg_constraints: Any = {}
    has_rsample = False

    def __init__(
        self,
        mixture_distribution: Categorical,
        component_distribution: Any,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(
                "The Mixture distribution needs to be an instance of "
                f"{Categorical.__module__}.Categorical, not {type(mixture_distribution).__name__}"
            )
        if not isinstance(component_distribution, Distribution):
            raise ValueError(
                "The Component distribution needs to be an instance of Distribution, not "
                f"{type(component_distribution).__name__}"
            )
        batch_shape = component_distribution.batch_shape[:-1]
        pairs = zip(reversed(mixture_distribution.batch_shape), reversed(batch_shape), strict=False)
        if any(m != c and m != 1 for m, c in pairs):
            raise ValueError(
                f"`mixture_distribution.batch_shape` ({mixture_distribution.batch_shape}) is not "
                "compatible with `component_distribution.batch_shape` "
                f"({component_distribution.batch_shape})"
            )
        k = mixture_distribution.logits.shape[-1]
        if component_distribution.batch_shape[-1:] != (k,):
            raise ValueError(
                f"`mixture_distribution component` ({k}) does not equal "
                "`component_distribution.batch_shape[-1]` "
                f"({component_distribution.batch_shape[-1:]})"
            )
        if mixture_distribution.batch_shape != batch_shape:
            mixture_distribution = mixture_distribution.expand(batch_shape)
        self._mixture_distribution = mixture_distribution
        self._component_distribution = component_distribution
        super().__init__(batch_shape, component_distribution.event_shape, validate_args)

    @constraints.dependent_property
    def support(self) -> Any:
        return constraints.MixtureSameFamilyConstraint(self._component_distribution.support)

    @property
    def mixture_distribution(self) -> Categorical:
        """The distribution of the component's number."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Any:
        """The distributions of the components."""
        return self._component_distribution

    def _weights(self) -> Any:
        """Return the probability of each component, beside dimensions of events."""
        probs = self.mixture_distribution.probs
        return probs.reshape(probs.shape + (1,) * len(self._event_shape))

    def _mean_over(self, values: Any) -> Any:
        return (self._weights() * values).sum(-1 - len(self._event_shape))

    @property
    def mean(self) -> Any:
        return self._mean_over(self.component_distribution.mean)

    @property
    def variance(self) -> Any:
        """The mean of the components' variances and the variance of their means."""
        apart = self.component_distribution.mean - self._pad(self.mean)
        return self._mean_over(self.component_distribution.variance) + self._mean_over(apart**2)

    def _pad(self, x: Any) -> Any:
        return x.unsqueeze(-1 - len(self._event_shape))

    def cdf(self, x: Any) -> Any:
        below = self.component_distribution.cdf(self._pad(x))
        return (below * self.mixture_distribution.probs).sum(-1)

    def log_prob(self, x: Any) -> Any:
        if self._validate_args:
            self._validate_sample(x)
        of_components = self.component_distribution.log_prob(self._pad(x))
        return tangrad.logsumexp(
            of_components + tangrad.log_softmax(self.mixture_distribution.logits, -1), -1
        )

    def sample(self, sample_shape: Any = ()) -> Any:
        with tangrad.no_grad():
            chosen = self.mixture_distribution.sample(sample_shape)
            drawn = self.component_distribution.sample(sample_shape)
            chosen = chosen.reshape(chosen.shape + (1,) * (1 + len(self._event_shape)))
            dim = len(tangrad.Size(sample_shape)) + len(self._batch_shape)
            places = chosen.expand((*chosen.shape[: dim + 1], *self._event_shape))
            return drawn.gather(dim, places).squeeze(dim)

    def __repr__(self) -> str:
        parts = f"{self.mixture_distribution!r},\n  {self.component_distribution!r}"
        return f"MixtureSameFamily(\n  {parts})"
