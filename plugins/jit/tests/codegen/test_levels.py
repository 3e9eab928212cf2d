"""The same tests at the level below: the bits are those of tangrad-cpu's kernels of that level."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tangrad_jit.codegen.compiled import native_level

HERE = Path(__file__).parent


@pytest.mark.skipif(
    native_level() != "avx512",
    reason="this process itself runs at AVX2, the lowest level, or at none",
)
@pytest.mark.parametrize(
    "tests",
    ["test_operations.py", "test_random_groups.py", "test_kernels.py", "test_elementary.py"],
)
def test_avx2_has_the_bits_of_the_kernels_for_avx2(tests: str) -> None:
    """A process has one level: tangrad-cpu chooses its kernels when the device opens."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(HERE / tests)],
        env={**os.environ, "TANGRAD_CPU_ISA": "avx2"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
