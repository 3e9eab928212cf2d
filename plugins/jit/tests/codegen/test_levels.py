"""The same tests at the level below: the bits are those of tangrad-cpu's kernels of that level."""

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
FEWER_GROUPS = "60"


@pytest.mark.skipif(
    native_level() != "avx512",
    reason="this process runs at the lowest level itself, or without kernels",
)
def test_avx2_has_the_bits_of_the_kernels_for_avx2() -> None:
    """A process has one level: tangrad-cpu chooses its kernels when the device opens."""
    environment = {**os.environ, "TANGRAD_CPU_ISA": "avx2"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    if os.environ.get("TANGRAD_TESTS") != "full":
        command += ["-k", LIKE_OTHERS]
        environment["TANGRAD_JIT_TEST_GROUPS"] = FEWER_GROUPS
    command += [str(HERE / name) for name in FILES]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
