"""With nothing standing between, an op pays one load and one branch for all that could."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess

import pytest

from tangrad import _C

# Where a call enters: operators, indexing, and the arguments of an op called by name. The compiler
# may inline the second into the slot of the type, and adds suffixes to copies it specialises.
ENTRANCES = (
    "f_7tangrad_2_C_binary_operator",
    "mp_subscript_7tangrad_2_C_Tensor",
    "f_7tangrad_2_C_bind",
)

TITLE = r"[0-9a-f]+ <__pyx_(\w+)(?:\.constprop\.\d+|\.isra\.\d+)*>:\n"


@pytest.fixture(scope="module")
def disassembly():
    if platform.machine() != "x86_64":
        pytest.skip("reads the instructions of x86-64")
    if shutil.which("objdump") is None:
        pytest.skip("objdump (binutils) is not installed")
    command = ["objdump", "-d", "--no-show-raw-insn", _C.__file__]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    functions = {}
    for block in text.split("\n\n"):
        title = re.match(TITLE, block.lstrip("\n"))
        if title:
            functions[title[1]] = [
                line.split("\t", 1)[1].split("#")[0].strip()
                for line in block.splitlines()
                if "\t" in line
            ]
    if not functions:
        pytest.skip("the extension has no symbols left")
    return functions


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_empty_interceptor_pointer_costs_one_load_and_one_branch(disassembly, entrance):
    code = disassembly[entrance]
    reads = [i for i, line in enumerate(code) if re.search(r"%fs:(?:0x0)?\(%\w+\)", line)]
    assert len(reads) == 1, [code[i] for i in reads]
    (at,) = reads
    load, *after = code[at : at + 4]
    compares_memory = re.fullmatch(r"cmpq\s+\$0x0,%fs:(?:0x0)?\(%\w+\)", load)
    if not compares_memory:
        register = re.fullmatch(r"mov\s+%fs:(?:0x0)?\(%\w+\),(%\w+)", load)[1]
        test = next(line for line in after if line.startswith("test"))
        assert re.fullmatch(rf"test\s+{register},{register}", test)
    assert any(re.match(r"j(e|ne)\s", line) for line in after), code[at : at + 4]


def test_thread_state_is_reached_without_a_call(disassembly):
    everything = [line for code in disassembly.values() for line in code]
    assert not [line for line in everything if "__tls_get_addr" in line]
    assert not [line for line in everything if "tlsdesc" in line.lower()]
