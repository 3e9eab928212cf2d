"""Arithmetic: what a pocket calculator does, element by element."""

from __future__ import annotations

from typing import Any

from tangrad.ops.definition.define import composite, overload, pointwise
from tangrad.ops.definition.signature import Operand, Tensor
from tangrad.tensor.ranges import require_fit

REAL = "bool integral floating"
NUMBERS = "integral floating complex"
REAL_NUMBERS = "integral floating"


def _is_bool(operand: Any) -> bool:
    if isinstance(operand, (bool, int, float, complex)):
        return isinstance(operand, bool)
    return operand.dtype.name == "bool"


def is_integral(operand: Any) -> bool:
    if isinstance(operand, (bool, int, float, complex)):
        return isinstance(operand, int)
    return not (operand.dtype.is_floating_point or operand.dtype.is_complex)


def _check_alpha(self: Any, other: Any, alpha: Any) -> None:
    if isinstance(alpha, bool) and not (_is_bool(self) and _is_bool(other)):
        raise RuntimeError("Boolean alpha only supported for Boolean results.")
    if isinstance(alpha, float) and is_integral(self) and is_integral(other):
        raise RuntimeError(
            "For integral input tensors, argument alpha must not be a floating point number."
        )
    if isinstance(alpha, complex) and not (_is_complex(self) or _is_complex(other)):
        raise RuntimeError(
            "For non-complex input tensors, argument alpha must not be a complex number."
        )


def _is_complex(operand: Any) -> bool:
    if isinstance(operand, (bool, int, float, complex)):
        return isinstance(operand, complex)
    return operand.dtype.is_complex


def _check_subtraction(self: Any, other: Any) -> None:
    bools = _is_bool(self) + _is_bool(other)
    if bools == 2:
        raise RuntimeError(
            "Subtraction, the `-` operator, with two bool tensors is not supported. "
            "Use the `^` or `logical_xor()` operator instead."
        )
    if bools == 1:
        raise RuntimeError(
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are "
            "trying to invert a mask, use the `~` or `logical_not()` operator instead."
        )


def _check_scaled_subtraction(self: Any, other: Any, alpha: Any) -> None:
    _check_subtraction(self, other)
    _check_alpha(self, other, alpha)


# Sums, differences, products, quotients

add_plain = pointwise(
    "add_plain(Operand self, Operand other) -> Tensor",
    "self + other",
    numbers=True,
    beyond="wrapped",
    inplace=True,
    function=False,
    method=False,
    oracle="add",
    samples=lambda s: s.binary(),
    doc="Add two tensors; bools add as `or`.",
)

add_scaled = pointwise(
    "add_scaled(Operand self, Operand other, *, Scalar alpha) -> Tensor",
    "self + alpha * other", checks_kinds=True,
    numbers=True,
    check=_check_alpha,
    beyond="wrapped narrow",
    inplace=True,
    function=False,
    method=False,
    oracle="add",
    samples=lambda s: s.binary(alpha=True if s.is_bool else 3),
    errors=lambda s: [
        (s(s.tensor(2, dtype="int64"), s.tensor(2, dtype="int64"), alpha=0.5), RuntimeError,
         "alpha must not be a floating point number"),
    ],
    doc="Add `alpha * other` to a tensor.",
)  # fmt: skip

add = overload(
    "add",
    "add_plain",
    "add_scaled",
    old_form=(("alpha",), 1),
    inplace=True,
    samples=lambda s: [s(s.tensor(3, 4), s.tensor(4)), s(s.tensor(3), 2), s(s.tensor(3, 1), True)],
    errors=lambda s: [
        (s(s.tensor(3, 4), s.tensor(3)), RuntimeError, "size"),
        (s(s.tensor(3), "a"), TypeError, "add"),
    ],
    doc="Add: `self + alpha * other`.",
)

sub_plain = pointwise(
    "sub_plain(Operand self, Operand other) -> Tensor",
    "self - other",
    numbers=True,
    check=_check_subtraction,
    dtypes=NUMBERS,
    beyond="wrapped",
    inplace=True,
    function=False,
    method=False,
    oracle="sub",
    samples=lambda s: s.binary(),
    errors=lambda s: [
        (s(s.mask(2), s.mask(2)), RuntimeError, "with two bool tensors is not supported"),
        (s(s.mask(2), 1), RuntimeError, "with a bool tensor is not supported"),
    ],
    doc="Subtract one tensor from another.",
)

