"""What all kinds of steps have in common."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from tangrad_export.program.buffers import Buffer, Ref
from tangrad_export.program.recording import NOWHERE, Origin

__all__ = ["Number", "Step", "ctype", "itemsize", "product_text", "sum_text"]

# A number of a step, or the C of one that depends on sizes.
Number = int | float | str

_TYPES = {"float32": "float", "float64": "double", "bool": "uint8_t"} | {
    f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)
}
_TYPES |= {"float16": "uint16_t", "bfloat16": "uint16_t"}
_TYPES |= {"complex64": "tg_c64", "complex128": "tg_c128"}
_SIZES = {"complex64": 8, "complex128": 16, "bool": 1, "bfloat16": 2}


class Step:
    """One thing that a program does.

    Attributes:
        title: the op that asked for it.
        origin: the place in the program.
        refs: the places that it reads and writes; None for an absent operand.
        writes: which of `refs` it writes.
        numbers: sizes, strides and other numbers, which may depend on sizes that vary.
        work: multiplications with additions, or operations on elements.
    """

    title = ""
    origin: Origin = NOWHERE
    work = 0

    def __init__(
        self, refs: Sequence[Ref | None], writes: Sequence[int], numbers: Sequence[int | float]
    ) -> None:
        self.refs, self.writes = list(refs), tuple(writes)
        self.numbers = list(numbers)

    def settle(self) -> None:
        """Fix `refs` and `numbers`, once no pass changes the step any more."""

    def structure(self) -> Hashable:
        """Return what two steps have in common that differ in their numbers only."""
        return type(self).__name__

    def functions(self) -> list[Any]:
        """Return the functions that its text calls."""
        return []

    def text(self, names: list[str], at: list[str], n: list[Number]) -> list[str]:
        """Return its statements.

        Args:
            names: of `functions()`.
            at: a pointer for each of `refs`, of the type of its elements.
            n: the numbers.
        """
        raise NotImplementedError

    def read_buffers(self) -> set[Buffer]:
        """Return the buffers that it reads."""
        return {r.buffer for k, r in enumerate(self.refs) if r is not None and k not in self.writes}

    def written_buffers(self) -> set[Buffer]:
        """Return the buffers that it writes."""
        return {r.buffer for k in self.writes if (r := self.refs[k]) is not None}

    def buffers(self) -> set[Buffer]:
        """Return all buffers that it uses."""
        return {r.buffer for r in self.refs if r is not None}


def ctype(dtype: str) -> str:
    """Return the type of C in which elements of a dtype are stored."""
    return _TYPES[dtype]


def itemsize(dtype: str) -> int:
    """Return the bytes of an element."""
    if dtype in _SIZES:
        return _SIZES[dtype]
    return int(dtype.lstrip("uintfloa")) // 8


def product_text(*factors: Number) -> str:
    """Return the C of a product."""
    if any(f == 0 for f in factors):
        return "0"
    known = [f for f in factors if f != 1]
    texts = [f"({f})" if isinstance(f, str) and not f.isidentifier() else str(f) for f in known]
    return " * ".join(texts) or "1"


def sum_text(*terms: str) -> str:
    """Return the C of a sum."""
    return " + ".join(term for term in terms if term != "0") or "0"
