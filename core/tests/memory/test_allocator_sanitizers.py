"""The C code of the allocator under the compiler's sanitizers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "src" / "tangrad"
ALLOCATOR = SOURCES / "native" / "memory"
C_FILES = ("allocator.c", "allocator_host.c", "allocator_report.c")
CAUSES_OF_SKIPPING = ("cannot find -l", "unrecognized", "unexpected memory mapping")


def compile_stress(sanitizer: str, program: Path) -> subprocess.CompletedProcess[str]:
    sources = [
        str(HERE / "stress.c"),
        *(str(ALLOCATOR / name) for name in C_FILES),
    ]
    warnings = ["-Wall", "-Wextra", "-Werror"]
    macros = ["-D_GNU_SOURCE", "-Dcalloc=stress_calloc"]
    flags = ["-std=c11", "-g", "-O1", f"-fsanitize={sanitizer}", "-pthread", f"-I{SOURCES}"]
    command = ["gcc", *flags, *macros, *warnings, *sources, "-o", str(program)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_threads_and_failures_leave_memory_intact(sanitizer: str, tmp_path: Path):
    program = tmp_path / "stress"
    compiled = compile_stress(sanitizer, program)
    if any(cause in compiled.stderr for cause in CAUSES_OF_SKIPPING):
        pytest.skip(f"gcc without -fsanitize={sanitizer}")
    assert compiled.returncode == 0, compiled.stderr
    run = subprocess.run([str(program)], capture_output=True, text=True, timeout=120)
    if any(cause in run.stderr for cause in CAUSES_OF_SKIPPING):
        pytest.skip(f"-fsanitize={sanitizer} does not run here")
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout == "passed\n", run.stderr[-3000:]
