"""Write x86-64 machine code: instructions of vectors by table, the few scalar ones by hand."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any

from tangrad_jit.codegen.instructions import SHIFT, TABLE, VEX_W

# General registers.
RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8, R9, R10, R11, R12, R13, R14, R15 = range(16)
# Conditions of jumps.
BELOW, NOT_BELOW, EQUAL, NOT_EQUAL, BELOW_EQUAL, ABOVE = 2, 3, 4, 5, 6, 7
LESS, NOT_LESS, LESS_EQUAL, GREATER = 12, 13, 14, 15

_PACK, _PACK_INTO = struct.Struct("<i").pack, struct.Struct("<i").pack_into
_CODES = {"xmm": 0, "ymm": 1, "zmm": 2}


class Memory:
    """An operand in memory: [base + index << scale + disp], or a constant beside the code.

    Attributes:
        base: a register, or -1: `disp` is then a place in the constants.
        index: a register, or -1.
        unit: by how much `disp` grows for the next copy of an unrolled body.
    """

    __slots__ = ("base", "disp", "index", "scale", "unit")

    def __init__(
        self, base: int, disp: int = 0, index: int = -1, scale: int = 0, unit: int = 0
    ) -> None:
        self.base, self.disp, self.index, self.scale, self.unit = base, disp, index, scale, unit


@lru_cache(maxsize=1 << 14)
def _begin(
    evex: bool, name: str, length: int, reg: int, second: int, low: int, high: int, mask: int,
    zero: bool,
) -> tuple[bytes, int, int]:  # fmt: skip
    """Return an instruction of vectors up to ModRM, reg of that, and what scales a displacement.

    Args:
        low, high: bit 3 of the number of the base, and of the index; of a register in the place of
            memory its bit 3, and bit 4 moved to where bit 3 is.
    """
    prefix, opmap, opcode, w, form, _, reach = TABLE[name]
    if form == SHIFT:
        reg, second, opcode = opcode >> 8, reg, opcode & 255
    if evex:
        p0 = opmap | (~reg & 8) << 4 | (~high & 8) << 3 | (~low & 8) << 2 | (~reg & 16)
        p1 = w << 7 | (~second & 15) << 3 | 4 | prefix
        p2 = zero << 7 | length << 5 | (~second & 16) >> 1 | mask
        return bytes((0x62, p0, p1, p2, opcode)), reg & 7, 16 << length if reach else 0
    w = 1 if name in VEX_W else 0
    last = (~second & 15) << 3 | (length << 2) | prefix
    if opmap == 1 and not (low or high or w):
        return bytes((0xC5, (~reg & 8) << 4 | last, opcode)), reg & 7, 1
    p0 = opmap | (~reg & 8) << 4 | (~high & 8) << 3 | (~low & 8) << 2
    return bytes((0xC4, p0, w << 7 | last, opcode)), reg & 7, 1


@lru_cache(maxsize=1 << 14)
def _of_registers(
    evex: bool, name: str, length: int, reg: int, second: int, rm: int, imm: int, mask: int,
    zero: bool,
) -> bytes:  # fmt: skip
    """Return an instruction of vectors all of whose operands are registers."""
    high = rm >> 1 & 8 if evex else 0
    begin, reg, _ = _begin(evex, name, length, reg, second, rm & 8, high, mask, zero)
    rest = (0xC0 | reg << 3 | rm & 7, imm) if imm >= 0 else (0xC0 | reg << 3 | rm & 7,)
    return begin + bytes(rest)


@lru_cache(maxsize=1 << 12)
def _plain_address(reg: int, base: int, disp: int, index: int, scale: int, short: int) -> bytes:
    """Return ModRM, SIB and displacement; `short` is what a displacement of one byte counts in."""
    low = base & 7
    if disp and not (short and disp % short == 0 and -128 <= disp // short < 128):
        mode, rest = 0x80, _PACK(disp)
    elif disp or low == 5:
        mode, rest = 0x40, bytes(((disp // short if short else 0) & 255,))
    else:
        mode, rest = 0, b""
    if index >= 0:
        return bytes((mode | reg << 3 | 4, scale << 6 | (index & 7) << 3 | low)) + rest
    if low == 4:
        return bytes((mode | reg << 3 | 4, 0x24)) + rest
    return bytes((mode | reg << 3 | low,)) + rest


@lru_cache(maxsize=1 << 12)
def _begin_general(opcode: int, reg: int, low: int, high: int, wide: bool, escape: bool) -> bytes:
    """Return an instruction of general registers up to ModRM."""
    rex = 0x40 | wide << 3 | (reg >> 3 & 1) << 2 | high << 1 | low
    # A byte of rsi or rdi has no encoding without REX.
    begin = bytes((rex,)) if rex != 0x40 or opcode == 0x88 else b""
    return begin + (b"\x0f" if escape else b"") + bytes((opcode,))


class Assembler:
    """Collect code.

    Attributes:
        code: the bytes so far.
        evex: whether vectors are encoded by EVEX (else VEX).
        constants: (place in the code, offset in the constants) of each operand among them.
        units: (place in the code, growth, value) of displacements that differ between copies of a
            body.
        masks: (place in the code,
        bits) of what makes loads and stores masked ones in the last copy.
    """

    def __init__(self, evex: bool) -> None:
        self.evex = evex
        self.code = bytearray()
        self.constants: list[tuple[int, int]] = []
        self.units: list[tuple[int, int, int]] = []
        self.masks: list[tuple[int, int]] = []

    def note(self, text: str) -> None:
        """Take a comment: `listing.py` writes it, code has none."""

    def begin_value(self) -> None:
        """Take note that what follows computes another value: see `Recorder`."""

    # --- vectors ------------------------------------------------------------------------------

    def vector(
        self,
        name: str,
        length: int,
        reg: int,
        second: int,
        rm: Any,
        imm: int = -1,
        mask: int = 0,
        zero: bool = False,
    ) -> None:
        """Append an instruction of vectors.

        Args:
            name: of the table.
            length: 0, 1, 2 for registers of 128, 256, 512 bits.
            reg: the register operand (the destination, but the source of stores).
            second: the second source, 0 where there is none.
            rm: the operand that may be in memory.
            imm: the byte that follows, -1 for none.
            mask: the mask register of EVEX, 0 for none.
            zero: whether masked elements become zero.
        """
        if rm.__class__ is int:
            self.code += _of_registers(self.evex, name, length, reg, second, rm, imm, mask, zero)
            return
        low, high = rm.base & 8 if rm.base >= 0 else 0, rm.index & 8 if rm.index >= 0 else 0
        begin, reg, short = _begin(self.evex, name, length, reg, second, low, high, mask, zero)
        self.code += begin
        self._address(reg, rm, short, imm >= 0)
        if imm >= 0:
            self.code.append(imm)

    def masked_later(self, loads: bool) -> None:
        """Let the next instruction, a load or store, have mask k7 in masked copies."""
        if self.evex:
            self.masks.append((len(self.code) + 3, 0x87 if loads else 7))

    def _address(self, reg: int, at: Memory, short: int, followed: bool) -> None:
        """Append ModRM, SIB and displacement."""
        code, disp = self.code, at.disp
        if at.unit == 0 and at.base >= 0:
            code += _plain_address(reg, at.base, disp, at.index, at.scale, short)
            return
        if at.base < 0:
            code.append(reg << 3 | 5)
            # Relative to the end of the instruction, which an imm8 puts off by one.
            self.constants.append((len(code), disp - followed))
            code += b"\0\0\0\0"
            return
        # The displacement grows from copy to copy of a body: it has four bytes whatever it is.
        code += _plain_address(reg, at.base, 1 << 20, at.index, at.scale, 0)[:-4]
        self.units.append((len(code), at.unit, disp))
        code += _PACK(disp)

    # --- general registers ----------------------------------------------------------------------

    def general(
        self, opcode: int, reg: int, rm: Any, wide: bool = True, escape: bool = False
    ) -> None:
        """Append an instruction of general registers by its opcode; `escape` puts 0F before it."""
        if rm.__class__ is int:
            self.code += _begin_general(opcode, reg, rm >> 3 & 1, 0, wide, escape)
            self.code.append(0xC0 | (reg & 7) << 3 | rm & 7)
            return
        low, high = rm.base >> 3 & 1, rm.index >> 3 & 1 if rm.index >= 0 else 0
        self.code += _begin_general(opcode, reg, low, high, wide, escape)
        self._address(reg & 7, rm, 1, False)

    def load(self, reg: int, at: Memory) -> None:
        """Append mov reg, [at]."""
        self.general(0x8B, reg, at)

    def store(self, at: Memory, reg: int) -> None:
        """Append mov [at], reg."""
        self.general(0x89, reg, at)

    def load_small(self, reg: int, at: Memory, size: int, signed: bool = False) -> None:
        """Append movzx or movsx reg, byte or word [at]."""
        self.general((0xBE if signed else 0xB6) + (size == 2), reg, at, wide=False, escape=True)

    def store_small(self, at: Memory, reg: int, size: int) -> None:
        """Append mov byte or word [at], reg."""
        if size == 2:
            self.code.append(0x66)
        self.general(0x88 if size == 1 else 0x89, reg, at, wide=False)

    def address(self, reg: int, at: Memory) -> None:
        """Append lea reg, [at]."""
        self.general(0x8D, reg, at)

    def immediate(self, operation: int, reg: Any, value: int) -> None:
        """Append add (0), or (1), and (4), sub (5), xor (6) or cmp (7) reg, value."""
        short = -128 <= value < 128
        self.general(0x83 if short else 0x81, operation, reg)
        self.code += (value & 255).to_bytes(1, "little") if short else _PACK(value)

    def push(self, reg: int) -> None:
        """Append push reg."""
        if reg > 7:
            self.code.append(0x41)
        self.code.append(0x50 | reg & 7)

    def pop(self, reg: int) -> None:
        """Append pop reg."""
        if reg > 7:
            self.code.append(0x41)
        self.code.append(0x58 | reg & 7)

    def jump(self, condition: int) -> int:
        """Append a jump (-1: always) and return the place of its distance, for `land`."""
        self.code += b"\xe9" if condition < 0 else bytes((0x0F, 0x80 | condition))
        self.code += b"\0\0\0\0"
        return len(self.code)

    def land(self, jump: int) -> None:
        """Let a jump lead here."""
        self.code[jump - 4 : jump] = _PACK(len(self.code) - jump)

    def jump_back(self, condition: int, to: int) -> None:
        """Append a jump to a place already written."""
        jump = self.jump(condition)
        self.code[jump - 4 : jump] = _PACK(to - jump)

    # --- masks ------------------------------------------------------------------------------------

    def mask_of_count(self, mask: int, count: int, scratch: int) -> None:
        """Set the first `count` bits of a mask register; `count` below 32."""
        self.code += bytes((0xB8 | scratch & 7, 255, 255, 255, 255))  # mov scratch, -1
        # bzhi scratch, scratch, count
        self.code += bytes(
            (
                0xC4,
                0xE2 ^ (scratch >> 3 & 1) * 0xA0,
                (~count & 15) << 3,
                0xF5,
                0xC0 | (scratch & 7) << 3 | scratch & 7,
            )
        )
        self.code += bytes((0xC5, 0xF8, 0x92, 0xC0 | mask << 3 | scratch & 7))  # kmovw

    # --- whole bodies -----------------------------------------------------------------------------

    def take(self) -> Fragment:
        """Return what was written, to be appended in copies."""
        return Fragment(bytes(self.code), self.constants, self.units, self.masks)

    def append(self, fragment: Fragment, copy: int = 0) -> None:
        """Append a copy of a body, whose displacements grow by their units."""
        start = len(self.code)
        code = self.code
        code += fragment.code
        self.constants += [(start + place, offset) for place, offset in fragment.constants]
        if copy:
            for place, unit, disp in fragment.units:
                _PACK_INTO(code, start + place, disp + copy * unit)

    def finish(self, constants: bytes) -> bytes:
        """Return code and constants, which are 64 bytes aligned behind it."""
        code = self.code
        code += b"\xcc" * (-len(code) % 64)
        start = len(code)
        for place, offset in self.constants:
            _PACK_INTO(code, place, start + offset - place - 4)
        return bytes(code) + constants


class Fragment:
    """Code that can be put at any place."""

    __slots__ = ("code", "constants", "masks", "units")

    def __init__(
        self,
        code: bytes,
        constants: list[tuple[int, int]],
        units: list[tuple[int, int, int]],
        masks: list[tuple[int, int]],
    ) -> None:
        self.code, self.constants, self.units, self.masks = code, constants, units, masks

    def masked(self) -> Fragment:
        """Return the same code whose loads and stores of streams have mask k7."""
        code = bytearray(self.code)
        for place, bits in self.masks:
            code[place] |= bits
        return Fragment(bytes(code), self.constants, self.units, self.masks)


class Recorder(Assembler):
    """Keep the instructions of a body by value, to write them for several vectors in turn.

    Processors look ahead only so far: where one vector takes many instructions that wait for each
    other, those of a second vector have to stand between them. Scratch registers, and the one that
    holds an address, are used within a value alone, so that vectors share them.
    """

    def __init__(self, evex: bool) -> None:
        super().__init__(evex)
        self.values: list[list[tuple[Any, ...]]] = []

    def begin_value(self) -> None:
        """Begin another value."""
        self.values.append([])

    def vector(
        self,
        name: str,
        length: int,
        reg: int,
        second: int,
        rm: Any,
        imm: int = -1,
        mask: int = 0,
        zero: bool = False,
    ) -> None:
        """Keep an instruction of vectors."""
        self.values[-1].append((name, length, reg, second, rm, imm))

    def general(
        self, opcode: int, reg: int, rm: Any, wide: bool = True, escape: bool = False
    ) -> None:
        """Keep an instruction of general registers."""
        self.values[-1].append((opcode, reg, rm, wide, escape))

    def write(self, to: Assembler, others: dict[int, int] | None = None) -> None:
        """Write the body for one vector, or for two of which the second has other registers."""
        for value in self.values:
            if others is not None and all(len(call) == 6 and call[2] > 1 for call in value):
                for call in value:
                    _write(to, call)
                    _write(to, _beside(call, others))
                continue
            for call in value:
                _write(to, call)
            if others is not None:
                for call in value:
                    _write(to, _of_second(call, others))


def _write(to: Assembler, call: tuple[Any, ...]) -> None:
    if len(call) == 6:
        to.vector(*call)
    else:
        to.general(*call)


def _beside(call: tuple[Any, ...], others: dict[int, int]) -> tuple[Any, ...]:
    """Return an instruction as the next vector has it, right after that of the first."""
    name, length, reg, _, rm, _ = call
    if name == "vmovups" and rm.__class__ is not int and rm.base < 0:
        return "vmovaps", length, others[reg], 0, reg, -1  # a constant is loaded once
    return _of_second(call, others)


def _of_second(call: tuple[Any, ...], others: dict[int, int]) -> tuple[Any, ...]:
    """Return an instruction as the next vector has it."""
    if len(call) != 6:
        return call
    name, length, reg, second, rm, imm = call
    if rm.__class__ is int:
        rm = others.get(rm, rm)
    elif rm.unit:
        rm = Memory(rm.base, rm.disp + rm.unit, rm.index, rm.scale)
    if name.startswith("vblendv"):
        imm = others.get(imm >> 4, imm >> 4) << 4
    return name, length, others.get(reg, reg), others.get(second, second), rm, imm
