"""Write emitted code as text: the instructions of a row program as they are emitted, with notes.

For people: a body that is copied is written once, and jumps name where they lead.
"""

from __future__ import annotations

from tangrad_jit.codegen.assembler import Assembler, Fragment, Memory
from tangrad_jit.codegen.emit import Emitter
from tangrad_jit.codegen.instructions import BINARY, SHIFT, STORE, TABLE, TO_MASK
from tangrad_jit.codegen.rows import RowProgram

_GENERAL = "rax rcx rdx rbx rsp rbp rsi rdi r8 r9 r10 r11 r12 r13 r14 r15".split()
_VECTORS = ("xmm", "ymm", "zmm")
_OPCODES = {
    0x8B: "mov", 0x89: "mov", 0x8D: "lea", 0x01: "add", 0x29: "sub", 0x39: "cmp", 0x3B: "cmp",
    0x31: "xor",
    0x85: "test", 0xB6: "movzx", 0xB7: "movzx", 0xBE: "movsx", 0xBF: "movsx", 0x88: "mov",
}  # fmt: skip
_TO_REGISTER = frozenset((0x8B, 0x8D, 0x3B, 0xB6, 0xB7, 0xBE, 0xBF))
_IMMEDIATE = {0: "add", 1: "or", 4: "and", 5: "sub", 6: "xor", 7: "cmp"}
_CONDITIONS = {
    -1: "jmp", 2: "jb", 3: "jae", 4: "je", 5: "jne", 6: "jbe", 7: "ja", 12: "jl", 13: "jge",
    14: "jle", 15: "jg",
}  # fmt: skip


class NotingAssembler(Assembler):
    """An assembler that also writes what it encodes.

    Attributes:
        lines: (place in the code, text).
    """

    def __init__(self, evex: bool) -> None:
        super().__init__(evex)
        self.lines: list[tuple[int, str]] = []
        self._targets: dict[int, int] = {}
        self._quiet = False

    def note(self, text: str) -> None:
        """Write a comment."""
        self.lines.append((len(self.code), f"; {text}"))

    def _say(self, text: str) -> None:
        if not self._quiet:
            self.lines.append((len(self.code), text))

    def vector(
        self,
        name: str,
        length: int,
        reg: int,
        second: int,
        rm: int | Memory,
        imm: int = -1,
        mask: int = 0,
        zero: bool = False,
    ) -> None:
        """Append an instruction of vectors, as `Assembler` does."""
        form = TABLE[name][4]
        vector = _VECTORS[length]
        place = _address(rm) if isinstance(rm, Memory) else f"{vector}{rm}"
        to = f"k{reg}" if self.evex and name in TO_MASK else f"{vector}{reg}"
        operands = [place, to] if form == STORE else [to, place]
        if form == BINARY:
            operands.insert(1, f"{vector}{second}")
        if mask:
            operands[0] += f" {{k{mask}}}" + "{z}" * zero
        if name.startswith("vblendvp"):
            operands.append(f"{vector}{imm >> 4}")
        elif imm >= 0 and form != SHIFT:
            operands.append(f"0x{imm:x}")
        elif imm >= 0:
            operands.append(str(imm))
        self._say(f"{name.removesuffix('_store')} {', '.join(operands)}")
        super().vector(name, length, reg, second, rm, imm, mask, zero)

    def general(
        self, opcode: int, reg: int, rm: int | Memory, wide: bool = True, escape: bool = False
    ) -> None:
        """Append an instruction of general registers, as `Assembler` does."""
        place = _address(rm) if isinstance(rm, Memory) else _GENERAL[rm]
        if opcode in _OPCODES:
            operands = (_GENERAL[reg], place) if opcode in _TO_REGISTER else (place, _GENERAL[reg])
            self._say(f"{_OPCODES[opcode]} {', '.join(operands)}")
        elif opcode in (0xF7, 0xC1):
            self._say(f"{'neg' if opcode == 0xF7 else 'shr'} {place}")
        super().general(opcode, reg, rm, wide, escape)

    def immediate(self, operation: int, reg: int | Memory, value: int) -> None:
        """Append an operation with a number, as `Assembler` does."""
        place = _address(reg) if isinstance(reg, Memory) else _GENERAL[reg]
        self._say(f"{_IMMEDIATE[operation]} {place}, {value}")
        super().immediate(operation, reg, value)

    def push(self, reg: int) -> None:
        """Append push reg."""
        self._say(f"push {_GENERAL[reg]}")
        super().push(reg)

    def pop(self, reg: int) -> None:
        """Append pop reg."""
        self._say(f"pop {_GENERAL[reg]}")
        super().pop(reg)

    def mask_of_count(self, mask: int, count: int, scratch: int) -> None:
        """Append what sets a mask register, as `Assembler` does."""
        name = _GENERAL[scratch]
        self._say(f"mov {name}, -1; bzhi {name}, {name}, {_GENERAL[count]}; kmovw k{mask}, {name}")
        super().mask_of_count(mask, count, scratch)

    def jump(self, condition: int) -> int:
        """Append a jump, as `Assembler` does."""
        at = len(self.code)
        self._say(_CONDITIONS[condition])
        place = super().jump(condition)
        self._targets[place] = at
        return place

    def land(self, jump: int) -> None:
        """Let a jump lead here."""
        self._lead(jump, len(self.code))
        super().land(jump)

    def jump_back(self, condition: int, to: int) -> None:
        """Append a jump to a place already written."""
        super().jump_back(condition, to)
        self._lead(len(self.code), to)

    def _lead(self, jump: int, to: int) -> None:
        at = self._targets[jump]
        for k, (place, text) in enumerate(self.lines):
            if place == at and text.startswith("j") and " " not in text:
                self.lines[k] = (place, f"{text} {to:x}")

    def take(self) -> Fragment:
        """Return what was written, to be appended in copies."""
        fragment = super().take()
        _bodies[id(fragment)] = (fragment, self.lines)
        return fragment

    def append(self, fragment: Fragment, copy: int = 0) -> None:
        """Append a copy of a body; only the first one is written out."""
        start = len(self.code)
        known = _bodies.get(id(fragment))
        if copy or known is None:
            self._say("; the same " + (f"for vector {copy}" if copy else "with mask k7"))
        else:
            self.lines += [(start + place, text) for place, text in known[1]]
        super().append(fragment, copy)


_bodies: dict[int, tuple[Fragment, list[tuple[int, str]]]] = {}


def _address(at: Memory) -> str:
    if at.base < 0:
        return f"[constants+{at.disp}]"
    text = _GENERAL[at.base]
    if at.index >= 0:
        text += f"+{_GENERAL[at.index]}*{1 << at.scale}"
    return f"[{text}{at.disp:+d}]" if at.disp else f"[{text}]"


def listing(program: RowProgram) -> str:
    """Return the code of a planned program as text, an instruction a line, with its places."""
    emitter = Emitter(program, NotingAssembler)
    try:
        emitter.function()
    finally:
        _bodies.clear()
    assert isinstance(emitter.a, NotingAssembler)
    streams = [
        f"; stream {k}: value {s.value} ({s.dtype}), moves by{' row' * s.row}{' column' * s.column}"
        for k, s in enumerate(program.streams)
    ]
    lines = [f"{place:5x}  {text}" for place, text in emitter.a.lines]
    return "\n".join([*streams, *lines, ""])
