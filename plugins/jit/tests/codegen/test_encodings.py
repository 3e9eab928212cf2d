"""Every instruction of the table, as objdump reads it back."""

from __future__ import annotations

import shutil
import subprocess
from itertools import product
from pathlib import Path

import pytest

from tangrad_jit.codegen.assembler import Assembler, Memory
from tangrad_jit.codegen.instructions import (
    BINARY,
    EVEX_ONLY,
    SHIFT,
    STORE,
    TABLE,
    TO_MASK,
    VEX_ONLY,
)  # fmt: skip

pytestmark = pytest.mark.skipif(shutil.which("objdump") is None, reason="binutils is not installed")

VECTOR = ("xmm", "ymm", "zmm")
# The length of the operand that is not a whole vector: by how many steps it is smaller.
NARROW_SOURCE = {
    "vcvtps2pd": 1, "vcvtdq2pd": 1, "vcvttps2qq": 1, "vpmovsxdq": 1, "vpmovsxbd": 2, "vpmovsxwd": 1,
    "vpmovzxbd": 2, "vpmovzxbq": 3, "vpmovzxwd": 1, "vcvtph2ps": 1,
}  # fmt: skip
NARROW_RESULT = {"vcvtpd2ps": 1, "vcvttpd2dq": 1, "vcvtqq2ps": 1}
NARROW_STORE = {"vcvtps2ph": 1, "vpmovdb": 2, "vpmovqb": 3, "vpmovdw": 1, "vpmovqd": 1}
SCALAR = {
    "vaddsd", "vmulsd", "vdivsd", "vcvtss2sd", "vcvtsd2ss", "vmovss", "vmovsd", "vmovd", "vmovq",
    "vmovss_store", "vmovsd_store", "vmovd_store", "vmovq_store", "vmovddup",
}  # fmt: skip
ONLY_512 = {"vextractf64x4"}
FROM_256 = {"vbroadcastsd", "vextractf128", "vextractf32x4", "vpermps"}
ONE_MEMORY = {"vbroadcastss", "vbroadcastsd", "vpbroadcastd", "vpbroadcastq"}
MEMORY_ONLY = {"vmovss", "vmovsd", "vmovss_store", "vmovsd_store"}
PREDICATES = {0: "eq", 1: "lt", 2: "le", 4: "neq"}
INTEGER = {0: "eq", 1: "lt", 2: "le", 4: "neq"}


