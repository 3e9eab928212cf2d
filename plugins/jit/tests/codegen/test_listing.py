"""Emitted code as text says what a disassembler reads."""

from __future__ import annotations

import re
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from codegen_encodings import GENERAL, PREDICATES, SMALLER, placed
from codegen_groups import full, step
from codegen_random import make

from tangrad_jit.codegen import Const, Group, compile_group
from tangrad_jit.codegen.compiled import native_level
from tangrad_jit.codegen.conversions import with_conversions
from tangrad_jit.codegen.listing import listing
from tangrad_jit.codegen.tiles import Planner, Refused, values_of
from tangrad_jit.codegen.vector import Unsupported

pytestmark = pytest.mark.skipif(
    native_level() not in ("avx2", "avx512"), reason="no code is emitted here"
)

STEPS = (
    step("add_plain", "float32", 0, 1),
    step("tanh", "float32", 2),
    step("mean", "float32", 3),
    step("mul", "float32", 4, Const(0.5)),
    step("sub_plain", "float32", 3, 5),
)
GROUP = Group(full("float32", "float32"), STEPS, (6, 4))
# Loads, stores, masks and conversions of every dtype.
ODD = [
    Group(full(*dtypes), (step("add_plain", kind, 0, 1), step("lt", kind, 0, 2)), (2, 3))
    for kind, dtypes in (
        ("float16", ("float16", "bool")),
        ("bfloat16", ("bfloat16", "uint8")),
        ("int16", ("int16", "int8")),
        ("int64", ("int64", "int32")),
        ("float64", ("float64", "float32")),
        ("uint8", ("uint8", "bool")),
    )
]


def test_a_listing_names_streams_passes_and_instructions() -> None:
    text = compile_group(GROUP).listing()
    assert "; stream 0: value 0 (float32), moves by row column" in text
    assert "; pass 0" in text
    assert "; pass 1" in text
    assert "vaddps" in text
    assert "constants+" in text
    assert text.count("; the same for vector 1") == 2


def test_a_called_loop_is_named() -> None:
    group = Group(full("float32"), (step("sin", "float32", 0), step("neg", "float32", 1)), (2,))
    assert "; calls the compiled loop of sin, float32" in compile_group(group).listing()


COPIES = ("; the same", "; the body")
GENERAL_NAMES = {
    name: GENERAL[k]
    for k in range(16)
    for name in (GENERAL[k], SMALLER[k], *("si sil".split() if k == 6 else ()))
}
JUMPS = {"jmp", "jb", "jae", "je", "jne", "jbe", "ja", "jl", "jge", "jle", "jg"}
NAMED_PREDICATES = {f"v{p}cmp{n}{t}": (f"v{p}cmp{t}", k) for k, n in PREDICATES.items()
                    for p, t in (("", "ps"), ("", "pd"), ("p", "d"), ("p", "q"))
                    if not (p and n == "eq")}  # fmt: skip


def same_form(text: str, constants: int | None = None, after: int = 0) -> str:
    """Return an instruction of a listing, or of objdump, in one form.

    Args:
        text: the instruction.
        constants: where constants begin, for what is relative to the place of the code.
        after: the place of the next instruction.
    """
    name, _, rest = text.replace(", ", ",").partition(" ")
    operands = rest.replace(" {", "{").split(",") if rest else []
    if name in NAMED_PREDICATES:
        name, predicate = NAMED_PREDICATES[name]
        operands.append(str(predicate))
    if name in ("vpcmpeqd", "vpcmpeqq") and operands[0].startswith("k"):
        name = name.replace("eq", "")
        operands.append("0")
    return f"{name} {','.join(_operand(one, name in JUMPS, constants, after) for one in operands)}"


def _operand(text: str, jump: bool, constants: int | None, after: int) -> str:
    if jump:
        return str(int(text, 16))
    if text in GENERAL_NAMES:
        return GENERAL_NAMES[text]
    place, bracket, mask = text.partition("]")
    if bracket:
        terms = re.findall(r"([+-]?)([a-z][a-z0-9]*(?:\*\d)?|0x[0-9a-f]+|\d+)", place)
        disp = sum(int(sign + term, 0) for sign, term in terms if term[0].isdigit())
        names = [term for _, term in terms if not term[0].isdigit()]
        if "rip" in names and constants is not None:
            names, disp = ["constants"], after + disp - constants
        return f"[{'+'.join(name.removesuffix('*1') for name in names)}{disp:+d}]{mask}"
    if re.fullmatch(r"-?(0x[0-9a-f]+|\d+)", text):
        return str(int(text, 0) & 0xFFFFFFFF)
    return text


@pytest.mark.skipif(shutil.which("objdump") is None, reason="binutils is not installed")
@pytest.mark.parametrize("evex", [False, True], ids=["vex", "evex"])
def test_every_line_is_the_instruction_at_its_place(evex: bool, tmp_path: Path) -> None:
    """Listings say what is asked of the assembler, objdump reads what it wrote: both agree."""
    checked = 0
    for group in (GROUP, *ODD, *(make(seed) for seed in range(0, 60, 2))):
        described = with_conversions(group)
        with suppress(Refused, Unsupported):
            for stage in Planner(described, values_of(described), evex, True).make().stages:
                if stage.program is not None:
                    checked += agreeing_lines(stage.code.bytes, listing(stage.program), tmp_path)
    assert checked > 5000


def agreeing_lines(code: bytes, text: str, folder: Path) -> int:
    """Compare each line of a listing with objdump's; return how many there are."""
    lines = []
    for line in text.splitlines():
        if line and line[0] != ";":
            place, instruction = line.split(None, 1)
            if not instruction.startswith(";") or instruction.startswith(COPIES):
                lines.append((int(place, 16), instruction))
    read = placed(code, folder)
    position = {place: k for k, (place, _) in enumerate(read)}
    end = lines[-1][0] + 4  # behind vzeroupper and ret
    constants = (end + 63) // 64 * 64
    checked, k = 0, 0
    for place, instruction in lines:
        assert place == read[k][0], f"no line tells what is at {read[k][0]:x}"
        if instruction.startswith(COPIES):
            following = [other for other, _ in lines if other > place]
            k = position[following[0]]
            continue
        for one in instruction.split("; "):
            found = same_form(read[k][1], constants, read[k + 1][0] if k + 1 < len(read) else end)
            assert found == same_form(one), f"{place:x}: {instruction}, objdump: {read[k][1]}"
            k += 1
            checked += 1
    return checked
