"""Transforms of single numbers, from the exponential to distribution functions."""

from __future__ import annotations

import math
from typing import Any

import tangrad
from tangrad.distributions import constraints
from tangrad.distributions.transform import PlainTransform, Transform, with_event_dim
from tangrad.distributions.utils import broadcast_all, lazy_property, sum_rightmost
from tangrad.nn import functional as F

__all__ = [
    "AbsTransform",
    "AffineTransform",
    "CumulativeDistributionTransform",
    "ExpTransform",
    "PowerTransform",
    "SigmoidTransform",
    "SoftplusTransform",
    "TanhTransform",
]


class _Increasing(PlainTransform):
    """Map single numbers, and keep their order."""

    domain = constraints.real
    bijective = True
    sign = 1


class ExpTransform(_Increasing):
    """Map to y = exp(x)."""

    codomain = constraints.positive

    def _call(self, x: Any) -> Any:
        return x.exp()

    def _inverse(self, y: Any) -> Any:
        return y.log()

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return x


class SigmoidTransform(_Increasing):
    """Map to y = 1 / (1 + exp(-x)), kept inside (0, 1)."""

    codomain = constraints.unit_interval

    def _call(self, x: Any) -> Any:
        return inside_unit_interval(tangrad.sigmoid(x))

    def _inverse(self, y: Any) -> Any:
        y = inside_unit_interval(y)
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return -F.softplus(-x) - F.softplus(x)


def inside_unit_interval(y: Any) -> Any:
    digits = tangrad.finfo(y.dtype)
    return y.clamp(min=digits.tiny, max=1.0 - digits.eps)


class SoftplusTransform(_Increasing):
    """Map to y = log(1 + exp(x))."""

    codomain = constraints.positive

    def _call(self, x: Any) -> Any:
        return F.softplus(x)

    def _inverse(self, y: Any) -> Any:
        return (-y).expm1().neg().log() + y

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return -F.softplus(-x)


class TanhTransform(_Increasing):
    """Map to y = tanh(x)."""

    codomain = constraints.interval(-1.0, 1.0)

    def _call(self, x: Any) -> Any:
        return x.tanh()

    def _inverse(self, y: Any) -> Any:
        return tangrad.atanh(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        # 1 - tanh(x)^2 without the cancellation.
        return 2.0 * (math.log(2.0) - x - F.softplus(-2.0 * x))


class AbsTransform(PlainTransform):
    """Map to y = |x|; the inverse takes the positive x."""

    domain = constraints.real
    codomain = constraints.positive

    def _call(self, x: Any) -> Any:
        return x.abs()

    def _inverse(self, y: Any) -> Any:
        return y


class PowerTransform(Transform):
    """Map positive numbers to y = x ** exponent.

    Args:
        exponent: a number or a tensor, not 0.
        cache_size: 0 or 1.
    """

    domain = constraints.positive
    codomain = constraints.positive
    bijective = True

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        (self.exponent,) = broadcast_all(exponent)

    def with_cache(self, cache_size: int = 1) -> Any:
        if self._cache_size == cache_size:
            return self
        return PowerTransform(self.exponent, cache_size=cache_size)

    @lazy_property
    def sign(self) -> Any:
        return self.exponent.sign()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PowerTransform):
            return False
        return bool(self.exponent.eq(other.exponent).all().item())

    def _call(self, x: Any) -> Any:
        return x.pow(self.exponent)

    def _inverse(self, y: Any) -> Any:
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape: Any) -> Any:
        return tangrad.broadcast_shapes(shape, getattr(self.exponent, "shape", ()))

    inverse_shape = forward_shape


class AffineTransform(Transform):
    """Map to y = loc + scale * x.

    Args:
        loc: a number or a tensor.
        scale: a number or a tensor, not 0.
        event_dim: how many dimensions an event has.
        cache_size: 0 or 1.
    """

    bijective = True

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim

    @property
    def event_dim(self) -> int:
        """How many dimensions an event has."""
        return self._event_dim

    def _real(self) -> Any:
        return with_event_dim(constraints.real, self._event_dim)

    domain = constraints.dependent_property(_real, is_discrete=False)
    codomain = constraints.dependent_property(_real, is_discrete=False)

    def with_cache(self, cache_size: int = 1) -> Any:
        if self._cache_size == cache_size:
            return self
        return AffineTransform(self.loc, self.scale, self.event_dim, cache_size=cache_size)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, AffineTransform)
            and _same(self.loc, other.loc)
            and _same(self.scale, other.scale)
        )

    @property
    def sign(self) -> Any:
        if isinstance(self.scale, (int, float)):
            return (self.scale > 0) - (self.scale < 0)
        return self.scale.sign()

    def _call(self, x: Any) -> Any:
        return self.loc + self.scale * x

    def _inverse(self, y: Any) -> Any:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        if isinstance(self.scale, (int, float)):
            change = tangrad.full_like(x, math.log(abs(self.scale)))
        else:
            change = tangrad.abs(self.scale).log()
        if self.event_dim:
            change = sum_rightmost(
                change.expand(tangrad.broadcast_shapes(change.shape, x.shape)), self.event_dim
            )
        return change.expand(x.shape[: x.dim() - self.event_dim])

    def forward_shape(self, shape: Any) -> Any:
        return tangrad.broadcast_shapes(
            shape, getattr(self.loc, "shape", ()), getattr(self.scale, "shape", ())
        )

    inverse_shape = forward_shape


def _same(a: Any, b: Any) -> bool:
    """Tell whether two numbers or tensors are equal."""
    equal = a == b
    return bool(equal.all().item()) if isinstance(equal, tangrad.Tensor) else bool(equal)


class CumulativeDistributionTransform(Transform):
    """Map numbers to their places in a distribution, by its `cdf`.

    Args:
        distribution: of single numbers, with `cdf`, `icdf` and `log_prob`.
        cache_size: 0 or 1.
    """

    bijective = True
    codomain = constraints.unit_interval
    sign = 1

    def __init__(self, distribution: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.distribution = distribution

    @property
    def domain(self) -> Any:
        return self.distribution.support

    def _call(self, x: Any) -> Any:
        return self.distribution.cdf(x)

    def _inverse(self, y: Any) -> Any:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return self.distribution.log_prob(x)

    def with_cache(self, cache_size: int = 1) -> Any:
        if self._cache_size == cache_size:
            return self
        return CumulativeDistributionTransform(self.distribution, cache_size=cache_size)
