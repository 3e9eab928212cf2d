"""Distributions of positive numbers: exponential, gamma, chi-squared, F, generalized Pareto."""

from __future__ import annotations

import math
from typing import Any

import tangrad
from tangrad.distributions import constraints
from tangrad.distributions.distribution import Distribution, ExponentialFamily
from tangrad.distributions.utils import broadcast_all

__all__ = ["Chi2", "Exponential", "FisherSnedecor", "Gamma", "GeneralizedPareto"]


class Exponential(ExponentialFamily):
    """The exponential distribution.

    Args:
        rate: the inverse of the mean.
    """

    arg_constraints = {"rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0
    rate: Any

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        self._take(validate_args, rate=rate)

    @property
    def mean(self) -> Any:
        return self.rate.reciprocal()

    @property
    def mode(self) -> Any:
        return tangrad.zeros_like(self.rate)

    @property
    def stddev(self) -> Any:
        return self.rate.reciprocal()

    @property
    def variance(self) -> Any:
        return self.rate.pow(-2)

    def rsample(self, sample_shape: Any = ()) -> Any:
        return self.rate.new_empty(self._extended_shape(sample_shape)).exponential_() / self.rate

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return self.rate.log() - self.rate * value

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return 1 - tangrad.exp(-self.rate * value)

    def icdf(self, value: Any) -> Any:
        return -tangrad.log1p(-value) / self.rate

    def entropy(self) -> Any:
        return 1.0 - tangrad.log(self.rate)

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return (-self.rate,)

    def _log_normalizer(self, *natural_params: Any) -> Any:
        return -tangrad.log(-natural_params[0])


class Gamma(ExponentialFamily):
    """The gamma distribution.

    Args:
        concentration: the shape.
        rate: the inverse of the scale.
    """

    arg_constraints: Any = {
        "concentration": constraints.positive,
        "rate": constraints.positive,
    }
    support = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0
    concentration: Any
    rate: Any

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self._take(validate_args, concentration=concentration, rate=rate)

    @property
    def mean(self) -> Any:
        return self.concentration / self.rate

    @property
    def mode(self) -> Any:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Any:
        return self.concentration / self.rate.pow(2)

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        value = tangrad._standard_gamma(self.concentration.expand(shape)) / self.rate.expand(shape)
        value.detach().clamp_(min=tangrad.finfo(value.dtype).tiny)  # outside of the graph
        return value

    def log_prob(self, value: Any) -> Any:
        value = tangrad.as_tensor(value, dtype=self.rate.dtype, device=self.rate.device)
        if self._validate_args:
            self._validate_sample(value)
        return (
            tangrad.xlogy(self.concentration, self.rate)
            + tangrad.xlogy(self.concentration - 1, value)
            - self.rate * value
            - tangrad.lgamma(self.concentration)
        )

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return tangrad.special.gammainc(self.concentration, self.rate * value)

    def entropy(self) -> Any:
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1.0 - a) * a.digamma()

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return self.concentration - 1, -self.rate

    def _log_normalizer(self, *natural_params: Any) -> Any:
        x, y = natural_params
        return tangrad.lgamma(x + 1) + (x + 1) * tangrad.log(-y.reciprocal())


class Chi2(Gamma):
    """The chi-squared distribution: a gamma distribution of shape df / 2 and rate 1 / 2.

    Args:
        df: degrees of freedom.
    """

    arg_constraints = {"df": constraints.positive}

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)

    def _expanded(self, name: str, value: Any, batch_shape: Any) -> Any:
        if name in Gamma.arg_constraints:
            return value.expand(batch_shape)
        return super()._expanded(name, value, batch_shape)

    @property
    def df(self) -> Any:
        """Degrees of freedom."""
        return self.concentration * 2


