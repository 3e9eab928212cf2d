"""Powers and roots, element by element."""

from __future__ import annotations

from typing import Any

from tangrad.ops.definition.define import pointwise
from tangrad.ops.pointwise.arithmetic import NUMBERS, is_integral


def _check_pow(self: Any, exponent: Any) -> None:
    negative = isinstance(exponent, int) and not isinstance(exponent, bool) and exponent < 0
    if negative and is_integral(self):
        raise RuntimeError("Integers to negative integer powers are not allowed.")


def _pow_samples(s: Any) -> list[Any]:
    low, high = (0.2, 3.0) if s.is_floating or s.is_complex else (0, 4)
    return [
        *s.binary(low, high),
        s(s.tensor(3, 4), 2),
        s(s.tensor(3, 4), 3),
        s(s.values([0, 1, 2]), 0),
        s(2, s.tensor(3, low=low, high=high)),
    ]


pow = pointwise(
    "pow(Operand self, Operand exponent) -> Tensor",
    "self ** exponent", c_implementation="power",
    dtypes=NUMBERS,
    check=_check_pow,
    partials={
        "self": "where(exponent == 0, 0, exponent * self ** (exponent - 1))",
        "exponent": "where((self == 0) & (real(exponent) >= 0), 0, result * log(self))",
    },
    beyond="wrapped refused",
    inplace=True,
    samples=_pow_samples,
    errors=lambda s: [
        (s(s.tensor(2, dtype="int64"), -1), RuntimeError,
         "Integers to negative integer powers are not allowed."),
    ],
    doc="Raise to a power. Integers stay integers and take no negative integer power.",
)  # fmt: skip

square = pointwise(
    "square(Tensor self) -> Tensor",
    "self * self",
    promote="number",
    dtypes=NUMBERS,
    node="pow",
    inplace=True,
    samples=lambda s: s.unary(),
    doc="Square every element.",
)

_bool_power = pointwise(
    "_bool_power(Tensor self, Scalar exponent) -> Tensor",
    "logical_or(self, logical_not(exponent))",
    dtypes="bool",
    vjp="none: bool has no derivatives",
    inplace=True,
    function=False,
    method=False,
    samples=lambda s: [s(s.mask(3, 4), True), s(s.mask(2, strided=True), False)],
    oracle=lambda torch, x, exponent: torch.pow(x, exponent),
    doc="Raise truth values to the power True, or False.",
)

_cube = pointwise(
    "_cube(Tensor self) -> Tensor",
    "self * self * self",
    promote="number",
    dtypes=NUMBERS,
    partials={"self": "3 * (self * self)"},
    node="pow",
    inplace=True,
    function=False,
    method=False,
    samples=lambda s: s.unary(),
    oracle=lambda torch, x: x**3,
    doc="Raise every element to the third power.",
)

sqrt = pointwise(
    "sqrt(Tensor self) -> Tensor",
    "sqrt(self)",
    promote="float",
    partials={"self": "0.5 / result"},
    inplace=True,
    samples=lambda s: s.unary(0.1, 9, specials=not s.is_complex),
    doc="Compute the square root; NaN for negative real numbers.",
)

rsqrt = pointwise(
    "rsqrt(Tensor self) -> Tensor",
    "rsqrt(self)",
    promote="float",
    partials={"self": "-0.5 * result * result * result"},
    inplace=True,
    samples=lambda s: s.unary(0.25, 9),
    doc="Compute the reciprocal of the square root.",
)

reciprocal = pointwise(
    "reciprocal(Tensor self) -> Tensor",
    "1 / self",
    promote="float",
    partials={"self": "-result * result"},
    inplace=True,
    samples=lambda s: s.unary(0.25, 4),
    doc="Compute `1 / self`.",
)

hypot = pointwise(
    "hypot(Tensor self, Tensor other) -> Tensor",
    "hypot(self, other)",
    dtypes="floating",
    inplace=True,
    samples=lambda s: s.binary(0.25, 4, number=False),
    errors=lambda s: [
        (s(s.tensor(2, dtype="int64"), s.tensor(2, dtype="int64")), RuntimeError,
         "not implemented"),
    ],
    doc="Compute the hypotenuse `sqrt(self**2 + other**2)` without overflow on the way.",
)  # fmt: skip
