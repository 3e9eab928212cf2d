"""Vector SSA: what the emitter makes machine code of, and the making of it.

Values are vectors of as many lanes as the program has columns at a time. Their types are "f4",
"f8", "i4", "i8" (floats and integers of 4 and 8 bytes) and masks, "m4" and "m8", whose lanes are
all ones or zero; a program has masks of one width, that of its widest lanes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")

# The type of the lanes that hold a value of a dtype. Small integers are widened, and wrapped to
# their width after what may exceed it; half types are computed in float32 and rounded.
LANES = {
    "float32": "f4", "float64": "f8", "float16": "f4", "bfloat16": "f4", "int8": "i4",
    "uint8": "i4",
    "int16": "i4", "int32": "i4", "int64": "i8", "bool": "m",
}  # fmt: skip
ITEMSIZE = {
    "float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "int8": 1, "uint8": 1, "int16": 2,
    "int32": 4, "int64": 8, "bool": 1,
}  # fmt: skip
EQUAL, LESS, LESS_EQUAL, UNORDERED, NOT_EQUAL = 0, 1, 2, 3, 4
NEAREST, DOWN, UP, TO_ZERO = 8, 9, 10, 11


class Unsupported(Exception):
    """What the emitter has no instructions for: the tile frame calls a compiled loop instead."""


def float_bits(value: float) -> int:
    """Return the bits of a number rounded to float32."""
    try:
        return int.from_bytes(_FLOAT.pack(value), "little")
    except OverflowError:
        return 0x7F800000 if value > 0 else 0xFF800000


class Builder:
    """Collect the values of one program; equal ones are one.

    Attributes:
        evex: whether AVX-512's instructions may be used.
        mask: the type of masks, "m4" or "m8".
        ops: (operation, type, operands, immediate) of each value.
    """

    def __init__(self, evex: bool, wide: bool) -> None:
        self.evex, self.mask = evex, "m8" if wide else "m4"
        self.ops: list[tuple[str, str, tuple[int, ...], Any]] = []
        self._known: dict[tuple, int] = {}

    def make(self, op: str, kind: str, args: tuple[int, ...] = (), imm: Any = None) -> int:
        """Return the number of a value, which is made unless there is an equal one."""
        key = (op, kind, args, imm)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = len(self.ops)
            self.ops.append(key)
        return found

    def kind(self, value: int) -> str:
        """Return the type of a value."""
        return self.ops[value][1]

    def lanes(self, dtype: str) -> str:
        """Return the type that holds a dtype."""
        found = LANES.get(dtype)
        if found is None:
            raise Unsupported(f"no lanes for {dtype}")
        return self.mask if found == "m" else found

    # --- constants ----------------------------------------------------------------------------

    def bits(self, kind: str, bits: int) -> int:
        """Return the constant of which all lanes have some bits."""
        return self.make("const", kind, (), bits & ((1 << 8 * int(kind[1])) - 1))

    def f4(self, value: float) -> int:
        """Return a constant of float32."""
        return self.bits("f4", float_bits(value))

    def literal(self, value: float | int | bool, dtype: str) -> int:
        """Return a Python number as a value of a dtype."""
        kind = self.lanes(dtype)
        if kind[0] == "m":
            return self.bits(kind, -bool(value))
        if kind == "f4":
            return self.f4(float(value))
        if kind == "f8":
            return self.bits(kind, int.from_bytes(_DOUBLE.pack(float(value)), "little"))
        return self.bits(kind, int(value))

    def table(self, values: Sequence[float]) -> int:
        """Return the constant of 16 different lanes of float32."""
        return self.make("table", "f4", (), tuple(float_bits(value) for value in values))

    # --- arithmetic ---------------------------------------------------------------------------

    def add(self, a: int, b: int) -> int:
        """Return a + b."""
        return self.make("add", self.kind(a), (a, b))

    def sub(self, a: int, b: int) -> int:
        """Return a - b."""
        return self.make("sub", self.kind(a), (a, b))

    def mul(self, a: int, b: int) -> int:
        """Return a b."""
        kind = self.kind(a)
        if kind == "i8" and not self.evex:
            raise Unsupported("AVX2 has no product of 64-bit integers")
        return self.make("mul", kind, (a, b))

    def div(self, a: int, b: int) -> int:
        """Return a / b."""
        return self.make("div", self.kind(a), (a, b))

    def fma(self, a: int, b: int, c: int) -> int:
        """Return a b + c, rounded once."""
        return self.make("fma", self.kind(a), (a, b, c))

    def fnma(self, a: int, b: int, c: int) -> int:
        """Return c - a b, rounded once."""
        return self.make("fnma", self.kind(a), (a, b, c))

    def max(self, a: int, b: int) -> int:
        """Return a if a > b, else b: also where they do not compare."""
        return self._extreme("max", a, b)

    def min(self, a: int, b: int) -> int:
        """Return a if a < b, else b: also where they do not compare."""
        return self._extreme("min", a, b)

    def _extreme(self, op: str, a: int, b: int) -> int:
        kind = self.kind(a)
        if kind == "i8" and not self.evex:
            order = (b, a) if op == "max" else (a, b)
            return self.select(self.less(*order), a, b)
        return self.make(op, kind, (a, b))

    def sqrt(self, a: int) -> int:
        """Return the root, correctly rounded."""
        return self.make("sqrt", self.kind(a), (a,))

    def round(self, a: int, mode: int) -> int:
        """Return the whole number that is next, below, above or towards zero."""
        return self.make("round", self.kind(a), (a,), mode)

    def shift(self, op: str, a: int, count: int) -> int:
        """Shift by a number: "shl", "shr", or "sar" for a signed shift right."""
        kind = "i" + self.kind(a)[1]
        if op == "sar" and kind == "i8" and not self.evex:
            raise Unsupported("AVX2 has no arithmetic shift of 64 bits")
        return self.make(op, kind, (a,), count)

    # --- bits ---------------------------------------------------------------------------------

    def bitwise(self, op: str, a: int, b: int, kind: str | None = None) -> int:
        """Return a logical combination of bits: and, or, xor, or andn (not a, and b)."""
        return self.make(op, kind or self.kind(a), (a, b))

    def not_(self, a: int) -> int:
        """Return all bits inverted."""
        return self.bitwise("xor", a, self.bits(self.kind(a), -1))

    def sign(self, kind: str) -> int:
        """Return the constant that has only the sign's bit."""
        return self.bits(kind, 1 << 8 * int(kind[1]) - 1)

    def neg(self, a: int) -> int:
        """Return -a."""
        kind = self.kind(a)
        if kind[0] == "i":
            return self.sub(self.bits(kind, 0), a)
        return self.bitwise("xor", a, self.sign(kind))

    def abs(self, a: int) -> int:
        """Return |a|."""
        kind = self.kind(a)
        if kind == "i4" or (kind == "i8" and self.evex):
            return self.make("abs", kind, (a,))
        if kind == "i8":
            negative = self.make("cmp", "m8", (a, self.bits(kind, 0)), LESS)
            return self.sub(self.bitwise("xor", a, negative), negative)
        return self.bitwise("and", a, self.bits(kind, (1 << 8 * int(kind[1]) - 1) - 1))

    def copysign(self, size: int, sign: int) -> int:
        """Return the size of one number with the sign of another."""
        kind = self.kind(size)
        rest = self.bits(kind, (1 << 8 * int(kind[1]) - 1) - 1)
        if self.evex and kind == "f4":
            return self.make("tern", kind, (sign, size, rest), 0xD8)
        return self.bitwise("or", self.bitwise("and", size, rest), self.bitwise("andn", rest, sign))

    # --- masks --------------------------------------------------------------------------------

    def compare(self, predicate: int, a: int, b: int) -> int:
        """Return where a == b, a < b, ..., of floats or integers."""
        kind = self.kind(a)
        if kind[0] == "m":
            return self._compare_masks(predicate, a, b)
        if kind[0] == "i" and not self.evex:
            if predicate == LESS_EQUAL:
                return self.not_(self.compare(LESS, b, a))
            if predicate == NOT_EQUAL:
                return self.not_(self.compare(EQUAL, a, b))
        return self.whole(self.make("cmp", "m" + kind[1], (a, b), predicate))

    def less(self, a: int, b: int) -> int:
        """Return where a < b."""
        return self.compare(LESS, a, b)

    def _compare_masks(self, predicate: int, a: int, b: int) -> int:
        kind = self.kind(a)
        differ = self.bitwise("xor", a, b)
        if predicate == NOT_EQUAL:
            return differ
        if predicate == EQUAL:
            return self.not_(differ)
        if predicate == LESS:
            return self.bitwise("andn", a, b, kind)
        return self.bitwise("or", self.not_(a), b)

    def whole(self, mask: int) -> int:
        """Return a mask in the program's width of masks."""
        return self.resized(mask, self.mask)

    def sized(self, mask: int, kind: str) -> int:
        """Return a mask in the width of a type."""
        return self.resized(mask, "m" + kind[1])

    def resized(self, mask: int, kind: str) -> int:
        """Return a mask in the width of another type of masks."""
        op, own, args, _ = self.ops[mask]
        if own == kind:
            return mask
        if op == "const":
            return self.bits(kind, -1 if self.ops[mask][3] else 0)
        if op == "resize" and self.kind(args[0]) == kind:
            return args[0]
        return self.make("resize", kind, (mask,))

    def select(self, mask: int, a: int, b: int) -> int:
        """Return a where the mask is set, else b."""
        kind = self.kind(a)
        if kind[0] == "m":
            chosen = self.bitwise("and", mask, a)
            return self.bitwise("or", chosen, self.bitwise("andn", mask, b))
        return self.make("select", kind, (self.sized(mask, kind), a, b))

    def nan(self, a: int) -> int:
        """Return where a number is NaN."""
        return self.compare(UNORDERED, a, a)

    # --- conversions --------------------------------------------------------------------------

    def convert(self, a: int, source: str, target: str) -> int:
        """Return a value of one dtype in another, as C converts."""
        if source == target:
            return a
        if target == "bool":
            return self.compare(NOT_EQUAL, a, self.bits(self.kind(a), 0))
        to = self.lanes(target)
        if source == "bool":
            one = self.literal(1, target)
            return self.bitwise("and", self.sized(a, to), one, to)
        own = self.kind(a)
        if own != to:
            a = self._convert_lanes(a, own, to)
        return self.wrapped(a, target)

    def _convert_lanes(self, a: int, own: str, to: str) -> int:
        if not self.evex and "i8" in (own, to) and (own, to) not in (("i4", "i8"), ("i8", "i4")):
            raise Unsupported("AVX2 has no conversion of 64-bit integers")
        return self.make("convert", to, (a,), own)

    def wrapped(self, a: int, dtype: str) -> int:
        """Return an integer reduced to the width of its dtype."""
        if dtype == "uint8":
            return self.bitwise("and", a, self.bits("i4", 255))
        if dtype in ("int8", "int16"):
            count = 24 if dtype == "int8" else 16
            return self.shift("sar", self.shift("shl", a, count), count)
        return a

    def rounded(self, a: int, dtype: str) -> int:
        """Return a float32 rounded to a half type, still as float32."""
        if dtype == "float16":
            return self.make("half", "f4", (a,))
        odd = self.bitwise("and", self.shift("shr", a, 16), self.bits("i4", 1))
        sum_ = self.add(self.add(self.make("as", "i4", (a,)), self.bits("i4", 0x7FFF)), odd)
        cut = self.bitwise("and", sum_, self.bits("i4", 0xFFFF0000), "f4")
        return self.select(self.nan(a), self.bits("f4", 0x7FC00000), cut)