class FisherSnedecor(Distribution):
    """Fisher and Snedecor's F distribution: of a ratio of two mean squares.

    Args:
        df1: degrees of freedom of the numerator.
        df2: degrees of freedom of the denominator.
    """

    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True
    df1: Any
    df2: Any

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        df1, df2 = broadcast_all(df1, df2)
        self._gamma1, self._gamma2 = Gamma(df1 * 0.5, df1), Gamma(df2 * 0.5, df2)
        self._take(validate_args, df1=df1, df2=df2)

    @property
    def mean(self) -> Any:
        df2 = self.df2.masked_fill(self.df2 <= 2, math.nan)
        return df2 / (df2 - 2)

    @property
    def mode(self) -> Any:
        mode = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return mode.masked_fill(self.df1 <= 2, math.nan)

    @property
    def variance(self) -> Any:
        df2 = self.df2.masked_fill(self.df2 <= 4, math.nan)
        return 2 * df2**2 * (self.df1 + df2 - 2) / (self.df1 * (df2 - 2) ** 2 * (df2 - 4))

    def rsample(self, sample_shape: Any = ()) -> Any:
        # Gamma(df / 2, df) is a mean square, halved.
        numerator = self._gamma1.rsample(sample_shape)
        denominator = self._gamma2.rsample(sample_shape)
        tiny = tangrad.finfo(self.df2.dtype).tiny
        return (numerator / denominator.clamp(min=tiny)).clamp(min=tiny)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        a, b, ratio = self.df1 * 0.5, self.df2 * 0.5, self.df1 / self.df2
        norm = (a + b).lgamma() - a.lgamma() - b.lgamma()
        power = a * ratio.log() + (a - 1) * tangrad.log(value)
        return norm + power - (a + b) * tangrad.log1p(ratio * value)


class GeneralizedPareto(Distribution):
    """The generalized Pareto distribution, of what exceeds a high threshold.

    Args:
        loc: the lower end.
        scale: the width.
        concentration: the shape: positive for heavy tails, 0 for exponential ones, negative for
            an upper end at `loc - scale / concentration`.
    """

    arg_constraints = {
        "loc": constraints.real,
        "scale": constraints.positive,
        "concentration": constraints.real,
    }
    has_rsample = True
    loc: Any
    scale: Any
    concentration: Any

    def __init__(
        self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None
    ) -> None:
        self._take(validate_args, loc=loc, scale=scale, concentration=concentration)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        upper = self.loc - self.scale / self.concentration
        upper = tangrad.where(self.concentration < 0, upper, math.inf)
        return constraints.interval(self.loc, upper)

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        return self.icdf(tangrad.rand(shape, dtype=self.loc.dtype, device=self.loc.device))

    def _exponential(self) -> tuple[Any, Any]:
        """Return where tails are exponential, and the shape, 1 where they are."""
        nearly = tangrad.isclose(self.concentration, tangrad.zeros_like(self.concentration))
        return nearly, tangrad.where(nearly, 1.0, self.concentration)

    def _excess(self, value: Any) -> Any:
        """Return minus the logarithm of the probability of more than a value."""
        if self._validate_args:
            self._validate_sample(value)
        z = (value - self.loc) / self.scale
        exponential, shape = self._exponential()
        return tangrad.where(exponential, z, tangrad.log1p(shape * z) / shape)

    def log_prob(self, value: Any) -> Any:
        shape = tangrad.where(self._exponential()[0], 0.0, self.concentration)
        return -self.scale.log() - (1 + shape) * self._excess(value)

    def log_survival_function(self, value: Any) -> Any:
        """Return the logarithm of the probability of more than a value."""
        return -self._excess(value)

    def log_cdf(self, value: Any) -> Any:
        """Return the logarithm of `cdf`."""
        return tangrad.log1p(-tangrad.exp(self.log_survival_function(value)))

    def cdf(self, value: Any) -> Any:
        return tangrad.exp(self.log_cdf(value))

    def icdf(self, value: Any) -> Any:
        exponential, shape = self._exponential()
        excess = -tangrad.log1p(-value)
        z = tangrad.where(exponential, excess, tangrad.expm1(shape * excess) / shape)
        return self.loc + self.scale * z

    def _below(self, bound: float, value: Any) -> Any:
        return tangrad.where(self.concentration < bound, value, math.inf)

    @property
    def mean(self) -> Any:
        return self._below(1, self.loc + self.scale / (1 - self.concentration))

    @property
    def variance(self) -> Any:
        shape = self.concentration
        return self._below(0.5, self.scale**2 / ((1 - shape) ** 2 * (1 - 2 * shape)))

    @property
    def mode(self) -> Any:
        return self.loc

    def entropy(self) -> Any:
        return (self.scale.log() + self.concentration + 1).expand(self._batch_shape)