sub_scaled = pointwise(
    "sub_scaled(Operand self, Operand other, *, Scalar alpha) -> Tensor",
    "self - alpha * other",
    checks_kinds=True,
    numbers=True,
    check=_check_scaled_subtraction,
    dtypes=NUMBERS,
    beyond="wrapped narrow",
    inplace=True,
    function=False,
    method=False,
    oracle="sub",
    samples=lambda s: s.binary(alpha=3),
    doc="Subtract `alpha * other` from a tensor.",
)

sub = overload(
    "sub",
    "sub_plain",
    "sub_scaled",
    old_form=(("alpha",), 1),
    alias=("subtract",),
    inplace=True,
    samples=lambda s: [s(s.tensor(3, 4), s.tensor(4)), s(s.tensor(3), 2)],
    errors=lambda s: [(s(s.tensor(3, 4), s.tensor(3)), RuntimeError, "size")],
    doc="Subtract: `self - alpha * other`.",
)

rsub = pointwise(
    "rsub(Tensor self, Operand other, Scalar alpha=1) -> Tensor",
    "other - alpha * self",
    checks_kinds=True,
    check=_check_scaled_subtraction,
    dtypes=NUMBERS,
    method=False,
    beyond="wrapped narrow",
    samples=lambda s: [*s.binary(), s(s.tensor(3), s.tensor(2, 1), alpha=2)],
    errors=lambda s: [
        (s(s.mask(2), s.mask(2)), RuntimeError, "with two bool tensors is not supported")
    ],
    doc="Subtract `alpha * self` from `other`: subtraction with the operands exchanged.",
)


@composite(samples=lambda s: [s(s.tensor(3, 4)), s(s.tensor())])
def positive(self: Tensor) -> Tensor:
    """Return the tensor itself: what `+x` means."""
    if _is_bool(self):
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return self


mul = pointwise(
    "mul(Operand self, Operand other) -> Tensor",
    "self * other",
    exact_numbers=True,
    numbers=True,
    alias=("multiply",),
    beyond="wrapped",
    inplace=True,
    samples=lambda s: s.binary(),
    errors=lambda s: [(s(s.tensor(3, 4), s.tensor(3)), RuntimeError, "size")],
    doc="Multiply two tensors; bools multiply as `and`.",
)

true_divide = pointwise(
    "true_divide(Operand self, Operand other) -> Tensor",
    "self / other",
    node="div",
    exact_numbers=True,
    numbers=True,
    promote="float",
    partials={"self": "1 / other", "other": "-(self / other) / other"},
    beyond="wrapped",
    inplace=True,
    samples=lambda s: [*s.binary(nonzero=True), s(s.specials(), s.tensor())],
    doc="Divide one tensor by another; the quotient of integers is a floating-point number.",
)

div_rounded = pointwise(
    "div_rounded(Operand self, Operand other, *, str rounding_mode) -> Tensor",
    {"trunc": "trunc_divide(self, other)", "floor": "floor_divide(self, other)"},
    numbers=True,
    dtypes=REAL_NUMBERS,
    beyond="divided",
    inplace=True,
    function=False,
    method=False,
    oracle="div",
    samples=lambda s: [
        *s.binary(nonzero=True, rounding_mode="trunc"),
        *s.binary(nonzero=True, rounding_mode="floor"),
    ],
    errors=lambda s: [
        (s(s.tensor(2, dtype="int64"), 0, rounding_mode="trunc"), RuntimeError,
         "ZeroDivisionError"),
        (s(s.tensor(2, dtype="int64"), 0, rounding_mode="floor"), RuntimeError,
         "ZeroDivisionError"),
    ],
    doc="Divide and round the quotient towards zero (trunc) or towards minus infinity (floor).",
)  # fmt: skip


@composite(
    inplace=True,
    out=True,
    function=False,
    method=False,
    dtypes=REAL_NUMBERS,
    oracle="div",
    samples=lambda s: [
        s(s.tensor(3, 4), s.tensor(4, nonzero=True), rounding_mode="trunc"),
        s(s.values([3, 1000, -9]), s.values([1.001, 3, 3.01]), rounding_mode="trunc"),
        s(s.tensor(3), 2, rounding_mode="floor"),
    ],
    errors=lambda s: [
        (s(s.tensor(3), s.tensor(3), rounding_mode="up"), RuntimeError, "rounding_mode")
    ],
)
def div_by_mode(self: Operand, other: Operand, *, rounding_mode: str) -> Tensor:
    """Divide and round the quotient; a quotient of halves is one before it is truncated.

    Not that by a single element, which PyTorch divides by in float32.
    """
    if rounding_mode == "trunc" and _is_half(self) and _is_half(other) and other.numel() != 1:
        return true_divide(self, other).trunc()
    return div_rounded(self, other, rounding_mode=rounding_mode)


