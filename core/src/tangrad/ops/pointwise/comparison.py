"""Comparisons: element by element, and of whole tensors."""

from __future__ import annotations

from typing import Any

from tangrad.ops.definition.define import composite, pointwise
from tangrad.ops.definition.signature import Tensor

REAL = "bool integral floating"


def _complex_error(name: str) -> Any:
    return lambda s: [(s(s.tensor(2, dtype="complex64"), s.tensor(2)), RuntimeError, name)]


eq = pointwise(
    "eq(Tensor self, Operand other) -> Tensor",
    "self == other",
    results=("bool",),
    vjp="none: bool output",
    beyond="compared",
    inplace=True,
    samples=lambda s: [*s.binary(), s(s.specials(), s.tensor())],
    errors=lambda s: [(s(s.tensor(3), s.tensor(2)), RuntimeError, "size")],
    doc="Tell which elements are equal; NaN equals nothing.",
)

ne = pointwise(
    "ne(Tensor self, Operand other) -> Tensor",
    "self != other",
    results=("bool",),
    vjp="none: bool output",
    alias=("not_equal",),
    beyond="compared",
    inplace=True,
    samples=lambda s: [*s.binary(), s(s.specials(), s.tensor())],
    errors=lambda s: [(s(s.tensor(3), s.tensor(2)), RuntimeError, "size")],
    doc="Tell which elements differ; NaN differs from everything.",
)

lt = pointwise(
    "lt(Tensor self, Operand other) -> Tensor",
    "self < other",
    dtypes=REAL,
    results=("bool",),
    vjp="none: bool output",
    alias=("less",),
    beyond="compared",
    inplace=True,
    samples=lambda s: [*s.binary(), s(s.specials(), s.tensor())],
    errors=_complex_error("lt"),
    doc="Tell which elements of `self` are less than those of `other`.",
)

le = pointwise(
    "le(Tensor self, Operand other) -> Tensor",
    "self <= other",
    dtypes=REAL,
    results=("bool",),
    vjp="none: bool output",
    alias=("less_equal",),
    beyond="compared",
    inplace=True,
    samples=lambda s: [*s.binary(), s(s.specials(), s.tensor())],
    errors=_complex_error("le"),
    doc="Tell which elements of `self` are less than or equal to those of `other`.",
)

gt = pointwise(
    "gt(Tensor self, Operand other) -> Tensor",
    "self > other",
    dtypes=REAL,
    results=("bool",),
    vjp="none: bool output",
    alias=("greater",),
    beyond="compared",
    inplace=True,
    samples=lambda s: [*s.binary(), s(s.specials(), s.tensor())],
    errors=_complex_error("gt"),
    doc="Tell which elements of `self` are greater than those of `other`.",
)

ge = pointwise(
    "ge(Tensor self, Operand other) -> Tensor",
    "self >= other",
    dtypes=REAL,
    results=("bool",),
    vjp="none: bool output",
    alias=("greater_equal",),
    beyond="compared",
    inplace=True,
    samples=lambda s: [*s.binary(), s(s.specials(), s.tensor())],
    errors=_complex_error("ge"),
    doc="Tell which elements of `self` are greater than or equal to those of `other`.",
)


def _check_tolerances(name: str, self: Any, other: Any, rtol: float, atol: float) -> None:
    if self.dtype != other.dtype:
        raise RuntimeError(
            f"{name}: both tensors must have the same dtype, got {self.dtype} and {other.dtype}; "
            "convert one of them with .to(dtype)"
        )
    if rtol < 0 or atol < 0:
        raise RuntimeError(
            f"{name}: rtol and atol must be greater than or equal to zero, "
            f"got rtol={rtol}, atol={atol}"
        )


@composite(
    samples=lambda s: [
        s(s.tensor(3, 4), s.tensor(4)),
        s(s.tensor(3, 4), s.tensor(3, 4), 0.5, 1.0),
        s(s.specials(), s.specials()),
        s(s.specials(), s.specials(), equal_nan=True),
    ],
    errors=lambda s: [
        (s(s.tensor(2, dtype="int32"), s.tensor(2, dtype="int64")), RuntimeError, "dtype"),
        (s(s.tensor(2), s.tensor(2), rtol=-1.0), RuntimeError, "rtol"),
    ],
)
def isclose(
    self: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Tensor:
    """Tell which elements are equal up to `atol + rtol * abs(other)`."""
    _check_tolerances("isclose", self, other, rtol, atol)
    close = self == other
    inexact = self.dtype.is_floating_point or self.dtype.is_complex
    if inexact and equal_nan:
        close = close | (self.isnan() & other.isnan())
    if rtol == 0 and atol == 0:
        return close
    if not inexact:
        # In the default dtype, as PyTorch does: the tolerance is no integer.
        self, other = self * 1.0, other * 1.0
    difference = (self - other).abs()
    return close | (difference.isfinite() & (difference <= atol + (rtol * other).abs()))


@composite(
    samples=lambda s: [
        s(s.tensor(3, 4), s.tensor(4)),
        s(s.specials(), s.specials(), equal_nan=True),
        s(s.tensor(0), s.tensor(0)),
    ],
    errors=lambda s: [(s(s.tensor(2), s.tensor(2), atol=-1.0), RuntimeError, "atol")],
)
def allclose(
    self: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> bool:
    """Tell whether all elements are equal up to `atol + rtol * abs(other)`."""
    _check_tolerances("allclose", self, other, rtol, atol)
    return bool(self.isclose(other, rtol, atol, equal_nan).all())


@composite(
    samples=lambda s: [
        s(s.tensor(3, 4), s.tensor(3, 4)),
        s(s.tensor(3), s.tensor(4)),
        s(s.values([0, 1]), s.values([0, 1])),
        s(s.tensor(0, 2), s.tensor(0, 2)),
    ],
    errors=lambda s: [(s(s.tensor(2), 1), TypeError, "equal")],
)
def equal(self: Tensor, other: Tensor) -> bool:
    """Tell whether two tensors have the same shape and the same elements."""
    if self.shape != other.shape:
        return False
    # Most tensors that differ do so from the start; a glance at it is cheap beside many elements.
    if self.numel() > 4096 and self.shape[0] >= 16 and not (self[0] == other[0]).all().item():
        return False
    return bool((self == other).all())


def _check_step(self: Any, values: Any) -> None:
    if self.dtype != values.dtype:
        raise RuntimeError(
            "heaviside is not yet implemented for tensors with different dtypes: got "
            f"{self.dtype} and {values.dtype}; convert one with .to(dtype)"
        )


_STEPS = "none: a step function, as in PyTorch"

heaviside = pointwise(
    "heaviside(Tensor self, Tensor values) -> Tensor",
    "where(self == 0, values, where(self > 0, 1, 0))",
    check=_check_step,
    dtypes=REAL,
    strict_out_dtype=True,
    vjp={"self": _STEPS, "values": _STEPS},
    inplace=True,
    samples=lambda s: [s(s.tensor(3, 4), s.tensor(4)), s(s.values([0, 1, 0]), s.tensor())],
    errors=lambda s: [(s(s.tensor(2), s.integers(0, 2, 2)), RuntimeError, "different dtypes")],
    doc="Compute the step function: 0 below zero and of NaN, 1 above, `values` at zero.",
)
