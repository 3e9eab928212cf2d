"""The representation of floating-point numbers: parts, scaling by powers of two, neighbours."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.ops.definition.define import composite, pointwise
from tangrad.ops.definition.signature import Operand, Tensor, WrittenTensor

copysign = pointwise(
    "copysign(Tensor self, Operand other) -> Tensor",
    "copysign(self, other)",
    promote="float",
    dtypes="floating",
    beyond="wrapped",
    inplace=True,
    samples=lambda s: [*s.binary(), s(s.values([0.0, -0.0, 1.5]), -1.0)],
    doc="Give `self` the sign of `other`, the sign of zero and NaN included.",
)

ldexp_elements = pointwise(
    "ldexp_elements(Tensor self, Tensor other) -> Tensor",
    "self * exp2(other)",
    promote="float",
    inplace=True,
    function=False,
    method=False,
    oracle="ldexp",
    samples=lambda s: [
        s(s.tensor(3, 4), s.integers(-3, 4, 4, dtype="float32")),
        s(s.tensor(3), s.tensor()),
    ],
    doc="Multiply by a power of two for each element.",
)
ldexp_elements.title = "ldexp"


@composite(
    out=True,
    inplace=True,
    samples=lambda s: [
        s(s.tensor(3, 4), s.integers(-3, 4, 4, dtype="float32")),
        s(s.tensor(3, 4), s.integers(-3, 4, 3, 4, dtype="float32")),
        s(s.tensor(3), s.tensor()),
        s(s.tensor(1, 4), s.integers(-3, 4, 3, 1, dtype="float32")),
    ],
    errors=lambda s: [(s(s.tensor(3), s.tensor(4)), RuntimeError, "must match")],
)
def ldexp(self: Tensor, other: Tensor) -> Tensor:
    """Multiply by a power of two: `self * 2**other`.

    Args:
        self: a tensor of any shape.
        other: the exponents, broadcast against `self`.
    """
    dtype = self.dtype
    full = dtype in (tangrad.float32, tangrad.float64)
    if full and other.numel() < self.numel() and tangrad.promote_types(dtype, other.dtype) == dtype:
        return self * tangrad.exp2(other.to(dtype))  # each power once; halves would round it
    return ldexp_elements(self, other)


def _check_frexp(self: Any) -> None:
    if not self.dtype.is_floating_point:
        raise RuntimeError("torch.frexp() only supports floating-point dtypes")


frexp = pointwise(
    "frexp(Tensor self) -> (Tensor mantissa, Tensor exponent)",
    "frexp_mantissa(self); frexp_exponent(self)",
    check=_check_frexp,
    dtypes="floating",
    results=("promoted", "int32"),
    strict_out_dtype=True,
    samples=lambda s: s.unary(specials=False),
    errors=lambda s: [(s(s.tensor(2, dtype="int64")), RuntimeError, "floating-point")],
    doc="Split into a mantissa in [0.5, 1) and an exponent: `self = mantissa * 2**exponent`.",
)

# Binary digits, the least number above 0, the largest number.
_HALVES = {
    "float16": (11, 2.0**-24, 65504.0),
    "bfloat16": (8, 2.0**-133, float.fromhex("0x1.fep127")),
}

nextafter_wide = pointwise(
    "nextafter_wide(Tensor self, Tensor other) -> Tensor",
    "nextafter(self, other)",
    dtypes="floating",
    # A step that is as good as constant: PyTorch's derivative, too.
    partials={"self": "where(self == other, 0, 1)", "other": "0"},
    function=False,
    method=False,
    oracle="nextafter",
    samples=lambda s: s.binary(number=False) if s.dtype in ("float32", "float64") else [],
    doc="Compute the float32 or float64 after `self` towards `other`.",
)

nextafter_half = pointwise(
    "nextafter_half(Tensor self, Tensor other, int digits, float tiny, float largest) -> Tensor",
    "inward = (self > 0) == (other < self); "
    "shorter = where(inward & (abs(frexp_mantissa(self)) == 0.5), 1, 0); "
    "gap = maximum(exp2(frexp_exponent(self) - digits - shorter), tiny); "
    "step = where(self == 0, tiny, gap) * where(other > self, 1, -1); "
    "where(isnan(self) | isnan(other), nan, where(self == other, other, "
    "where(isinf(self), copysign(largest, self), self + step)))",
    dtypes="floating",
    partials={"self": "where(self == other, 0, 1)", "other": "0"},
    function=False,
    method=False,
    oracle=lambda torch, x, y, *_: torch.nextafter(x, y),
    samples=lambda s: (
        [
            s(a.args[0], a.args[1], *_HALVES[s.dtype])
            for a in [
                *s.binary(number=False),
                s(s.specials(), s.tensor(1)),
                s(s.specials(), s.values([0])),
            ]
        ]
        if s.dtype in _HALVES
        else []
    ),
    doc="Compute the half number after `self` towards `other`; computed in a wider dtype.",
)


@composite(
    inplace=True,
    out=True,
    dtypes="floating",
    samples=lambda s: s.binary(number=False) if s.is_floating else [],
    errors=lambda s: [
        (s(s.tensor(2, dtype="int64"), s.tensor(2, dtype="int64")), RuntimeError, "int64")
    ],
)
def nextafter(self: Tensor, other: Tensor) -> Tensor:
    """Compute the floating-point number after `self` towards `other`."""
    half = _HALVES.get(tangrad.result_type(self, other).name)
    return nextafter_half(self, other, *half) if half else nextafter_wide(self, other)


def _wide_power(base: Any, exponent: Any) -> Any:
    """Return the dtype in which float_power computes."""
    complex_ = any(
        x.dtype.is_complex if isinstance(x, tangrad.Tensor) else isinstance(x, complex)
        for x in (base, exponent)
    )
    return tangrad.complex128 if complex_ else tangrad.float64


def _widened(operand: Any, dtype: Any) -> Any:
    return operand.to(dtype) if isinstance(operand, tangrad.Tensor) else operand


def _power_samples(s: Any) -> list[Any]:
    return [
        s(s.tensor(3, 4, low=0.1, high=4), s.tensor(4, low=-2, high=3)),
        s(s.tensor(2, 3, strided=True), 2),
        s(s.tensor(low=1, high=4), -0.5),
        s(2, s.tensor(0, 3)),
    ]


@composite(
    strict_out_dtype=True,
    out=True,
    samples=_power_samples,
    errors=lambda s: [(s(s.tensor(2), s.tensor(3)), RuntimeError, "must match")],
)
def float_power(self: Operand, exponent: Operand) -> Tensor:
    """Raise to a power in float64, or in complex128 where an operand is complex."""
    dtype = _wide_power(self, exponent)
    return tangrad.pow(_widened(self, dtype), _widened(exponent, dtype))


@composite(
    dtypes="floating complex",
    function=False,
    samples=lambda s: (
        [s(s.tensor(3, low=0.1, high=4), 2)] if s.dtype in ("float64", "complex128") else []
    ),
    errors=lambda s: [(s(s.tensor(2, dtype="float32"), 2), RuntimeError, "float64")],
)
def float_power_(self: WrittenTensor, exponent: Operand) -> Tensor:
    """Raise a tensor of float64 or complex128 to a power, in place."""
    dtype = _wide_power(self, exponent)
    if self.dtype is not dtype:
        raise RuntimeError(
            f"float_power_: the base has dtype {self.dtype}, but the result is of {dtype}; use "
            "float_power"
        )
    return self.pow_(_widened(exponent, dtype))
