"""Ops on integers, on their bits, and on truth values."""

from __future__ import annotations

from tangrad.ops.definition.define import pointwise

# Integers

gcd = pointwise(
    "gcd(Tensor self, Tensor other) -> Tensor",
    "gcd(self, other)",
    dtypes="integral",
    vjp="none: defined on integers only",
    inplace=True,
    samples=lambda s: s.binary(number=False),
    errors=lambda s: [(s(s.tensor(2, dtype="float32"), s.tensor(2)), RuntimeError, "gcd")],
    doc="Compute the greatest common divisor; gcd(0, 0) is 0.",
)

lcm = pointwise(
    "lcm(Tensor self, Tensor other) -> Tensor",
    "lcm(self, other)",
    dtypes="integral",
    vjp="none: defined on integers only",
    inplace=True,
    samples=lambda s: s.binary(number=False),
    errors=lambda s: [(s(s.tensor(2, dtype="float32"), s.tensor(2)), RuntimeError, "lcm")],
    doc="Compute the least common multiple; zero if either number is.",
)

bitwise_and = pointwise(
    "bitwise_and(Operand self, Operand other) -> Tensor",
    "self & other",
    promote="integral",
    dtypes="bool integral",
    vjp="none: defined on integers only",
    beyond="wrapped",
    inplace=True,
    samples=lambda s: s.binary(),
    errors=lambda s: [(s(s.tensor(2, dtype="float32"), 1), RuntimeError, "bitwise_and")],
    doc="Compute the bitwise `and`; of bools, the logical one.",
)

bitwise_or = pointwise(
    "bitwise_or(Operand self, Operand other) -> Tensor",
    "self | other",
    promote="integral",
    dtypes="bool integral",
    vjp="none: defined on integers only",
    beyond="wrapped",
    inplace=True,
    samples=lambda s: s.binary(),
    errors=lambda s: [(s(s.tensor(2, dtype="float32"), 1), RuntimeError, "bitwise_or")],
    doc="Compute the bitwise `or`; of bools, the logical one.",
)

bitwise_xor = pointwise(
    "bitwise_xor(Operand self, Operand other) -> Tensor",
    "self ^ other",
    promote="integral",
    dtypes="bool integral",
    vjp="none: defined on integers only",
    beyond="wrapped",
    inplace=True,
    samples=lambda s: s.binary(),
    errors=lambda s: [(s(s.tensor(2, dtype="float32"), 1), RuntimeError, "bitwise_xor")],
    doc="Compute the bitwise exclusive `or`; of bools, the logical one.",
)

bitwise_not = pointwise(
    "bitwise_not(Tensor self) -> Tensor",
    "~self",
    promote="integral",
    dtypes="bool integral",
    strict_out_dtype=True,
    vjp="none: defined on integers only",
    inplace=True,
    samples=lambda s: s.unary(),
    errors=lambda s: [(s(s.tensor(2, dtype="float32")), RuntimeError, "bitwise_not")],
    doc="Invert every bit; of bools, the truth value.",
)

bitwise_left_shift = pointwise(
    "bitwise_left_shift(Operand self, Operand other) -> Tensor",
    "self << other",
    promote="integral",
    dtypes="integral",
    vjp="none: defined on integers only",
    beyond="wrapped",
    inplace=True,
    samples=lambda s: [
        s(s.tensor(3, 4), s.integers(0, 5, 4, dtype=s.dtype)),
        s(s.tensor(5), 2),
        s(s.tensor(2, 2, strided=True), s.tensor(low=0, high=4)),
        s(s.tensor(3), 100),
    ],
    doc="Shift bits to the left; a shift by the width or more gives zero.",
)

bitwise_right_shift = pointwise(
    "bitwise_right_shift(Operand self, Operand other) -> Tensor",
    "self >> other",
    promote="integral",
    dtypes="integral",
    vjp="none: defined on integers only",
    beyond="wrapped",
    inplace=True,
    samples=lambda s: [
        s(s.tensor(3, 4), s.integers(0, 5, 4, dtype=s.dtype)),
        s(s.tensor(5), 2),
        s(s.tensor(2, 2, strided=True), s.tensor(low=0, high=4)),
        s(s.tensor(3), 100),
    ],
    doc="Shift bits to the right, keeping the sign; a shift too far leaves only the sign.",
)


# Logic

logical_and = pointwise(
    "logical_and(Tensor self, Tensor other) -> Tensor",
    "(self != 0) & (other != 0)",
    results=("bool",),
    vjp="none: bool output",
    inplace=True,
    samples=lambda s: s.binary(number=False),
    doc="Compute the logical `and`; nonzero elements (NaN too) are true.",
)

logical_or = pointwise(
    "logical_or(Tensor self, Tensor other) -> Tensor",
    "(self != 0) | (other != 0)",
    results=("bool",),
    vjp="none: bool output",
    inplace=True,
    samples=lambda s: s.binary(number=False),
    doc="Compute the logical `or`; nonzero elements (NaN too) are true.",
)

logical_xor = pointwise(
    "logical_xor(Tensor self, Tensor other) -> Tensor",
    "(self != 0) ^ (other != 0)",
    results=("bool",),
    vjp="none: bool output",
    inplace=True,
    samples=lambda s: s.binary(number=False),
    doc="Compute the logical exclusive `or`; nonzero elements (NaN too) are true.",
)

logical_not = pointwise(
    "logical_not(Tensor self) -> Tensor",
    "self == 0",
    results=("bool",),
    vjp="none: bool output",
    inplace=True,
    samples=lambda s: s.unary(),
    doc="Compute the logical negation; nonzero elements (NaN too) become False.",
)
