"""Write emitted code as text: the instructions of a row program as they are emitted, with notes.

For people: a body that is copied is written once, and jumps name where they lead.
"""

from __future__ import annotations

from typing import Any

from tangrad_jit.codegen._emit import FORMS, emit
from tangrad_jit.codegen.rows import RowProgram

_GENERAL = "rax rcx rdx rbx rsp rbp rsi rdi r8 r9 r10 r11 r12 r13 r14 r15".split()
_VECTORS = ("xmm", "ymm", "zmm")
_BINARY, _UNARY, _STORE, _SHIFT = FORMS
_OPCODES = {
    0x8B: "mov", 0x89: "mov", 0x8D: "lea", 0x01: "add", 0x29: "sub", 0x39: "cmp", 0x3B: "cmp",
    0x31: "xor",
    0x85: "test", 0xB6: "movzx", 0xB7: "movzx", 0xBE: "movsx", 0xBF: "movsx", 0x88: "mov",
}  # fmt: skip
# Whose operand in the place of memory is a general register, or a mask register.
_FROM_GENERAL = frozenset(("vmovd", "vmovd_store"))
_FROM_MASK = frozenset(("vpmovm2d", "vpmovm2q"))
# By how many halvings the operand in the place of memory, or the destination, is smaller than the
# vector.
_NARROW_RM = {
    "vcvtps2pd": 1, "vcvtdq2pd": 1, "vcvttps2qq": 1, "vpmovsxdq": 1, "vpmovsxbd": 2, "vpmovsxwd": 1,
    "vpmovzxbd": 2, "vpmovzxbq": 3, "vpmovzxwd": 1, "vcvtph2ps": 1, "vcvtps2ph": 1, "vpmovdb": 2,
    "vpmovqb": 3, "vpmovdw": 1, "vpmovqd": 1, "vextractf64x4": 1, "vextractf32x4": 2,
    "vextractf128": 1, "vbroadcastss": 3, "vbroadcastsd": 3,
}  # fmt: skip
_NARROW_RESULT = {"vcvtpd2ps": 1, "vcvttpd2dq": 1, "vcvtqq2ps": 1}
_TO_REGISTER = frozenset((0x8B, 0x8D, 0x3B, 0xB6, 0xB7, 0xBE, 0xBF))
_IMMEDIATE = {0: "add", 4: "and", 5: "sub", 7: "cmp"}
_CONDITIONS = {
    -1: "jmp", 2: "jb", 3: "jae", 4: "je", 5: "jne", 12: "jl", 14: "jle", 15: "jg",
}  # fmt: skip

Place = int | tuple[int, int, int, int]


def _address(at: Place) -> str:
    """Return an operand: a general register, or (base, displacement, index, scale)."""
    if isinstance(at, int):
        return _GENERAL[at]
    base, disp, index, scale = at
    if base < 0:
        return f"[constants+{disp}]"
    text = _GENERAL[base]
    if index >= 0:
        text += f"+{_GENERAL[index]}*{1 << scale}"
    return f"[{text}{disp:+d}]" if disp else f"[{text}]"


def _vector(name: str, form: int, length: int, reg: int, second: int, rm: Place, imm: int,
            mask: int, zero: bool, to_mask: bool) -> str:  # fmt: skip
    vector = _VECTORS[length]
    if not isinstance(rm, int) or name in _FROM_GENERAL:
        place = _address(rm)
    else:
        narrow = _VECTORS[max(0, length - _NARROW_RM.get(name, 0))]
        place = f"k{rm}" if name in _FROM_MASK else f"{narrow}{rm}"
    narrow = _VECTORS[max(0, length - _NARROW_RESULT.get(name, 0))]
    to = f"k{reg}" if to_mask else f"{narrow}{reg}"
    operands = [place, to] if form == _STORE else [to, place]
    if form == _BINARY:
        operands.insert(1, f"{vector}{second}")
    if mask:
        operands[0] += f" {{k{mask}}}" + "{z}" * zero
    if name.startswith("vblendvp"):
        operands.append(f"{vector}{imm >> 4}")
    elif imm >= 0:
        operands.append(str(imm) if form == _SHIFT else f"0x{imm:x}")
    return f"{name.removesuffix('_store')} {', '.join(operands)}"


def _general(opcode: int, reg: int, rm: Place) -> str:
    place = _address(rm)
    if opcode in _OPCODES:
        operands = (_GENERAL[reg], place) if opcode in _TO_REGISTER else (place, _GENERAL[reg])
        return f"{_OPCODES[opcode]} {', '.join(operands)}"
    return f"neg {place}"


def _text(what: str, told: tuple[Any, ...], targets: dict[int, int]) -> str:
    if what == "vector":
        return _vector(*told)
    if what == "general":
        return _general(*told)
    if what == "immediate":
        operation, rm, value = told
        return f"{_IMMEDIATE[operation]} {_address(rm)}, {value}"
    if what == "jump":
        condition, behind = told
        return f"{_CONDITIONS[condition]} {targets[behind]:x}"
    if what in ("push", "pop"):
        return f"{what} {_GENERAL[told[0]]}"
    if what == "shift":
        return f"shr {_GENERAL[told[0]]}, {told[1]}"
    return what


def listing(program: RowProgram) -> str:
    """Return the code of a planned program as text, an instruction a line, with its places."""
    said: list[tuple[Any, ...]] = []
    _, kept, _ = emit(program, said)
    targets = {place: told[0] for place, what, *told in said if what == "target"}
    streams = program.streams + [(-1, dtype, False, True) for dtype in kept]
    head = [
        f"; stream {k}: "
        + (f"value {value} ({dtype})" if value >= 0 else f"kept for a later pass ({dtype})")
        + f", moves by{' row' * row}{' column' * column}"
        for k, (value, dtype, row, column) in enumerate(streams)
    ]
    lines = [
        f"{place:5x}  {_text(what, tuple(told), targets)}"
        for place, what, *told in said
        if what != "target"
    ]
    return "\n".join([*head, *lines, ""])