def _is_half(operand: Any) -> bool:
    return (
        hasattr(operand, "numel")
        and operand.dtype.itemsize == 2
        and (operand.dtype.is_floating_point)
    )


def _check_unrounded(rounding_mode: Any) -> None:
    if rounding_mode is not None:
        raise TypeError(
            "div(): argument 'rounding_mode' must be str or None, not "
            f"{type(rounding_mode).__name__}"
        )


div_unrounded = pointwise(
    "div_unrounded(Operand self, Operand other, *, any rounding_mode=None) -> Tensor",
    "self / other",
    numbers=True,
    promote="float",
    check=_check_unrounded,
    partials={"self": "1 / other", "other": "-(self / other) / other"},
    beyond="wrapped",
    inplace=True,
    function=False,
    method=False,
    oracle="div",
    samples=lambda s: [s(s.tensor(3), s.tensor(3, nonzero=True), rounding_mode=None)],
    doc="Divide without rounding.",
)

div = overload(
    "div",
    "true_divide",
    "div_by_mode",
    "div_unrounded",
    alias=("divide",),
    inplace=True,
    samples=lambda s: [
        s(s.tensor(3, 4), s.tensor(4, nonzero=True)),
        s(s.tensor(3, 4), s.tensor(4, nonzero=True), rounding_mode=None),
        *(
            []
            if s.is_complex
            else [s(s.tensor(3), s.tensor(3, nonzero=True), rounding_mode="trunc")]
        ),
    ],
    errors=lambda s: [
        (s(s.tensor(3), s.tensor(3), rounding_mode="up"), RuntimeError, "rounding_mode"),
        (s(s.tensor(3), s.tensor(3), rounding_mode=1), TypeError, "rounding_mode"),
    ],
    doc="Divide; `rounding_mode` None is true division, 'trunc' and 'floor' round the quotient.",
)

floor_divide = pointwise(
    "floor_divide(Operand self, Operand other) -> Tensor",
    "floor_divide(self, other)",
    numbers=True,
    dtypes=REAL_NUMBERS,
    beyond="divided",
    inplace=True,
    samples=lambda s: [
        *s.binary(nonzero=True),
        s(s.tensor(4), 2 if s.dtype.startswith("uint") else -2),
    ],
    errors=lambda s: [
        (s(s.tensor(2, dtype="int64"), 0), RuntimeError, "ZeroDivisionError"),
        (s(s.mask(2), s.mask(2)), RuntimeError, "not implemented"),
    ],
    doc="Divide and round the quotient towards minus infinity.",
)

remainder = pointwise(
    "remainder(Operand self, Operand other) -> Tensor",
    "remainder(self, other)",
    dtypes=REAL_NUMBERS,
    beyond="divided",
    inplace=True,
    samples=lambda s: [
        *s.binary(nonzero=True),
        s(s.tensor(4), 2 if s.dtype.startswith("uint") else -2),
    ],
    errors=lambda s: [(s(s.tensor(2, dtype="int64"), 0), RuntimeError, "ZeroDivisionError")],
    doc="Compute Python's modulus `self - other * floor(self / other)`: it has `other`'s sign.",
)

fmod = pointwise(
    "fmod(Tensor self, Operand other) -> Tensor",
    "fmod(self, other)",
    dtypes=REAL_NUMBERS,
    beyond="divided",
    inplace=True,
    samples=lambda s: [
        *s.binary(nonzero=True),
        s(s.tensor(4), 2 if s.dtype.startswith("uint") else -2),
    ],
    errors=lambda s: [(s(s.tensor(2, dtype="int64"), 0), RuntimeError, "ZeroDivisionError")],
    doc="Compute C's modulus `self - other * trunc(self / other)`: it has `self`'s sign.",
)


# Signs


def _check_negation(self: Any) -> None:
    if _is_bool(self):
        raise RuntimeError(
            "Negation, the `-` operator, on a bool tensor is not supported. If you are trying "
            "to invert a mask, use the `~` or `logical_not()` operator instead."
        )


neg = pointwise(
    "neg(Tensor self) -> Tensor",
    "-self",
    check=_check_negation,
    dtypes=NUMBERS,
    alias=("negative",),
    inplace=True,
    strict_out_dtype=True,
    samples=lambda s: s.unary(),
    errors=lambda s: [(s(s.mask(2)), RuntimeError, "on a bool tensor is not supported")],
    doc="Negate; unsigned integers wrap around.",
)

