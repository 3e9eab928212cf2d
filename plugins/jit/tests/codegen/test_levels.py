"""The same tests at the levels below: the bits are those of tangrad-cpu's kernels of each level."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tangrad_jit.codegen.compiled import native_level

HERE = Path(__file__).parent
FILES = ("test_operations.py", "test_random_groups.py", "test_kernels.py", "test_elementary.py")
# What the fast form leaves to the level above: dtypes like others, and most of the random groups.
LIKE_OTHERS = "not (every_op and (float16 or int16 or int32 or uint8))"
FEWER_GROUPS = {"avx2": "60", "baseline": "30"}


@pytest.mark.parametrize("level", FEWER_GROUPS)
def test_the_bits_are_those_of_the_kernels_of_each_level(level: str) -> None:
    """A process has one level: tangrad-cpu chooses its kernels when the device opens.

    No code is emitted for the lowest, on any processor: the tile frame calls its loops.
    """
    if native_level() is None:
        pytest.skip("this process runs without kernels")
    if level == "avx2" and native_level() != "avx512":
        pytest.skip("this process runs at this level itself, or below")
    if level not in pytest.importorskip("tangrad_cpu._kernels").levels():
        pytest.skip("tangrad-cpu was built without this level")
    environment = {**os.environ, "TANGRAD_CPU_ISA": level}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    if os.environ.get("TANGRAD_TESTS") != "full":
        command += ["-k", LIKE_OTHERS]
        environment["TANGRAD_JIT_TEST_GROUPS"] = FEWER_GROUPS[level]
    command += [str(HERE / name) for name in FILES]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
