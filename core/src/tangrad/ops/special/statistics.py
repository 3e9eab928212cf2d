"""Special functions of statistics: the normal distribution, entropy, scaled error functions."""

from __future__ import annotations

import math
from typing import Any

from tangrad.ops.definition.define import pointwise


def _refuses_complex(s: Any) -> list[Any]:
    return [(s(s.tensor(2, dtype="complex64")), RuntimeError, "complex64")]


special_erfcx = pointwise(
    "special_erfcx(Tensor self) -> Tensor",
    "erfcx(self)",
    promote="float",
    dtypes="floating",
    namespace="special",
    samples=lambda s: [
        *s.unary(-3, 9, specials=False),
        *([s(s.values([0, -30, 30, math.nan]))] if s.is_floating else []),
    ],
    errors=_refuses_complex,
    doc="Compute `exp(self * self) * erfc(self)`, which does not underflow.",
)

special_ndtr = pointwise(
    "special_ndtr(Tensor self) -> Tensor",
    "0.5 * erfc(self * -0.7071067811865476)",
    promote="float",
    dtypes="floating",
    partials={"self": "0.3989422804014327 * exp(self * self * -0.5)"},
    namespace="special",
    samples=lambda s: s.unary(),
    errors=_refuses_complex,
    doc="Compute the distribution function of the standard normal distribution.",
)

special_log_ndtr = pointwise(
    "special_log_ndtr(Tensor self) -> Tensor",
    "log_ndtr(self)",
    promote="float",
    dtypes="floating",
    # The density over the distribution, without the cancellation of their logarithms.
    partials={
        "self": "where(self < -1, 0.7978845608028654 / erfcx(self * -0.7071067811865476), "
        "0.3989422804014327 * exp(self * self * -0.5 - result))"
    },
    namespace="special",
    samples=lambda s: [*s.unary(-9, 9, specials=False), s(s.values([0, 1, 30, 90]))],
    errors=_refuses_complex,
    doc="Compute the logarithm of `ndtr` without loss of digits in the lower tail.",
)

special_ndtri = pointwise(
    "special_ndtri(Tensor self) -> Tensor",
    "ndtri(self)",
    promote="float",
    dtypes="floating",
    # The density at a quantile, without the square of it that would be rounded.
    partials={
        "self": "size = abs(result); where(size < inf, 1.2533141373155003 * "
        "erfcx(size * 0.7071067811865476) / where(self < 0.5, self, 1 - self), size)"
    },
    namespace="special",
    samples=lambda s: s.unary(0.05, 0.95),
    errors=_refuses_complex,
    doc="Compute the quantile of the standard normal distribution: the inverse of `ndtr`.",
)

special_entr = pointwise(
    "special_entr(Tensor self) -> Tensor",
    "where(self > 0, -(self * log(self)), where(self < 0, -inf, self * 0))",
    promote="float",
    dtypes="floating",
    partials={"self": "-(1 + log(self))"},
    namespace="special",
    samples=lambda s: s.unary(0.1, 9),
    errors=_refuses_complex,
    doc="Compute `-self * log(self)`; 0 at 0 and minus infinity below.",
)

special_xlog1py = pointwise(
    "special_xlog1py(Operand self, Operand other) -> Tensor",
    "where(isnan(other), nan, where(self == 0, 0, self * log1p(other)))",
    promote="float",
    dtypes="floating",
    partials={
        "self": "where((self == 0) & (other <= -1), 0, log1p(other))",
        "other": "self / (other + 1)",
    },
    beyond="wrapped",
    namespace="special",
    samples=lambda s: [
        *s.binary(0.1, 9),
        s(0, s.specials()),
        s(s.specials(), 0),
        s(2.5, s.tensor(3, low=0.1, high=9)),
    ],
    errors=lambda s: [(s(s.tensor(2, dtype="complex64"), 2), RuntimeError, "complex64")],
    doc="Compute `self * log1p(other)`, which is zero where `self` is, unless `other` is NaN.",
)
