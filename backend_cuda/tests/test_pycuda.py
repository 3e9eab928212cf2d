"""pycuda's own tests pass on the stand-in, which they know nothing of.

They take minutes and their sources are fetched: `TANGRAD_TESTS=full` runs them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FULL = os.environ.get("TANGRAD_TESTS") == "full"
# What the stand-in does not have, by parts of the tests' names.
LEFT_OUT = {
    "texture": "texture references ended with CUDA 11",
    "surface": "surface references ended with CUDA 11",
    "recursive_launch": "kernels that launch kernels are linked by nvcc with cudadevrt",
    "jit_link": "kernels that launch kernels are linked by nvcc with cudadevrt",
}
# File of tests: engines, and how many tests pass at least. Those of arrays draw by cuRAND.
FILES = {"test_driver": (("host", "ptx"), 19), "test_cumath": (("host",), 28)}


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the tests of the pycuda that is installed, from its sources."""
    if not FULL:
        pytest.skip("pycuda's tests run in the full form: TANGRAD_TESTS=full")
    from tangrad_cuda import install

    try:
        return install.fetch_sources(install.PYCUDA, tmp_path_factory.mktemp("pycuda")) / "test"
    except SystemExit as error:
        pytest.skip(f"pycuda's sources cannot be fetched: {str(error)[-400:]}")


@pytest.mark.parametrize(
    ("file", "engine"), [(file, each) for file, (engines, _) in FILES.items() for each in engines]
)
def test_pycuda_s_own_tests_pass(
    variables: dict[str, str], sources: Path, file: str, engine: str
) -> None:
    command = [sys.executable, "-m", "tangrad_cuda_emulator", "--engine", engine, sys.executable]
    command += ["-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", f"{file}.py"]
    command += ["-k", " and ".join(f"not {part}" for part in LEFT_OUT)]
    done = subprocess.run(
        command, cwd=sources, env={**os.environ, **variables}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert int(re.findall(r"(\d+) passed", done.stdout)[-1]) >= FILES[file][1], done.stdout[-2000:]
