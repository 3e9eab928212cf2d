"""Every instruction of the table, as objdump reads it back."""

from __future__ import annotations

import shutil
import subprocess
from itertools import product
from pathlib import Path

import pytest

from tangrad_jit.codegen._emit import FORMS, assemble, table

pytestmark = pytest.mark.skipif(shutil.which("objdump") is None, reason="binutils is not installed")

BINARY, UNARY, STORE, SHIFT = FORMS
TABLE = table()
# Comparisons, whose destination in EVEX is a mask register.
TO_MASK = set(
    "vcmpps vcmppd vpcmpeqd vpcmpgtd vpcmpeqq vpcmpgtq vpcmpd vpcmpq vpmovd2m vpmovq2m".split()
)
# Without a form in VEX, and without one in EVEX.
EVEX_ONLY = set(
    "vpmullq vpminsq vpmaxsq vpabsq vpsraq vpcmpd vpcmpq vblendmps vblendmpd vpmovm2d vpmovm2q"
    " vpmovd2m vpmovq2m vpternlogd vrndscaleps vrndscalepd vcvtqq2pd vcvttpd2qq vcvtqq2ps"
    " vcvttps2qq vpmovdb vpmovqb vpmovdw vpmovqd vextractf32x4 vextractf64x4 vrcp14ps vscalefps"
    " vgetmantps vgetexpps vpandd vpandq vpandnd vpandnq vpord vporq vpxord vpxorq".split()
)
VEX_ONLY = set("vblendvps vblendvpd vroundps vroundpd vpand vpandn vpor vpxor vextractf128".split())
VECTOR = ("xmm", "ymm", "zmm")
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
PREDICATES = {0: "eq", 1: "lt", 2: "le", 4: "neq"}
INTEGER = {0: "eq", 1: "lt", 2: "le", 4: "neq"}


def disassembled(code: bytes, folder: Path, count: int) -> list[str]:
    """Return the instructions as objdump prints them, without what depends on its version.

    Args:
        code: instructions, filled up to whole cache lines.
        folder: for a file.
        count: how many instructions there are.
    """
    path = folder / "code.bin"
    path.write_bytes(code)
    text = subprocess.run(
        ["objdump", "-D", "-b", "binary", "-m", "i386:x86-64", "-M", "intel",
        "--no-show-raw-insn", path],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    lines = [line.split(":\t", 1)[1].strip() for line in text.splitlines() if ":\t" in line]
    assert set(lines[count:]) <= {"int3"}
    return [normal(line) for line in lines[:count]]


def normal(line: str) -> str:
    """Return a line without sizes of memory, spaces and the marks of predicates."""
    line = line.split("#")[0].removeprefix("{evex} ")
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
    name: str, evex: bool, length: int, regs: tuple[int, int, int], memory: str | None, imm: int
) -> str:
    """Return what objdump ought to print."""
    reg, second, rm = regs
    form = TABLE[name][0]
    mnemonic = name.removesuffix("_store")
    to = (
        f"k{reg}"
        if evex and name in TO_MASK
        else register(length - NARROW_RESULT.get(name, 0), reg)
    )
    if name == "vpermps":
        length = max(length, 1)
    source = memory or register(length - NARROW_SOURCE.get(name, 0) - 3 * (name in ONE_MEMORY), rm)
    number = f"0x{imm:x}" if imm >= 0 else ""
    if name in ("vmovd", "vmovd_store") and not memory:
        source = ("eax ecx edx ebx esp ebp esi edi r8d r9d r10d r11d r12d r13d r14d r15d".split())[
            rm
        ]
    if form == STORE:
        small = NARROW_STORE.get(name, 0) + (
            length if name in ("vextractf128", "vextractf32x4") else 0
        )
        small += name == "vextractf64x4"
        target = memory or register(length - small, rm)
        if name == "vmovd_store" and not memory:
            target = source
        return f"{mnemonic} {','.join(filter(None, [target, register(length, reg), number]))}"
    if name in ("vpmovm2d", "vpmovm2q"):
        return f"{mnemonic} {register(length, reg)},k{rm}"
    if form == SHIFT:
        return f"{mnemonic} {register(length, reg)},{register(length, rm)},{number}"
    middle = register(length, second) if form == BINARY else ""
    if name.startswith(("vcmpp", "vpcmpd", "vpcmpq")) and imm in PREDICATES:
        mnemonic = name.replace("cmp", f"cmp{PREDICATES[imm]}")
        number = ""
    if name.startswith("vblendvp"):
        number = register(length, imm >> 4)
    return f"{mnemonic} {','.join(filter(None, [to, middle, source, number]))}"


# (base, displacement, index, scale, growth from copy to copy)
PLACES = (
    ((0, 0, -1, 0, 0), "[rax]"),
    ((5, 0, -1, 0, 0), "[rbp+0x0]"),
    ((4, 0x200, -1, 0, 0), "[rsp+0x200]"),
    ((12, 0, -1, 0, 0), "[r12]"),
    ((13, 0, 0, 2, 0), "[r13+rax*4+0x0]"),
    ((9, -64, 12, 3, 0), "[r9+r12*8-0x40]"),
    ((3, 0x12345, 0, 1, 0), "[rbx+rax*2+0x12345]"),
    ((15, 0x7F, -1, 0, 0), "[r15+0x7f]"),
)