abs = pointwise(
    "abs(Tensor self) -> Tensor",
    "abs(self)",
    dtypes=NUMBERS,
    results=("real",),
    vjp={"self": "g * sgn(self)"},
    jvp={"self": "real(conj(sgn(self)) * self_t)"},
    alias=("absolute",),
    inplace=True,
    strict_out_dtype=True,
    samples=lambda s: s.unary(),
    doc="Compute the absolute value: the modulus of a complex number, as a real tensor.",
)

sign = pointwise(
    "sign(Tensor self) -> Tensor",
    "sign(self)",
    dtypes=REAL,
    inplace=True,
    strict_out_dtype=True,
    samples=lambda s: s.unary(),
    errors=lambda s: [(s(s.tensor(2, dtype="complex64")), RuntimeError, "sign")],
    doc="Compute the sign, -1, 0 or 1; zero for NaN.",
)

sgn = pointwise(
    "sgn(Tensor self) -> Tensor",
    "sgn(self)",
    inplace=True,
    strict_out_dtype=True,
    samples=lambda s: s.unary(specials=not s.is_complex),
    doc="Compute the sign: for complex numbers `self / abs(self)`, zero at zero.",
)


# Fused forms


def _check_lerp(self: Any, end: Any, weight: Any) -> None:
    if isinstance(weight, complex):
        require_fit(weight, self.dtype, "lerp")
    if is_integral(self) or is_integral(end):
        raise RuntimeError(
            f"lerp: not implemented for integers, got {self.dtype} and {end.dtype}; "
            "convert them with .to(dtype)"
        )
    for name, other in (("end", end), ("weight", weight)):
        number = name == "weight" and not getattr(other, "ndim", 0)
        if not number and other.dtype != self.dtype:
            raise RuntimeError(
                f"lerp: expected dtype {self.dtype} for `{name}` but got dtype {other.dtype}"
            )


lerp = pointwise(
    "lerp(Tensor self, Tensor end, Operand weight) -> Tensor",
    "where(abs(weight) < 0.5, self + weight * (end - self), end - (end - self) * (1 - weight))",
    exact_numbers=True,
    check=_check_lerp,
    dtypes="floating complex",
    partials={"self": "1 - weight", "end": "weight", "weight": "end - self"},
    inplace=True,
    samples=lambda s: [
        s(s.tensor(3, 4), s.tensor(3, 4), 0.3),
        s(s.tensor(3, 4), s.tensor(4), s.tensor(3, 1, low=0, high=1)),
        s(s.tensor(), s.tensor(2), 0.75),
        s(s.tensor(0, 2), s.tensor(0, 2), 0.5),
    ],
    doc="Interpolate linearly: `self + weight * (end - self)`, exact at both ends.",
)

addcmul = pointwise(
    "addcmul(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor",
    "self + value * tensor1 * tensor2",
    old_form=(("value",), 2),
    dtypes=NUMBERS,
    inplace=True,
    samples=lambda s: [
        s(s.tensor(3, 4), s.tensor(3, 4), s.tensor(3, 4)),
        s(s.tensor(3, 4), s.tensor(4), s.tensor(3, 1), value=2),
        s(s.tensor(2, 3, strided=True), s.tensor(3, strided=True), s.tensor()),
    ],
    doc="Add a product: `self + value * tensor1 * tensor2`.",
)


def _check_quotient(self: Any, tensor1: Any, tensor2: Any, value: Any) -> None:
    if all(map(is_integral, (self, tensor1, tensor2))):
        raise RuntimeError(
            "Integer division with addcdiv is no longer supported: convert an operand by .to(dtype)"
            f", got {self.dtype}, {tensor1.dtype} and {tensor2.dtype}"
        )


addcdiv = pointwise(
    "addcdiv(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor",
    "self + value * tensor1 / tensor2",
    old_form=(("value",), 2),
    check=_check_quotient,
    checks_kinds=True,
    dtypes="floating complex",
    inplace=True,
    samples=lambda s: [
        s(s.tensor(3, 4), s.tensor(3, 4), s.tensor(3, 4, nonzero=True)),
        s(s.tensor(3, 4), s.tensor(4), s.tensor(3, 1, nonzero=True), value=2),
    ],
    errors=lambda s: [
        (s(*[s.tensor(2, dtype="int64", nonzero=True)] * 3), RuntimeError, "addcdiv")
    ],
    doc="Add a quotient: `self + value * tensor1 / tensor2`.",
)
