"""Executable memory: never writable at a time, over forks too; where it is refused, tiles serve."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from codegen_groups import compare, full, step

from tangrad_jit.codegen import Group, compile_group, compiled
from tangrad_jit.codegen.compiled import native_level

pytestmark = [
    pytest.mark.skipif(native_level() is None, reason="tangrad-cpu has no kernels here"),
    pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="there is no /proc"),
]
needs_code = pytest.mark.skipif(
    native_level() == "tiles", reason="there is no executable memory here"
)

GROUP = Group(
    full("float32"),
    (
        step("amax", "float32", 0),
        step("sub_plain", "float32", 0, 1),
        step("exp", "float32", 2),
        step("sum", "float32", 3),
        step("true_divide", "float32", 3, 4),
    ),
    (5,),
)

# Programs of processes of their own: PyTorch's libraries keep such memory in that of the tests.
BEGIN = """
import os
import tangrad
from tangrad_jit.codegen.compiled import native_level

def maps():
    return [line.split() for line in open("/proc/self/maps")]

def checked():
    assert not [words for words in maps() if "w" in words[1] and "x" in words[1]]

def bits(function):
    x = tangrad.arange(3000.0).reshape(3, 1000).sin() * 50
    options = {"measure": False}
    for compiled in (function, tangrad.compile(function, fullgraph=True, options=options)):
        for _ in range(2):
            found = compiled(x)
        yield found.view(tangrad.int32).tolist()

def chain(x):
    return (x * 2).exp() + x.sigmoid()

def rows(x):
    return ((x - x.amax(1, keepdim=True)).exp() / x.sum(1, keepdim=True)).relu()
"""
ALONE = """
eager, fast = bits(chain)
assert eager == fast
checked()
# Memory of no file, that processors run and nobody writes: the kernel.
print(any(words[1] == "r-xp" and len(words) == 5 for words in maps()))
"""
FORKED = """
eager, fast = bits(chain)
child = os.fork()
if child == 0:
    # The kernel that was made before runs on, and others are made.
    status = 1
    try:
        assert [eager, eager] == list(bits(chain))
        first, second = bits(rows)
        assert first == second
        checked()
        status = 0
    finally:
        os._exit(status)
_, status = os.waitpid(child, 0)
first, second = bits(rows)
assert first == second
checked()
print(status == 0)
"""
# mprotect is refused where it would make memory executable, as hardened systems refuse it.
REFUSED = """
import ctypes
import struct
import sys

LOAD, AND, JUMP_EQUAL, RETURN = 0x20, 0x54, 0x15, 0x06
rules = (
    (LOAD, 0, 0, 0), (JUMP_EQUAL, 0, 4, 10), (LOAD, 0, 0, 32), (AND, 0, 0, 4),
    (JUMP_EQUAL, 1, 0, 0), (RETURN, 0, 0, 0x50000 | 13), (RETURN, 0, 0, 0x7FFF0000),
)
program = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *rule) for rule in rules))
wanted = struct.pack("<HxxxxxxQ", len(rules), ctypes.addressof(program))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, wanted):
    print("no filter")
    sys.exit()
assert native_level() == "tiles", native_level()
for function in (chain, rows):
    eager, fast = bits(function)
    assert eager == fast
checked()
assert not [words for words in maps() if words[1] == "r-xp" and len(words) == 5]
print(True)
"""


def answer(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + program], capture_output=True, text=True, timeout=120
    )
    assert done.stderr == ""
    return done.stdout.strip()


@needs_code
def test_no_memory_is_writable_and_executable() -> None:
    kernel = compile_group(GROUP)
    address = kernel.plans[0].stages[0].code.address
    maps = [line.split() for line in Path("/proc/self/maps").read_text("utf-8").splitlines()]
    ranges = [(*(int(end, 16) for end in words[0].split("-")), words[1]) for words in maps]
    ours = [mode for low, high, mode in ranges if low <= address < high]
    assert ours == ["r-xp"]


@needs_code
def test_no_memory_of_a_process_is_writable_and_executable() -> None:
    assert answer(ALONE) == "True"


@needs_code
def test_kernels_run_and_are_made_in_a_forked_process() -> None:
    assert answer(FORKED) == "True"


@needs_code
def test_a_system_that_refuses_executable_memory_gets_the_same_bits_by_tiles() -> None:
    said = answer(REFUSED)
    if said == "no filter":
        pytest.skip("this system takes no filter of its calls")
    assert said == "True"


def test_without_executable_memory_the_tile_frame_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_state", {})
    monkeypatch.setattr(compiled, "_kernels", {})
    monkeypatch.setattr(compiled._execute, "Code", refuse)
    assert native_level() == "tiles"
    compare(GROUP, 5, 65)


@needs_code
def test_memory_that_is_refused_later_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    assert native_level() != "tiles"
    monkeypatch.setattr(compiled, "_kernels", {})
    monkeypatch.setattr(compiled._execute, "Code", refuse)
    assert compiled.can_compile(GROUP) is None
    for columns in (5, 65, 40_000):
        compare(GROUP, 3, columns)


def refuse(code: bytes) -> None:
    raise PermissionError