@pytest.mark.parametrize("evex", [False, True], ids=["vex", "evex"])
def test_every_instruction_reads_back(evex: bool, tmp_path: Path) -> None:
    instructions: list[tuple] = []
    wanted = []
    for name in names(evex):
        form, needs_imm = TABLE[name]
        numbers = (
            ((1, 2, 3), (9, 10, 11), (31, 17, 26), (7, 24, 8))
            if evex
            else ((1, 2, 3), (9, 10, 11), (15, 1, 8))
        )
        mask_in = name in ("vpmovm2d", "vpmovm2q")
        for length, regs in product(lengths(name, evex), numbers):
            reg, second, rm = regs
            if evex and name in TO_MASK:
                reg = reg & 7
            if mask_in or name in ("vmovd", "vmovd_store"):
                rm = rm & 7
            second = second if form == BINARY else 0
            imm = 1 if needs_imm else -1
            if name.startswith("vblendvp"):
                imm = 6 << 4
            if name not in MEMORY_ONLY:
                instructions.append(("vector", name, length, reg, second, rm, imm, 0))
                wanted.append(expected(name, evex, length, (reg, second, rm), None, imm))
            if form == SHIFT or mask_in or name in ("vpmovd2m", "vpmovq2m"):
                continue
            for place, text in PLACES:
                instructions.append(("vector", name, length, reg, second, place, imm, 0))
                wanted.append(expected(name, evex, length, (reg, second, rm), text, imm))
    found = disassembled(assemble(evex, instructions), tmp_path, len(wanted))
    wrong = [(a, b) for a, b in zip(found, wanted, strict=False) if a != b]
    assert wrong[:5] == []
    assert len(found) == len(wanted)


def test_general_instructions_read_back(tmp_path: Path) -> None:
    told: list[tuple] = []
    wanted: list[str] = []

    def general(
        opcode: int, reg: int, at: object, text: str, wide: bool = True, **how: bool
    ) -> None:
        told.append(
            ("general", opcode, reg, at, wide, how.get("escape", False), how.get("half", False))
        )
        wanted.append(text)

    for number, name in ((0, "rax"), (3, "rbx"), (5, "rbp"), (6, "rsi"), (12, "r12"), (13, "r13")):
        told += [("push", number), ("pop", number)]
        wanted += [f"push {name}", f"pop {name}"]
        for place, text in PLACES:
            general(0x8B, number, place, f"mov {name},{text}")
            general(0x89, number, place, f"mov {text},{name}")
            general(0x8D, number, place, f"lea {name},{text}")
            general(0x01, number, place, f"add {text},{name}")
            general(0x3B, number, place, f"cmp {name},{text}")
        for operation, mnemonic in ((0, "add"), (4, "and"), (5, "sub"), (7, "cmp")):
            told += [("immediate", operation, number, 64), ("immediate", operation, number, 4096)]
            wanted += [f"{mnemonic} {name},0x40", f"{mnemonic} {name},0x1000"]
        general(0xF7, 3, number, f"neg {name}")
        general(0x85, number, number, f"test {name},{name}")
    told.append(("immediate", 5, (4, 8, -1, 0, 0), 1))
    wanted.append("sub [rsp+0x8],0x1")
    for place, text in PLACES:
        general(0xB6, 6, place, f"movzx esi,{text}", wide=False, escape=True)
        general(0xBF, 6, place, f"movsx esi,{text}", wide=False, escape=True)
        general(0x88, 6, place, f"mov {text},sil", wide=False)
        general(0x89, 6, place, f"mov {text},si", wide=False, half=True)
    told.append(("mask",))
    wanted += ["mov ecx,0xffffffff", "bzhi ecx,ecx,esi", "kmovw k7,ecx"]
    assert disassembled(assemble(True, told), tmp_path, len(wanted)) == wanted


def test_masked_copies_of_loads_and_stores_read_back(tmp_path: Path) -> None:
    at = (3, 0, 0, 2, 64)
    told = [
        ("vector", name, 2, 9, 0, at, -1, streams)
        for name, streams in (
            ("vmovups", 1),
            ("vmovups_store", 2),
            ("vpmovdb", 2),
            ("vcvtph2ps", 1),
        )
    ]
    code = assemble(True, told, [(0, False), (3, False), (0, True)])
    found = disassembled(code, tmp_path, 12)
    assert found[:2] == ["vmovups zmm9,[rbx+rax*4]", "vmovups [rbx+rax*4],zmm9"]
    assert found[4:6] == ["vmovups zmm9,[rbx+rax*4+0xc0]", "vmovups [rbx+rax*4+0xc0],zmm9"]
    assert found[8:] == [
        "vmovups zmm9{k7}{z},[rbx+rax*4]",
        "vmovups [rbx+rax*4]{k7},zmm9",
        "vpmovdb [rbx+rax*4]{k7},zmm9",
        "vcvtph2ps zmm9{k7}{z},[rbx+rax*4]",
    ]


def test_constants_are_found_behind_the_code(tmp_path: Path) -> None:
    told = [
        ("vector", "vaddps", 1, 0, 0, (-1, 32, -1, 0, 0), -1, 0),
        ("vector", "vroundps", 1, 0, 0, (-1, 0, -1, 0, 0), 9, 0),
    ]
    lines = disassembled(assemble(False, told), tmp_path, 2)
    # Code is filled up to 64 bytes; displacements count from the next instruction.
    first, second = (int(line.split("rip+")[1].split("]")[0], 16) for line in lines)
    assert first + 8 == 64 + 32
    assert second + 8 + 10 == 64
