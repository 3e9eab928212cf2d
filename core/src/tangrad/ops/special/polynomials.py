"""Orthogonal polynomials: of Chebyshev, of four kinds and shifted, Hermite, Laguerre, Legendre.

The degree is truncated to an integer; of a negative one they are 0. They are computed by the
recurrence over the degree (`tangrad.expr.composed`), Chebyshev's inside (-1, 1) by their
trigonometric form. PyTorch declares none of them differentiable.
"""

from __future__ import annotations

from typing import Any

from tangrad.ops.definition.define import pointwise

_UNDECLARED = "none: PyTorch declares it not differentiable"


def _samples(s: Any) -> list[Any]:
    # Of half numbers, and of few others, high degrees overflow.
    degrees = s.values([0, 1, 2, 3, 4, 5] if s.dtype == "float16" else [0, 1, 2, 5, 8, 12])
    return [
        s(s.tensor(3, 1, low=-0.1, high=1.1), degrees),
        s(s.tensor(low=-1, high=1), 3),
        s(s.tensor(0, 3), s.tensor(3, low=0, high=9)),
        s(s.tensor(2, 3, strided=True, low=-1, high=2), s.tensor(2, 3, low=-2, high=5)),
        s(1.25, degrees),
        *([s(s.values([0, 1, 0.5]), s.values([[2.7], [8], [-1]]))] if s.is_floating else []),
    ]


def _errors(s: Any) -> list[Any]:
    return [
        (s(s.tensor(2, dtype="complex64"), 2), RuntimeError, "complex64"),
        (s(s.tensor(2), s.tensor(3)), RuntimeError, "must match"),
    ]


def _polynomial(name: str, doc: str, expression: str = "") -> Any:
    """Return the fields that the definitions have in common."""
    return {
        "expression": expression or f"{name}(x, n)",
        "promote": "float",
        "dtypes": "floating",
        "beyond": "wrapped",
        "vjp": _UNDECLARED,
        "namespace": "special",
        "samples": _samples,
        "errors": _errors,
        "doc": doc,
    }


def _shifted(kind: str, ordinal: str) -> Any:
    return _polynomial(
        f"shifted_chebyshev_polynomial_{kind}",
        f"Compute the shifted Chebyshev polynomial of the {ordinal} kind, of `2 x - 1`.",
        f"chebyshev_polynomial_{kind}(2 * x - 1, n)",
    )


special_chebyshev_polynomial_t = pointwise(
    "special_chebyshev_polynomial_t(Operand x, Operand n) -> Tensor",
    **_polynomial("chebyshev_polynomial_t", "Compute the Chebyshev polynomial of the first kind."),
)

special_chebyshev_polynomial_u = pointwise(
    "special_chebyshev_polynomial_u(Operand x, Operand n) -> Tensor",
    **_polynomial("chebyshev_polynomial_u", "Compute the Chebyshev polynomial of the second kind."),
)

special_chebyshev_polynomial_v = pointwise(
    "special_chebyshev_polynomial_v(Operand x, Operand n) -> Tensor",
    **_polynomial("chebyshev_polynomial_v", "Compute the Chebyshev polynomial of the third kind."),
)

special_chebyshev_polynomial_w = pointwise(
    "special_chebyshev_polynomial_w(Operand x, Operand n) -> Tensor",
    **_polynomial("chebyshev_polynomial_w", "Compute the Chebyshev polynomial of the fourth kind."),
)

special_shifted_chebyshev_polynomial_t = pointwise(
    "special_shifted_chebyshev_polynomial_t(Operand x, Operand n) -> Tensor",
    **_shifted("t", "first"),
)

special_shifted_chebyshev_polynomial_u = pointwise(
    "special_shifted_chebyshev_polynomial_u(Operand x, Operand n) -> Tensor",
    **_shifted("u", "second"),
)

special_shifted_chebyshev_polynomial_v = pointwise(
    "special_shifted_chebyshev_polynomial_v(Operand x, Operand n) -> Tensor",
    **_shifted("v", "third"),
)

special_shifted_chebyshev_polynomial_w = pointwise(
    "special_shifted_chebyshev_polynomial_w(Operand x, Operand n) -> Tensor",
    **_shifted("w", "fourth"),
)

special_hermite_polynomial_h = pointwise(
    "special_hermite_polynomial_h(Operand x, Operand n) -> Tensor",
    **_polynomial(
        "hermite_polynomial_h", "Compute the physicist's Hermite polynomial; NaN beyond degree 512."
    ),
)

special_hermite_polynomial_he = pointwise(
    "special_hermite_polynomial_he(Operand x, Operand n) -> Tensor",
    **_polynomial(
        "hermite_polynomial_he",
        "Compute the probabilist's Hermite polynomial; NaN beyond degree 512.",
    ),
)

special_laguerre_polynomial_l = pointwise(
    "special_laguerre_polynomial_l(Operand x, Operand n) -> Tensor",
    **_polynomial(
        "laguerre_polynomial_l", "Compute the Laguerre polynomial; NaN beyond degree 100,000."
    ),
)

special_legendre_polynomial_p = pointwise(
    "special_legendre_polynomial_p(Operand x, Operand n) -> Tensor",
    **_polynomial(
        "legendre_polynomial_p", "Compute the Legendre polynomial; NaN beyond degree 100,000."
    ),
)
