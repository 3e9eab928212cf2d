"""Emitted code as text says what a disassembler reads."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from codegen_groups import full, step

from tangrad_jit.codegen import Const, Group, compile_group
from tangrad_jit.codegen.compiled import native_level

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


def test_a_listing_names_streams_passes_and_instructions() -> None:
    text = compile_group(GROUP).listing()
    assert "; stream 0: value 0 (float32), moves by row column" in text
    assert "; pass 0" in text
    assert "; pass 1" in text
    assert "vaddps" in text
    assert "constants+" in text
    assert text.count("; the same for vector 1") == 2


@pytest.mark.skipif(shutil.which("objdump") is None, reason="binutils is not installed")
def test_every_line_is_the_instruction_at_its_place(tmp_path: Path) -> None:
    kernel = compile_group(GROUP)
    path = tmp_path / "code.bin"
    path.write_bytes(kernel.plans[0].stages[0].code.bytes)
    command = ["objdump", "-D", "-b", "binary", "-m", "i386:x86-64", "-M", "intel", path]
    command.append("--no-show-raw-insn")
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    read = {}
    for line in text.splitlines():
        if ":\t" in line:
            place, instruction = line.split(":\t", 1)
            read[int(place, 16)] = instruction.removeprefix("{evex} ").split()[0]
    lines = [line for line in kernel.listing().splitlines() if line and line[0] != ";"]
    checked = 0
    for line in lines:
        place, instruction = line.split(None, 1)
        if instruction.startswith(";"):
            continue
        name = instruction.split()[0].rstrip(";")
        found = read[int(place, 16)]
        # A predicate is part of objdump's name.
        assert found == name or (name.startswith("vcmp") and found.startswith("vcmp")), line
        checked += 1
    assert checked > 100


def test_a_called_loop_is_named() -> None:
    group = Group(full("float32"), (step("sin", "float32", 0), step("neg", "float32", 1)), (2,))
    assert "; calls the compiled loop of sin, float32" in compile_group(group).listing()
