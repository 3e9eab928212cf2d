"""Bessel functions, modified, scaled and spherical ones, and the Airy function.

What they compute is written in `tangrad.expr.composed`. PyTorch declares derivatives of the
modified functions of the first kind only.
"""

from __future__ import annotations

from typing import Any

from tangrad.ops.definition.define import pointwise

_UNDECLARED = "none: PyTorch declares it not differentiable"


def _refuses_complex(s: Any) -> list[Any]:
    return [(s(s.tensor(2, dtype="complex64")), RuntimeError, "complex64")]


def _where_torch_is_accurate(s: Any, low: float) -> list[Any]:
    """Make samples off 2 to 20, where PyTorch 2.13 has as few as 5 digits even in float64.

    The tests of the expression language compare the whole range with mpmath.
    """
    return [*s.unary(low, 1.5, specials=False), s(s.tensor(4, low=22, high=30))]


i0 = pointwise(
    "i0(Tensor self) -> Tensor",
    "i0(self)",
    promote="float",
    dtypes="floating",
    inplace=True,
    samples=lambda s: s.unary(-9, 9, specials=False),
    errors=_refuses_complex,
    doc="Compute the modified Bessel function of the first kind of order 0.",
)

special_i0e = pointwise(
    "special_i0e(Tensor self) -> Tensor",
    "i0e(self)",
    promote="float",
    dtypes="floating",
    namespace="special",
    samples=lambda s: s.unary(-9, 9),
    errors=_refuses_complex,
    doc="Compute `exp(-abs(self)) * i0(self)`, which does not overflow.",
)

special_i1 = pointwise(
    "special_i1(Tensor self) -> Tensor",
    "i1(self)",
    promote="float",
    dtypes="floating",
    namespace="special",
    samples=lambda s: s.unary(-9, 9, specials=False),
    errors=_refuses_complex,
    doc="Compute the modified Bessel function of the first kind of order 1.",
)

special_i1e = pointwise(
    "special_i1e(Tensor self) -> Tensor",
    "i1e(self)",
    promote="float",
    dtypes="floating",
    namespace="special",
    samples=lambda s: [*s.unary(-20, 20, specials=False), s(s.values([0, 1, 2, 90]))],
    errors=_refuses_complex,
    doc="Compute `exp(-abs(self)) * i1(self)`, which does not overflow.",
)

special_modified_bessel_i0 = pointwise(
    "special_modified_bessel_i0(Tensor self) -> Tensor",
    "i0(self)",
    promote="float",
    dtypes="floating",
    vjp=_UNDECLARED,
    namespace="special",
    samples=lambda s: s.unary(-9, 9),
    errors=_refuses_complex,
    doc="Compute the modified Bessel function of the first kind of order 0.",
)

special_modified_bessel_i1 = pointwise(
    "special_modified_bessel_i1(Tensor self) -> Tensor",
    "i1(self)",
    promote="float",
    dtypes="floating",
    vjp=_UNDECLARED,
    namespace="special",
    samples=lambda s: s.unary(-9, 9),
    errors=_refuses_complex,
    doc="Compute the modified Bessel function of the first kind of order 1.",
)

special_modified_bessel_k0 = pointwise(
    "special_modified_bessel_k0(Tensor self) -> Tensor",
    "modified_bessel_k0(self)",
    promote="float",
    dtypes="floating",
    vjp=_UNDECLARED,
    namespace="special",
    samples=lambda s: s.unary(0.05, 20),
    errors=_refuses_complex,
    doc="Compute the modified Bessel function of the second kind of order 0; NaN below 0.",
)

special_modified_bessel_k1 = pointwise(
    "special_modified_bessel_k1(Tensor self) -> Tensor",
    "modified_bessel_k1(self)",
    promote="float",
    dtypes="floating",
    vjp=_UNDECLARED,
    namespace="special",
    samples=lambda s: s.unary(0.05, 20),
    errors=_refuses_complex,
    doc="Compute the modified Bessel function of the second kind of order 1; NaN below 0.",
)

special_scaled_modified_bessel_k0 = pointwise(
    "special_scaled_modified_bessel_k0(Tensor x) -> Tensor",
    "scaled_modified_bessel_k0(x)",
    promote="float",
    dtypes="floating",
    vjp=_UNDECLARED,
    namespace="special",
    samples=lambda s: s.unary(0.05, 20),
    errors=_refuses_complex,
    doc="Compute `exp(x)` times the modified Bessel function of the second kind of order 0.",
)

special_scaled_modified_bessel_k1 = pointwise(
    "special_scaled_modified_bessel_k1(Tensor x) -> Tensor",
    "scaled_modified_bessel_k1(x)",
    promote="float",
    dtypes="floating",
    vjp=_UNDECLARED,
    namespace="special",
    samples=lambda s: s.unary(0.05, 20),
    errors=_refuses_complex,
    doc="Compute `exp(x)` times the modified Bessel function of the second kind of order 1.",
)

special_bessel_j0 = pointwise(
    "special_bessel_j0(Tensor self) -> Tensor",
    "bessel_j0(self)",
    promote="float",
    dtypes="floating",
    vjp=_UNDECLARED,
    namespace="special",
    samples=lambda s: _where_torch_is_accurate(s, -1.5),
    errors=_refuses_complex,
    doc="Compute the Bessel function of the first kind of order 0.",
)

special_bessel_j1 = pointwise(
    "special_bessel_j1(Tensor self) -> Tensor",
    "bessel_j1(self)",
    promote="float",
    dtypes="floating",
    vjp=_UNDECLARED,
    namespace="special",
    samples=lambda s: _where_torch_is_accurate(s, -1.5),
    errors=_refuses_complex,
    doc="Compute the Bessel function of the first kind of order 1.",
)

special_bessel_y0 = pointwise(
    "special_bessel_y0(Tensor self) -> Tensor",
    "bessel_y0(self)",
    promote="float",
    dtypes="floating",
    vjp=_UNDECLARED,
    namespace="special",
    samples=lambda s: _where_torch_is_accurate(s, 0.1),
    errors=_refuses_complex,
    doc="Compute the Bessel function of the second kind of order 0; NaN below 0.",
)

special_bessel_y1 = pointwise(
    "special_bessel_y1(Tensor self) -> Tensor",
    "bessel_y1(self)",
    promote="float",
    dtypes="floating",
    vjp=_UNDECLARED,
    namespace="special",
    samples=lambda s: _where_torch_is_accurate(s, 0.1),
    errors=_refuses_complex,
    doc="Compute the Bessel function of the second kind of order 1; NaN below 0.",
)

special_spherical_bessel_j0 = pointwise(
    "special_spherical_bessel_j0(Tensor x) -> Tensor",
    "where(isinf(x), 0, where(x == 0, 1, sin(x) / x))",
    promote="float",
    dtypes="floating",
    vjp=_UNDECLARED,
    namespace="special",
    samples=lambda s: s.unary(-9, 9),
    errors=_refuses_complex,
    doc="Compute the spherical Bessel function of the first kind of order 0, `sin(x) / x`.",
)

special_airy_ai = pointwise(
    "special_airy_ai(Tensor x) -> Tensor",
    "airy_ai(x)",
    promote="float",
    dtypes="floating",
    vjp=_UNDECLARED,
    namespace="special",
    samples=lambda s: s.unary(-1.2, 9, specials=False),
    errors=_refuses_complex,
    doc="Compute the Airy function Ai; NaN at the infinities.",
)
