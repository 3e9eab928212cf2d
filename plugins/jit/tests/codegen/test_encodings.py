"""Every instruction that is emitted, as objdump reads it back."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from codegen_encodings import GENERAL, PLACES, SMALLER, Memory, disassembled, forms, key_of
from codegen_groups import ops
from codegen_random import make
from test_operations import DTYPES, group_of

from tangrad.plugin.render import ExpressionTypeError
from tangrad_jit.codegen._emit import assemble, emit
from tangrad_jit.codegen.compiled import native_level
from tangrad_jit.codegen.conversions import with_conversions
from tangrad_jit.codegen.tiles import Planner, Refused, values_of
from tangrad_jit.codegen.vector import Unsupported

pytestmark = pytest.mark.skipif(shutil.which("objdump") is None, reason="binutils is not installed")


@pytest.mark.parametrize("evex", [False, True], ids=["vex", "evex"])
def test_every_instruction_reads_back(evex: bool, tmp_path: Path) -> None:
    every = list(forms(evex))
    found = disassembled(assemble(evex, [form.told for form in every]), tmp_path)
    wrong = [(a, form.text) for a, form in zip(found, every, strict=False) if a != form.text]
    assert wrong[:5] == []
    assert len(found) == len(every) > (50_000 if evex else 15_000)


@pytest.mark.parametrize("evex", [False, True], ids=["vex", "evex"])
def test_constants_are_found_behind_the_code(evex: bool, tmp_path: Path) -> None:
    """Displacements count from the next instruction, which an imm8 puts off."""
    told: list[tuple[Any, ...]] = []
    offsets = []
    for form in forms(evex):
        if isinstance(form.rm, Memory) and form.rm.index < 0 and not form.name.endswith("_store"):
            offsets.append(64 * (len(offsets) % 5))
            told.append(form._replace(rm=Memory(-1, offsets[-1])).told)
    code = assemble(evex, told)
    assert len(code) % 64 == 0
    path = tmp_path / "code.bin"
    path.write_bytes(code)
    found = [target - len(code) for target in targets_of(path)]
    assert found == offsets
    assert len(found) > 3000


def targets_of(path: Path) -> list[int]:
    """Return the addresses that operands relative to the place of the code name."""
    command = ["objdump", "-D", "-b", "binary", "-m", "i386:x86-64", "-M", "intel", path]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [int(found, 16) for found in re.findall(r"\[rip\+0x[0-9a-f]+\].*# 0x([0-9a-f]+)", text)]


def test_general_instructions_read_back(tmp_path: Path) -> None:
    told: list[tuple[Any, ...]] = []
    wanted: list[str] = []

    def general(opcode: int, reg: int, at: Any, text: str, wide: bool = True, escape: bool = False,
                half: bool = False) -> None:  # fmt: skip
        told.append(("general", opcode, reg, at, wide, escape, half))
        wanted.append(text)

    for number, name in enumerate(GENERAL):
        told += [("push", number), ("pop", number)]
        wanted += [f"push {name}", f"pop {name}"]
        for place, text in PLACES[number::8]:
            general(0x8B, number, place, f"mov {name},{text}")
            general(0x89, number, place, f"mov {text},{name}")
            general(0x8D, number, place, f"lea {name},{text}")
            general(0x01, number, place, f"add {text},{name}")
            general(0x3B, number, place, f"cmp {name},{text}")
            for opcode, mnemonic in ((0xB6, "zx"), (0xB7, "zx"), (0xBE, "sx"), (0xBF, "sx")):
                line = f"mov{mnemonic} {SMALLER[number]},{text}"
                general(opcode, number, place, line, wide=False, escape=True)
            general(0x88, number, place, f"mov {text},{_part(number, 1)}", wide=False)
            general(0x89, number, place, f"mov {text},{_part(number, 2)}", wide=False, half=True)
        for operation, mnemonic in enumerate(("add", "or", "", "", "and", "sub", "xor", "cmp")):
            for value, shown in (
                (64, "0x40"), (127, "0x7f"), (-64, "0xffffffffffffffc0"), (4096, "0x1000"),
                (-4096, "0xfffffffffffff000"), (128, "0x80"),
            ) if mnemonic else ():  # fmt: skip
                told.append(("immediate", operation, number, value))
                wanted.append(f"{mnemonic} {name},{shown}")
        told.append(("shift", number, 3))
        wanted.append(f"shr {name},0x3")
        for other in range(16):
            for opcode, mnemonic in ((0x29, "sub"), (0x39, "cmp"), (0x85, "test"), (0x89, "mov")):
                general(opcode, other, number, f"{mnemonic} {name},{GENERAL[other]}")
        general(0x8B, number, 9, f"mov {name},r9")
        general(0xF7, 3, number, f"neg {name}")
        small = SMALLER[number]
        general(0x31, number, number, f"xor {small},{small}", wide=False)
    told += [("immediate", 5, Memory(4, 8), 1), ("mask",)]
    wanted += ["sub [rsp+0x8],0x1", "mov ecx,0xffffffff", "bzhi ecx,ecx,esi", "kmovw k7,ecx"]
    assert disassembled(assemble(True, told), tmp_path) == wanted


def _part(number: int, size: int) -> str:
    """Return the name of the lower byte, or two, of a general register."""
    if number > 7:
        return f"{GENERAL[number]}{'b' if size == 1 else 'w'}"
    plain = "ax cx dx bx sp bp si di".split()[number]
    return plain if size == 2 else "al cl dl bl spl bpl sil dil".split()[number]


def test_jumps_lead_where_they_are_told(tmp_path: Path) -> None:
    conditions = {
        -1: "jmp", 2: "jb", 3: "jae", 4: "je", 5: "jne", 6: "jbe", 7: "ja", 12: "jl", 13: "jge",
        14: "jle", 15: "jg",
    }  # fmt: skip
    told: list[tuple[Any, ...]] = []
    wanted = []
    place = 0
    for condition, name in conditions.items():
        first, size = len(told), 5 if condition < 0 else 6
        told += [("jump", condition, first + 3), ("push", 12), ("jump", condition, first)]
        end = place + 2 * size + 2
        wanted += [f"{name} 0x{end:x}", "push r12", f"{name} 0x{place:x}"]
        place = end
    assert disassembled(assemble(True, told), tmp_path) == wanted


def test_copies_of_a_body_differ_by_displacements_and_masks(tmp_path: Path) -> None:
    """Each load and store that may be of a stream, in four copies and in a masked one."""
    streams = {
        "vmovups": True, "vmovupd": True, "vcvtph2ps": True, "vpmovzxwd": True, "vpmovzxbd": True,
        "vpmovzxbq": True, "vpmovsxbd": True, "vpmovsxwd": True, "vmovups_store": False,
        "vmovupd_store": False, "vcvtps2ph": False, "vpmovdb": False, "vpmovqb": False,
        "vpmovdw": False,
    }  # fmt: skip
    for register, length, base in ((9, 2, 3), (31, 1, 13), (16, 2, 12)):
        at = Memory(base, 0, 0, 2, 64)
        told = [
            ("vector", name, length, register, 0, at, 0 if name == "vcvtps2ph" else -1,
             1 if loads else 2, 0, False)
            for name, loads in streams.items()
        ]  # fmt: skip
        copies = [(0, False), (1, False), (2, False), (3, False), (0, True)]
        found = disassembled(assemble(True, told, copies), tmp_path)
        count = len(streams)
        plain = f"[{GENERAL[base]}+rax*4+0x0]" if base == 13 else f"[{GENERAL[base]}+rax*4]"
        for copy in range(1, 4):
            moved = f"[{GENERAL[base]}+rax*4+0x{64 * copy:x}]"
            lines = found[copy * count : (copy + 1) * count]
            assert lines == [line.replace(plain, moved) for line in found[:count]]
        for line, masked, loads in zip(
            found[:count], found[4 * count :], streams.values(), strict=True
        ):
            assert plain in line
            marked = line.replace(",", "{k7}{z},", 1) if loads else line.replace("]", "]{k7}")
            assert masked == marked


@pytest.mark.skipif(native_level() is None, reason="tangrad-cpu has no kernels here")
@pytest.mark.parametrize("evex", [False, True], ids=["vex", "evex"])
def test_nothing_is_emitted_but_what_reads_back(evex: bool) -> None:
    """Ops, derivatives and folds, a share in the fast form, and random groups are emitted."""
    tested = {form.key for form in forms(evex)}
    tested |= {(*key[:2], "constant", *key[3:]) for key in tested if key[2] == "memory"}
    # Displacements that grow, and the ones that masks are put on later, have tests above.
    share = 1 if os.environ.get("TANGRAD_TESTS") == "full" else 12
    groups = [
        group_of(one, dtype)
        for dtype in DTYPES
        for one in ops().values()
        if dtype in one.dtypes and zlib.crc32(f"{one.key} {dtype}".encode()) % share == 0
    ]
    groups += [make(seed) for seed in range(30)]
    emitted = set()
    for group in groups:
        if group is None:
            continue
        with suppress(Refused, Unsupported, ExpressionTypeError):
            described = with_conversions(group)
            for stage in Planner(described, values_of(described), evex, True).make().stages:
                if stage.program is not None:
                    emitted |= keys_of(stage.program)
    assert emitted - tested == set()
    assert len(emitted) > 100


def keys_of(program: Any) -> set[tuple[Any, ...]]:
    """Return the forms of the instructions of vectors that a program is made of."""
    said: list[tuple[Any, ...]] = []
    emit(program, said)
    told = [entry[2:] for entry in said if entry[1] == "vector"]
    return {
        key_of(name, length, rm, imm, mask, bool(zero))
        for name, _, length, _, _, rm, imm, mask, zero, _ in told
    }