def disassembled(code: bytes, folder: Path) -> list[str]:
    """Return the instructions as objdump prints them, without what depends on its version."""
    path = folder / "code.bin"
    path.write_bytes(code)
    text = subprocess.run(
        ["objdump", "-D", "-b", "binary", "-m", "i386:x86-64", "-M", "intel",
        "--no-show-raw-insn", path],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    lines = [line.split(":\t", 1)[1].strip() for line in text.splitlines() if ":\t" in line]
    return [normal(line) for line in lines]


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
    form = TABLE[name][4]
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


PLACES = (
    (Memory(0), "[rax]"),
    (Memory(5), "[rbp+0x0]"),
    (Memory(4, 0x200), "[rsp+0x200]"),
    (Memory(12), "[r12]"),
    (Memory(13, 0, 0, 2), "[r13+rax*4+0x0]"),
    (Memory(9, -64, 12, 3), "[r9+r12*8-0x40]"),
    (Memory(3, 0x12345, 0, 1), "[rbx+rax*2+0x12345]"),
    (Memory(15, 0x7F), "[r15+0x7f]"),
)


@pytest.mark.parametrize("evex", [False, True], ids=["vex", "evex"])
def test_every_instruction_reads_back(evex: bool, tmp_path: Path) -> None:
    assembler = Assembler(evex)
    wanted = []
    for name in names(evex):
        form, needs_imm = TABLE[name][4], TABLE[name][5]
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
                assembler.vector(name, length, reg, second, rm, imm)
                wanted.append(expected(name, evex, length, (reg, second, rm), None, imm))
            if form == SHIFT or mask_in or name in ("vpmovd2m", "vpmovq2m"):
                continue
            for place, text in PLACES:
                assembler.vector(name, length, reg, second, place, imm)
                wanted.append(expected(name, evex, length, (reg, second, rm), text, imm))
    found = disassembled(bytes(assembler.code), tmp_path)
    wrong = [(a, b) for a, b in zip(found, wanted, strict=False) if a != b]
    assert wrong[:5] == []
    assert len(found) == len(wanted)


def test_general_instructions_read_back(tmp_path: Path) -> None:
    a = Assembler(True)
    wanted = []

    def expect(*lines: str) -> None:
        wanted.extend(lines)

    for number, name in ((0, "rax"), (3, "rbx"), (5, "rbp"), (6, "rsi"), (12, "r12"), (13, "r13")):
        a.push(number)
        a.pop(number)
        expect(f"push {name}", f"pop {name}")
        for place, text in PLACES:
            a.load(number, place)
            a.store(place, number)
            a.address(number, place)
            a.general(0x01, number, place)
            a.general(0x3B, number, place)
            expect(f"mov {name},{text}", f"mov {text},{name}", f"lea {name},{text}")
            expect(f"add {text},{name}", f"cmp {name},{text}")
        for operation, mnemonic in ((0, "add"), (4, "and"), (5, "sub"), (7, "cmp")):
            a.immediate(operation, number, 64)
            a.immediate(operation, number, 4096)
            expect(f"{mnemonic} {name},0x40", f"{mnemonic} {name},0x1000")
        a.general(0xF7, 3, number)
        a.general(0x85, number, number)
        expect(f"neg {name}", f"test {name},{name}")
    a.immediate(5, Memory(4, 8), 1)
    expect("sub [rsp+0x8],0x1")
    for place, text in PLACES:
        a.load_small(6, place, 1)
        a.load_small(6, place, 2, signed=True)
        a.store_small(place, 6, 1)
        a.store_small(place, 6, 2)
        expect(f"movzx esi,{text}", f"movsx esi,{text}", f"mov {text},sil", f"mov {text},si")
    a.mask_of_count(7, 6, 1)
    expect("mov ecx,0xffffffff", "bzhi ecx,ecx,esi", "kmovw k7,ecx")
    assert disassembled(bytes(a.code), tmp_path) == wanted


def test_masked_copies_of_loads_and_stores_read_back(tmp_path: Path) -> None:
    a = Assembler(True)
    at = Memory(3, 0, 0, 2, 64)
    for name, loads in (
        ("vmovups", True),
        ("vmovups_store", False),
        ("vpmovdb", False),
        ("vcvtph2ps", True),
    ):
        a.masked_later(loads)
        a.vector(name, 2, 9, 0, at)
    body, whole = a.take(), Assembler(True)
    whole.append(body)
    whole.append(body, 3)
    whole.append(body.masked())
    found = disassembled(bytes(whole.code), tmp_path)
    assert found[:2] == ["vmovups zmm9,[rbx+rax*4+0x0]", "vmovups [rbx+rax*4+0x0],zmm9"]
    assert found[4:6] == ["vmovups zmm9,[rbx+rax*4+0xc0]", "vmovups [rbx+rax*4+0xc0],zmm9"]
    assert found[8:] == [
        "vmovups zmm9{k7}{z},[rbx+rax*4+0x0]",
        "vmovups [rbx+rax*4+0x0]{k7},zmm9",
        "vpmovdb [rbx+rax*4+0x0]{k7},zmm9",
        "vcvtph2ps zmm9{k7}{z},[rbx+rax*4+0x0]",
    ]


def test_constants_are_found_behind_the_code(tmp_path: Path) -> None:
    a = Assembler(False)
    a.vector("vaddps", 1, 0, 0, Memory(-1, 32))
    a.vector("vroundps", 1, 0, 0, Memory(-1, 0), 9)
    code = a.finish(bytes(64))
    lines = disassembled(code[: code.index(b"\xcc")], tmp_path)
    # Code is filled up to 64 bytes; displacements count from the next instruction.
    first, second = (int(line.split("rip+")[1].split("]")[0], 16) for line in lines)
    assert first + 8 == 64 + 32
    assert second + 8 + 10 == 64
