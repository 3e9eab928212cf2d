"""Distributions on the whole line: normal, Laplace's, Cauchy's, Student's; von Mises's circle."""

from __future__ import annotations

import math
from typing import Any

import tangrad
from tangrad.distributions import constraints
from tangrad.distributions.distribution import Distribution, ExponentialFamily
from tangrad.distributions.positive import Chi2
from tangrad.distributions.utils import broadcast_all, lazy_property, standard_normal

__all__ = ["Cauchy", "Laplace", "Normal", "StudentT", "VonMises"]


class _LocationScale(Distribution):
    """Hold a location and a scale; symmetric, so the location is the mode and, if any, the mean.

    Args:
        loc: the centre.
        scale: the width.
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True
    loc: Any
    scale: Any

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self._take(validate_args, loc=loc, scale=scale)

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc

    def _standardized(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return (value - self.loc) / self.scale


class Normal(_LocationScale, ExponentialFamily):
    """The normal distribution of mean `loc` and standard deviation `scale`."""

    _mean_carrier_measure = 0

    @property
    def stddev(self) -> Any:
        return self.scale

    @property
    def variance(self) -> Any:
        return self.stddev.pow(2)

    def sample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        with tangrad.no_grad():
            return tangrad.normal(self.loc.expand(shape), self.scale.expand(shape))

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        return self.loc + standard_normal(shape, self.loc.dtype, self.loc.device) * self.scale

    def log_prob(self, value: Any) -> Any:
        z = self._standardized(value)
        return -z * z / 2 - self.scale.log() - math.log(math.sqrt(2 * math.pi))

    def cdf(self, value: Any) -> Any:
        return 0.5 * (1 + tangrad.erf(self._standardized(value) / math.sqrt(2)))

    def icdf(self, value: Any) -> Any:
        return self.loc + self.scale * tangrad.erfinv(2 * value - 1) * math.sqrt(2)

    def entropy(self) -> Any:
        return 0.5 + 0.5 * math.log(2 * math.pi) + tangrad.log(self.scale)

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        square = self.scale.pow(2)
        return self.loc / square, -0.5 * square.reciprocal()

    def _log_normalizer(self, *natural_params: Any) -> Any:
        x, y = natural_params
        return -0.25 * x.pow(2) / y + 0.5 * tangrad.log(-math.pi / y)


class Laplace(_LocationScale):
    """Laplace's distribution: exponential to both sides of `loc`, of mean distance `scale`."""

    @property
    def variance(self) -> Any:
        return 2 * self.scale.pow(2)

    @property
    def stddev(self) -> Any:
        return math.sqrt(2) * self.scale

    def rsample(self, sample_shape: Any = ()) -> Any:
        eps = tangrad.finfo(self.loc.dtype).eps
        u = self.loc.new_empty(self._extended_shape(sample_shape)).uniform_(eps - 1, 1)
        return self.loc - self.scale * u.sign() * tangrad.log1p(-u.abs())

    def log_prob(self, value: Any) -> Any:
        return -self._standardized(value).abs() - tangrad.log(2 * self.scale)

    def cdf(self, value: Any) -> Any:
        z = self._standardized(value)
        return 0.5 - 0.5 * z.sign() * tangrad.expm1(-z.abs())

    def icdf(self, value: Any) -> Any:
        side = value - 0.5
        return self.loc - self.scale * side.sign() * tangrad.log1p(-2 * side.abs())

    def entropy(self) -> Any:
        return 1 + tangrad.log(2 * self.scale)


class Cauchy(_LocationScale):
    """Cauchy's distribution, of median `loc` and half width at half maximum `scale`."""

    @property
    def mean(self) -> Any:
        return tangrad.full_like(self.loc, math.nan)

    @property
    def variance(self) -> Any:
        return tangrad.full_like(self.loc, math.inf)

    def rsample(self, sample_shape: Any = ()) -> Any:
        drawn = self.loc.new_empty(self._extended_shape(sample_shape)).cauchy_()
        return self.loc + drawn * self.scale

    def log_prob(self, value: Any) -> Any:
        z = self._standardized(value)
        return -math.log(math.pi) - self.scale.log() - (z**2).log1p()

    def cdf(self, value: Any) -> Any:
        return tangrad.atan(self._standardized(value)) / math.pi + 0.5

    def icdf(self, value: Any) -> Any:
        return tangrad.tan(math.pi * (value - 0.5)) * self.scale + self.loc

    def entropy(self) -> Any:
        return math.log(4 * math.pi) + self.scale.log()


