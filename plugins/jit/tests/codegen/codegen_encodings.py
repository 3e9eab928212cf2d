"""Every form in which the emitter writes an instruction of the table, and how objdump reads it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from itertools import chain, product
from pathlib import Path
from typing import Any, NamedTuple

from tangrad_jit.codegen._emit import FORMS, table

BINARY, UNARY, STORE, SHIFT = FORMS
TABLE = table()  # name: (form, whether a byte follows)
# Without a form in VEX, and without one in EVEX.
EVEX_ONLY = set(
    "vpmullq vpminsq vpmaxsq vpabsq vpsraq vpcmpd vpcmpq vblendmps vblendmpd vpmovm2d vpmovm2q"
    " vpmovd2m vpmovq2m vpternlogd vrndscaleps vrndscalepd vcvtqq2pd vcvttpd2qq vcvtqq2ps"
    " vcvttps2qq vpmovdb vpmovqb vpmovdw vpmovqd vextractf32x4 vextractf64x4 vrcp14ps vscalefps"
    " vgetmantps vgetexpps vpandd vpandq vpandnd vpandnq vpord vporq vpxord vpxorq".split()
)
VEX_ONLY = set("vblendvps vblendvpd vroundps vroundpd vpand vpandn vpor vpxor vextractf128".split())
# Comparisons, whose destination in EVEX is a mask register.
TO_MASK = set(
    "vcmpps vcmppd vpcmpeqd vpcmpgtd vpcmpeqq vpcmpgtq vpcmpd vpcmpq vpmovd2m vpmovq2m".split()
)
VECTOR = ("xmm", "ymm", "zmm")
GENERAL = "rax rcx rdx rbx rsp rbp rsi rdi r8 r9 r10 r11 r12 r13 r14 r15".split()
SMALLER = "eax ecx edx ebx esp ebp esi edi".split() + [f"r{k}d" for k in range(8, 16)]
# The length of the operand that is not a whole vector: by how many steps it is smaller.
NARROW_SOURCE = {
    "vcvtps2pd": 1, "vcvtdq2pd": 1, "vcvttps2qq": 1, "vpmovsxdq": 1, "vpmovsxbd": 2, "vpmovsxwd": 1,
    "vpmovzxbd": 2, "vpmovzxbq": 3, "vpmovzxwd": 1, "vcvtph2ps": 1,
}  # fmt: skip
NARROW_RESULT = {"vcvtpd2ps": 1, "vcvttpd2dq": 1, "vcvtqq2ps": 1}
NARROW_STORE = {"vcvtps2ph": 1, "vpmovdb": 2, "vpmovqb": 3, "vpmovdw": 1, "vpmovqd": 1}
SCALAR = {
    "vaddsd", "vdivsd", "vcvtss2sd", "vcvtsd2ss", "vmovss", "vmovsd", "vmovd", "vmovq",
    "vmovss_store", "vmovsd_store", "vmovd_store", "vmovq_store", "vmovddup",
}  # fmt: skip
ONLY_512 = {"vextractf64x4"}
FROM_256 = {"vbroadcastsd", "vextractf128", "vextractf32x4", "vpermps"}
ONE_MEMORY = {"vbroadcastss", "vbroadcastsd"}
MEMORY_ONLY = {"vmovss", "vmovsd", "vmovss_store", "vmovsd_store"}
FROM_GENERAL = {"vmovd", "vmovd_store"}
FROM_MASK = {"vpmovm2d", "vpmovm2q"}
REGISTERS_ONLY = FROM_MASK | {"vpmovd2m", "vpmovq2m"}
UNMASKED = REGISTERS_ONLY | FROM_GENERAL | {"vmovq", "vmovq_store"}
COMPARISONS = {"vcmpps", "vcmppd", "vpcmpd", "vpcmpq"}
PREDICATES = {0: "eq", 1: "lt", 2: "le", 3: "unord", 4: "neq"}
IMMEDIATES = (0, 1, 2, 8, 9, 10, 11, 0x1F, 0x55, 0x88, 0xD8, 0xFF)


class Memory(NamedTuple):
    """[base + index << scale + disp]; `base` -1: among the constants, at `disp`."""

    base: int
    disp: int
    index: int = -1
    scale: int = 0
    unit: int = 0


class Form(NamedTuple):
    """An instruction of vectors, as `assemble` takes it, and its text."""

    name: str
    length: int
    reg: int
    second: int
    rm: Any
    imm: int
    mask: int
    zero: bool
    text: str

    @property
    def told(self) -> tuple[Any, ...]:
        """What `assemble` is told."""
        return ("vector", *self[:6], 0, self.mask, self.zero)

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells it from others beside its registers."""
        return key_of(self.name, self.length, self.rm, self.imm, self.mask, self.zero)


