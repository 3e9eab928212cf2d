"""The functions that belong to the gamma function: incomplete, poly-, multivariate, zeta."""

from __future__ import annotations

import math
from typing import Any

import tangrad
from tangrad.ops.definition.define import composite, overload, pointwise
from tangrad.ops.definition.signature import Tensor
from tangrad.ops.views.geometry import dtype_name


def _gamma_samples(s: Any) -> list[Any]:
    if not s.is_floating:
        return []
    edges = [0.0, 1.0, 0.5, float("inf"), -1.0]
    return [*s.binary(0.1, 9, number=False), s(s.values([[e] for e in edges]), s.values([edges]))]


def _gamma_errors(s: Any) -> list[Any]:
    return [
        (s(s.tensor(2, dtype="int64"), s.tensor(2, dtype="int64")), RuntimeError, "int64"),
        (s(s.tensor(2), s.tensor(3)), RuntimeError, "must match"),
    ]


_NOT_CLOSED = "none: it has no closed form"
_UPPER = "gamma_density(self, other)"

igamma = pointwise(
    "igamma(Tensor self, Tensor other) -> Tensor",
    "igamma(self, other)",
    dtypes="floating",
    vjp={"self": _NOT_CLOSED, "other": f"g * {_UPPER}"},
    jvp={"other": f"other_t * {_UPPER}"},
    inplace=True,
    samples=_gamma_samples,
    errors=_gamma_errors,
    doc="Compute the regularised lower incomplete gamma function P(self, other).",
)

igammac = pointwise(
    "igammac(Tensor self, Tensor other) -> Tensor",
    "igammac(self, other)",
    dtypes="floating",
    vjp={"self": _NOT_CLOSED, "other": f"-g * {_UPPER}"},
    jvp={"other": f"-other_t * {_UPPER}"},
    inplace=True,
    samples=_gamma_samples,
    errors=_gamma_errors,
    doc="Compute the regularised upper incomplete gamma function Q(self, other).",
)

special_zeta = pointwise(
    "special_zeta(Operand self, Operand other) -> Tensor",
    "zeta(self, other)",
    promote="float",
    dtypes="floating",
    vjp={"self": _NOT_CLOSED, "other": "-g * self * zeta(self + 1, other)"},
    jvp={"other": "-other_t * self * zeta(self + 1, other)"},
    beyond="wrapped",
    namespace="special",
    samples=lambda s: [
        *s.binary(1.5, 9),
        s(2.0, s.tensor(3, low=0.5, high=4)),
        s(s.values([0, 1, 2, 3]), s.values([1, 2, 3, 4])),
        *([s(s.values([math.inf, math.inf]), s.values([1, 0.5]))] if s.is_floating else []),
    ],
    errors=lambda s: [(s(s.tensor(2, dtype="complex64"), 2), RuntimeError, "complex64")],
    doc="Compute the Hurwitz zeta function, the sum of `(k + other) ** -self` over k >= 0.",
)

polygamma_order = pointwise(
    "polygamma_order(Tensor self, int n) -> Tensor",
    "polygamma(n, self)",
    promote="float",
    dtypes="floating",
    partials={"self": "polygamma(n + 1, self)"},
    inplace=True,
    function=False,
    method=False,
    check=lambda n: _check_order(n),
    samples=lambda s: [
        s(s.tensor(3, 4, low=0.5, high=9), 2),
        s(s.tensor(3, low=0.5, high=9), 0),
        s(s.tensor(low=0.5, high=9), 3),
        s(s.tensor(2, 0), 1),
        s(s.tensor(2, 3, low=0.5, high=9, strided=True), 4),
    ],
    oracle=lambda torch, x, n: torch.polygamma(n, x),
    errors=lambda s: [(s(s.tensor(2), -1), RuntimeError, "negative n")],
    doc="Compute the n-th derivative of `digamma`.",
)


def _check_order(n: int) -> None:
    if n < 0:
        raise RuntimeError(f"polygamma(n, x) does not support negative n, got n={n}")


@composite(
    out=True,
    function=False,
    method=False,
    oracle="polygamma",
    samples=lambda s: [
        s(2, s.tensor(3, 4, low=0.5, high=9)),
        s(0, s.tensor(low=0.5, high=9)),
        s(2, s.tensor(2, 0)),
        s(3, s.tensor(2, 3, low=0.5, high=9, strided=True)),
    ],
    errors=lambda s: [(s(-1, s.tensor(2)), RuntimeError, "negative n")],
)
def polygamma_of(n: int, self: Tensor) -> Tensor:
    """Compute the n-th derivative of `digamma`."""
    return polygamma_order(self, n)


# The method has the tensor first.
polygamma = overload(
    "polygamma",
    "polygamma_order",
    "polygamma_of",
    inplace=True,
    samples=lambda s: [s(2, s.tensor(3, low=0.5, high=9))],
    doc="Compute the n-th derivative of `digamma`: `polygamma(n, x)` or `x.polygamma(n)`.",
)


def _check_multigamma(self: Any, p: int) -> None:
    if p < 1:
        raise RuntimeError(f"mvlgamma: p has to be greater than or equal to 1, got p={p}")
    if self.dtype is tangrad.bool:
        raise RuntimeError("mvlgamma: the input tensor may not be a boolean tensor")
    if self.dtype.is_complex:
        raise NotImplementedError(f"mvlgamma is not implemented for {dtype_name(self.dtype)}")


@composite(
    dtypes="integral floating",
    inplace=True,
    out=True,
    samples=lambda s: [
        s(s.tensor(3, 4, low=3, high=9), 2),
        s(s.tensor(low=3, high=9), p=1),
        s(s.tensor(0, 3), 3),
        s(s.tensor(2, 3, low=3, high=9, strided=True), 5),
    ],
    errors=lambda s: [
        (s(s.tensor(2), 0), RuntimeError, "greater than or equal to 1"),
        (s(s.tensor(2, dtype="bool"), 2), RuntimeError, "boolean"),
    ],
)
def mvlgamma(self: Tensor, p: int) -> Tensor:
    """Compute the logarithm of the multivariate gamma function of dimension p.

    It is `p (p - 1) / 4 log(pi)` plus the sum of `lgamma(self - i / 2)` over 0 <= i < p.
    """
    _check_multigamma(self, p)
    halves = tangrad.arange(p, device=self.device, dtype=tangrad.result_type(self, 0.5)) / 2
    sums = (self.unsqueeze(-1) - halves).lgamma().sum(-1)
    return sums + p * (p - 1) / 4 * math.log(math.pi)