class StudentT(_LocationScale):
    """Student's distribution of `df` degrees of freedom, shifted by `loc` and scaled by `scale`.

    Args:
        df: degrees of freedom.
        loc: the centre.
        scale: the width.
    """

    arg_constraints = {"df": constraints.positive, **_LocationScale.arg_constraints}
    df: Any

    def __init__(
        self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        df, loc, scale = broadcast_all(df, loc, scale)
        self._chi2 = Chi2(df)
        self._take(validate_args, df=df, loc=loc, scale=scale)

    @property
    def mean(self) -> Any:
        return self.loc.masked_fill(self.df <= 1, math.nan)

    @property
    def variance(self) -> Any:
        finite = self.scale.pow(2) * self.df / (self.df - 2)
        return tangrad.where(
            self.df > 2, finite, tangrad.where(self.df > 1, math.inf, math.nan).to(finite.dtype)
        )

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        x = standard_normal(shape, self.df.dtype, self.df.device)
        z = self._chi2.rsample(sample_shape)
        return self.loc + self.scale * x * tangrad.rsqrt(z / self.df)

    def _log_norm(self) -> Any:
        half = 0.5 * self.df
        beta = half.lgamma() - (half + 0.5).lgamma()
        return self.scale.log() + 0.5 * (self.df.log() + math.log(math.pi)) + beta

    def log_prob(self, value: Any) -> Any:
        z = self._standardized(value)
        return -0.5 * (self.df + 1) * (z * z / self.df).log1p() - self._log_norm()

    def entropy(self) -> Any:
        above = 0.5 * (self.df + 1)
        slope = tangrad.digamma(above) - tangrad.digamma(0.5 * self.df)
        return above * slope + self._log_norm()


class VonMises(Distribution):
    """Von Mises's distribution of angles, in radians, around `loc`.

    Numbers are drawn in [-π, π) by rejection (Best and Fisher: "Efficient simulation of the von
    Mises distribution", 1979), computed in float64.

    Args:
        loc: the most probable angle.
        concentration: about the inverse of the variance.
    """

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real
    has_rsample = False
    loc: Any
    concentration: Any

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self._take(validate_args, loc=loc, concentration=concentration)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        height = self.concentration * (tangrad.cos(value - self.loc) - 1)
        return height - math.log(2 * math.pi) - tangrad.special.i0e(self.concentration).log()

    @tangrad.no_grad()
    def sample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        kappa = self.concentration.double().expand(shape)
        tau = 1 + (1 + 4 * kappa**2).sqrt()
        rho = (tau - (2 * tau).sqrt()) / (2 * kappa)
        # Below this rho has lost its digits: its series.
        r = tangrad.where(kappa < 1e-5, 1 / kappa + kappa, (1 + rho**2) / (2 * rho))
        angle = tangrad.zeros_like(r)
        pending = tangrad.ones_like(r, dtype=tangrad.bool)
        while pending.any():
            first, second, third = tangrad.rand((3, *shape), dtype=r.dtype, device=r.device)
            z = tangrad.cos(math.pi * first)
            f = ((1 + r * z) / (r + z)).clamp(-1, 1)
            c = kappa * (r - f)
            accepted = (c * (2 - c) > second) | ((c / second).log() + 1 >= c)
            # A later draw replaces one that was accepted, as in PyTorch; it is as good.
            angle = tangrad.where(accepted, (third - 0.5).sign() * f.acos(), angle)
            pending = pending & ~accepted
        turned = (angle + math.pi + self.loc) % (2 * math.pi) - math.pi
        return turned.to(self.loc.dtype)

    @property
    def mean(self) -> Any:
        """The circular mean."""
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc

    @lazy_property
    def variance(self) -> Any:
        """The circular variance, 1 minus the length of the mean direction."""
        i0e, i1e = tangrad.special.i0e, tangrad.special.i1e
        return 1 - i1e(self.concentration) / i0e(self.concentration)