def key_of(name: str, length: int, rm: Any, imm: int, mask: int, zero: bool) -> tuple[Any, ...]:
    """Return what tells a form from others beside its registers."""
    where = "register" if isinstance(rm, int) else "constant" if rm[0] < 0 else "memory"
    if TABLE[name][0] == SHIFT or name.startswith("vblendvp"):
        imm = 0  # any count of bits; a register
    return name, length, where, imm, mask, zero


def disassembled(code: bytes, folder: Path) -> list[str]:
    """Return the instructions as objdump prints them, without what depends on its version."""
    return [text for _, text in placed(code, folder)]


def placed(code: bytes, folder: Path) -> list[tuple[int, str]]:
    """Return the instructions with their places."""
    path = folder / "code.bin"
    path.write_bytes(code)
    text = subprocess.run(
        ["objdump", "-D", "-b", "binary", "-m", "i386:x86-64", "-M", "intel",
        "--no-show-raw-insn", path],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    lines = [line.split(":\t", 1) for line in text.splitlines() if ":\t" in line]
    found = [(int(place, 16), normal(line.strip())) for place, line in lines]
    while found and found[-1][1] == "int3":
        found.pop()  # code is filled up to whole cache lines
    return found


def normal(line: str) -> str:
    """Return a line without sizes of memory, spaces and the marks of encodings."""
    line = line.split("#")[0].removeprefix("{evex} ").removeprefix("rex ")
    for word in ("XMMWORD", "YMMWORD", "ZMMWORD", "QWORD", "DWORD", "WORD", "BYTE"):
        line = line.replace(f"{word} PTR ", "")
    words = line.split(None, 1)
    return " ".join([words[0], words[1].replace(" ", "") if len(words) > 1 else ""]).strip()


def names(evex: bool) -> list[str]:
    return [name for name in TABLE if name not in (VEX_ONLY if evex else EVEX_ONLY)]


def lengths(name: str, evex: bool) -> list[int]:
    if name in SCALAR:
        return [0]
    if name in ONLY_512:
        return [2]
    all_of = [0, 1, 2] if evex else [0, 1]
    return [n for n in all_of if n or name not in FROM_256]


def register(length: int, number: int) -> str:
    return f"{VECTOR[max(0, length)]}{number}"


def expected(
    name: str, evex: bool, length: int, regs: tuple[int, int, int], memory: str | None, imm: int,
    mask: int = 0, zero: bool = False,
) -> str:  # fmt: skip
    """Return what objdump ought to print."""
    reg, second, rm = regs
    form = TABLE[name][0]
    mnemonic = name.removesuffix("_store")
    masked = f"{{k{mask}}}{'{z}' if zero else ''}" if mask else ""
    to = (
        f"k{reg}"
        if evex and name in TO_MASK
        else register(length - NARROW_RESULT.get(name, 0), reg)
    )
    source = memory or register(length - NARROW_SOURCE.get(name, 0) - 3 * (name in ONE_MEMORY), rm)
    number = f"0x{imm:x}" if imm >= 0 else ""
    if name in FROM_GENERAL and not memory:
        source = SMALLER[rm]
    if form == STORE:
        small = NARROW_STORE.get(name, 0) + (
            length if name in ("vextractf128", "vextractf32x4") else 0
        )
        small += name == "vextractf64x4"
        target = memory or register(length - small, rm)
        if name == "vmovd_store" and not memory:
            target = source
        target += masked
        return f"{mnemonic} {','.join(filter(None, [target, register(length, reg), number]))}"
    if name in FROM_MASK:
        return f"{mnemonic} {register(length, reg)},k{rm}"
    if form == SHIFT:
        source = memory or register(length, rm)
        return f"{mnemonic} {register(length, reg)}{masked},{source},{number}"
    middle = register(length, second) if form == BINARY else ""
    if name in COMPARISONS:
        mnemonic = name.replace("cmp", f"cmp{PREDICATES[imm]}")
        number = ""
    if name.startswith("vblendvp"):
        number = register(length, imm >> 4)
    return f"{mnemonic} {','.join(filter(None, [to + masked, middle, source, number]))}"


def forms(evex: bool) -> Iterator[Form]:
    """Yield every form of every instruction: each register in each place, each kind of memory."""
    for name in names(evex):
        for length in lengths(name, evex):
            yield from chain(
                _of_registers(name, evex, length),
                _of_memory(name, evex, length),
                _masked(name, evex, length) if evex else (),
            )


def immediates(name: str, evex: bool) -> list[int]:
    if not TABLE[name][1]:
        return [-1]
    if name in COMPARISONS:
        return [p for p in PREDICATES if p != 3 or name.startswith("vcmp")]
    if name.startswith("vblendvp"):
        return [register << 4 for register in range(16)]
    return list(IMMEDIATES)


def _form(
    name: str, evex: bool, length: int, regs: tuple[int, int, int], at: tuple[Memory, str] | None,
    imm: int, mask: int = 0, zero: bool = False,
) -> Form:  # fmt: skip
    reg, second, rm = regs
    if evex and name in TO_MASK:
        reg &= 7
    if name in FROM_MASK:
        rm &= 7
    elif name in FROM_GENERAL:
        rm &= 15
    second = second if TABLE[name][0] == BINARY else 0
    place, memory = at or (rm, None)
    text = expected(name, evex, length, (reg, second, rm), memory, imm, mask, zero)
    return Form(name, length, reg, second, place, imm, mask, zero, text)


def _of_registers(name: str, evex: bool, length: int) -> Iterator[Form]:
    if name in MEMORY_ONLY:
        return
    count = 32 if evex else 16
    every = [(k, 1, 2) for k in range(count)]
    every += [(3, k, 2) for k in range(count)] if TABLE[name][0] == BINARY else []
    every += [(3, 1, k) for k in range(count)]
    every += [(count - 1, count // 2 + 1, count - 6), (7, count - 8, 8)]
    every += [(count - 1 - k, (k * 7 + 3) % count, (k * 5 + 1) % count) for k in range(count)]
    numbers = immediates(name, evex)
    for k, regs in enumerate(every):
        yield _form(name, evex, length, regs, None, numbers[k % len(numbers)])
    for imm in numbers:
        yield _form(name, evex, length, (count - 3, 6, 11), None, imm)


def _of_memory(name: str, evex: bool, length: int) -> Iterator[Form]:
    if name in REGISTERS_ONLY or (TABLE[name][0] == SHIFT and not evex):
        return
    numbers = immediates(name, evex)
    registers = ((1, 2, 0), (9, 10, 0), (31, 17, 0) if evex else (15, 8, 0))
    for k, at in enumerate(PLACES):
        yield _form(name, evex, length, registers[k % 3], at, numbers[k % len(numbers)])
    for imm in numbers:
        yield _form(name, evex, length, registers[2], PLACES[-1], imm)


def _masked(name: str, evex: bool, length: int) -> Iterator[Form]:
    if name in UNMASKED:
        return
    imm = immediates(name, evex)[-1]
    stores = TABLE[name][0] == STORE
    for mask, zero in product(range(1, 8), (False, True)):
        if zero and name in TO_MASK:
            continue
        if name not in MEMORY_ONLY:
            yield _form(name, evex, length, (18 + mask, 9, 25), None, imm, mask, zero)
        if not (zero and stores) and TABLE[name][0] in (UNARY, BINARY, STORE):
            yield _form(name, evex, length, (12 + mask, 30, 0), PLACES[mask], imm, mask, zero)


def _text(base: int, disp: int, index: int, scale: int) -> str:
    text = GENERAL[base] + (f"+{GENERAL[index]}*{1 << scale}" if index >= 0 else "")
    if disp or base & 7 == 5:
        text += f"{'-' if disp < 0 else '+'}0x{abs(disp):x}"
    return f"[{text}]"


def _places() -> list[tuple[Memory, str]]:
    found: list[tuple[int, int, int, int]] = []
    found += [(base, 0, -1, 0) for base in range(16)]
    found += [(base, 0x40 * (base - 8), -1, 0) for base in range(16)]
    indices = (0, 15, 1, 14, 2, 13, 3, 12, 5, 11, 6, 10, 7, 9, 8, 0)
    found += [(base, 0, index, base % 4) for base, index in enumerate(indices)]
    # Around what a displacement of one byte reaches, plain and counted in 16, 32 and 64 bytes.
    for unit in (1, 16, 32, 64):
        for steps in (-129, -128, -1, 1, 127, 128):
            found += [(9, steps * unit, -1, 0), (4, steps * unit + 1, 12, 3)]
    found += [(3, 0x12345, 0, 1), (13, -0x7FFF0000, 5, 2)]
    return [(Memory(b, d, i, s), _text(b, d, i, s)) for b, d, i, s in found]


PLACES = _places()
