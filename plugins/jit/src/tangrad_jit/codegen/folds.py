"""Folds along the columns, in the order of tangrad-cpu's compiled reductions.

Those fold a contiguous row into lanes (`_line` in backend_cpu's render/reductions.py): sums of
float32 take four vectors, add their elements in float32, and add that to lanes of float64; other
folds have four vectors of lanes, into which elements go in turn. What does not fill four vectors
enters afterwards, eight elements at a time; lanes are folded by halves; the last elements follow
one by one. Any other order would round otherwise.

While the loops run, what does not fill four vectors is kept in the frame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tangrad_jit.codegen.assembler import LESS, RCX, RDI, RSI, RSP, Memory
from tangrad_jit.codegen.vector import UNORDERED

if TYPE_CHECKING:
    from tangrad_jit.codegen.emit import Emitter

COLUMNS = 16  # of the frame, see emit.py
FEW = 8
_LINE_BYTES = {False: 128, True: 256}
_MOST_LINES = 512
# Rows of one line so short are folded element by element.
_RUN_MOST = 24
KINDS = ("sum", "mean", "maximum", "minimum")
_IDENTITIES = {
    "maximum": {4: 0xFF800000, 8: 0xFFF0000000000000},
    "minimum": {4: 0x7F800000, 8: 0x7FF0000000000000},
}
# Adding to -0 gives every number as it is; adding to 0 would make 0 of -0.
_NOTHING = 1 << 63


def columns_served(evex: bool, size: int) -> tuple[int, int]:
    """Return the fewest and the most columns of rows that the compiled reductions fold this way."""
    line = _LINE_BYTES[evex] // size
    return max(line, _RUN_MOST + 1), (_MOST_LINES + 1) * line - 1


class FoldCode:
    """Write the code of one fold of a pass.

    Attributes:
        value: the value that is the result, of operation "fold".
        size: bytes of an element.
        buffer: the offset in the frame of the elements that are kept.
        offset: the same from the first fold's of the pass.
    """

    def __init__(self, e: Emitter, value: int, buffer: int) -> None:
        self.e, self.value, self.buffer, self.offset = e, value, buffer, 0
        _, lanes, _, self.kind = e.ops[value]
        self.size = int(lanes[1])
        self.widens = self.kind in ("sum", "mean") and self.size == 4
        self.needs = 3 if self.widens else 4
        self.lanes: list[int] = []
        self.carry = -1

    def take(self, free: list[int]) -> None:
        """Take registers for the whole pass."""
        self.lanes = [free.pop() for _ in range(2 if self.widens else 4)]
        if self.widens:
            self.carry = free.pop()

    def begin(self) -> None:
        """Write what sets the lanes to nothing."""
        if self.kind in _IDENTITIES:
            at = self.e.all_of(_IDENTITIES[self.kind][self.size], self.size)
        else:
            at = self.e.all_of(_NOTHING, 8)
        for register in self.lanes:
            self.e.a.vector("vmovups", self._whole, register, 0, at)

    @property
    def _whole(self) -> int:
        return 2 if self.e.evex else 1

    def keep(self, register: int) -> None:
        """Write the store of elements that do not fill four vectors."""
        self.e.a.vector("vmovups_store", self._whole, register, 0, Memory(RDI, self.offset))

    def add(self, register: int, copy: int) -> None:
        """Write what folds one of four vectors."""
        a = self.e.a
        if not self.widens:
            self._combine(self.lanes[copy], register, self._whole)
        elif copy == 0:
            a.vector("vmovaps", self._whole, self.carry, 0, register)
        else:
            a.vector("vaddps", self._whole, self.carry, self.carry, register)
            if copy == 3:
                self._widen(self.carry)

    def _widen(self, source: int) -> None:
        """Add a vector of float32 to the lanes of float64."""
        a, whole = self.e.a, self._whole
        low, high = self.lanes
        a.vector("vcvtps2pd", whole, 0, 0, source)
        a.vector("vaddpd", whole, low, low, 0)
        a.vector("vextractf64x4" if self.e.evex else "vextractf128", whole, source, 0, 1, 1)
        a.vector("vcvtps2pd", whole, 1, 0, 1)
        a.vector("vaddpd", whole, high, high, 1)

    def _combine(self, to: int, other: int, length: int) -> None:
        """Fold one register into another."""
        a, mark = self.e.a, "ps" if self.size == 4 else "pd"
        if self.kind not in _IDENTITIES:
            a.vector("vaddpd", length, to, to, other)
            return
        name = ("vmax" if self.kind == "maximum" else "vmin") + mark
        a.vector("vcmp" + mark, length, 1, other, other, UNORDERED)
        a.vector(name, length, to, other, to)
        if self.e.evex:
            a.vector("vblendm" + mark, length, to, to, other, mask=1)
        else:
            a.vector("vblendv" + mark, length, to, to, other, 1 << 4)

    # --- after the loops ----------------------------------------------------------------------

    def finish(self, block: int) -> None:
        """Write what follows the loops: rest, lanes, last elements, and the result in its slot."""
        a = self.e.a
        a.load(RCX, Memory(RSP, COLUMNS))
        a.immediate(4, RCX, block - 1)
        a.address(RSI, Memory(RSP, self.buffer))
        if self.widens:
            self._rest_widened()
        else:
            self._each(FEW, self._few)
            self._combine(self.lanes[0], self.lanes[2], self._whole)
            self._combine(self.lanes[1], self.lanes[3], self._whole)
        total = self.lanes[0]
        self._halves(total)
        self._each(1, self._last)
        if self.kind == "mean":
            a.code += b"\xc4\xe1\xfb\x2a\x44\x24" + bytes(
                (COLUMNS,)
            )  # vcvtsi2sd xmm0, [rsp + columns]
            a.vector("vdivsd", 0, total, total, 0)
        if self.widens:
            a.vector("vcvtsd2ss", 0, total, total, total)
        self._spread(total)

    def _each(self, count: int, body: object) -> None:
        """Write a loop over the kept elements, some at a time, while there are so many."""
        a = self.e.a
        start = len(a.code)
        a.immediate(7, RCX, count)
        done = a.jump(LESS)
        body()  # type: ignore[operator]
        a.immediate(0, RSI, count * self.size)
        a.immediate(5, RCX, count)
        a.jump_back(-1, start)
        a.land(done)

    def _rest_widened(self) -> None:
        a = self.e.a

        def vector() -> None:
            a.vector("vmovups", self._whole, self.carry, 0, Memory(RSI))
            self._widen(self.carry)

        def few() -> None:
            a.vector("vcvtps2pd", 2, 0, 0, Memory(RSI))
            a.vector("vaddpd", 2, self.lanes[0], self.lanes[0], 0)

        self._each(self.e.lanes, vector)
        if self.e.evex:
            self._each(FEW, few)

    def _few(self) -> None:
        """Fold eight elements into the first eight lanes."""
        e, a, first = self.e, self.e.a, self.lanes[0]
        if e.lanes == 8:
            a.vector("vmovups", self._whole, 0, 0, Memory(RSI))
            self._combine(first, 0, self._whole)
        elif e.lanes == 4:
            for k in range(2):
                a.vector("vmovups", 1, 0, 0, Memory(RSI, 32 * k))
                self._combine(self.lanes[k], 0, 1)
        else:
            a.code += b"\xb8\xff\0\0\0\xc5\xf8\x92\xf0"  # mov eax, 255; kmovw k6, eax
            # The other lanes take the identity, which changes none.
            at = e.all_of(_IDENTITIES[self.kind][4], 4)
            a.vector("vmovups", 2, 0, 0, at)
            a.vector("vmovups", 2, 0, 0, Memory(RSI), mask=6)
            self._combine(first, 0, 2)

    def _halves(self, total: int) -> None:
        """Fold the lanes of all registers into the first lane of one."""
        e, a = self.e, self.e.a
        self._fold_pair(total, self.lanes[1])
        if e.evex:
            a.vector("vextractf64x4", 2, total, 0, 0, 1)
            self._fold_pair(total, 0, 1)
        a.vector("vextractf32x4" if e.evex else "vextractf128", 1, total, 0, 0, 1)
        self._fold_pair(total, 0, 0)
        a.vector("vunpckhpd", 0, 0, total, total)
        self._fold_pair(total, 0, 0)
        if self.size == 4 and not self.widens:
            a.vector("vshufps", 0, 0, total, total, 0x55)
            self._fold_pair(total, 0, 0)

    def _fold_pair(self, to: int, other: int, length: int | None = None) -> None:
        length = self._whole if length is None else length
        if self.widens:
            self.e.a.vector("vaddpd", length, to, to, other)
        else:
            self._combine(to, other, length)

    def _last(self) -> None:
        a, total = self.e.a, self.lanes[0]
        if self.widens:
            a.vector("vcvtss2sd", 0, 0, 0, Memory(RSI))
            a.vector("vaddsd", 0, total, total, 0)
        else:
            a.vector("vmovss" if self.size == 4 else "vmovsd", 0, 0, 0, Memory(RSI))
            self._combine(total, 0, 0)

    def _spread(self, total: int) -> None:
        """Write the result into all lanes of its slot."""
        e = self.e
        name = "vbroadcastss" if self.size == 4 else "vbroadcastsd"
        e.a.vector(name, self._whole, total, 0, total)
        e.a.vector("vmovups_store", self._whole, total, 0, e.slot(self.value))
