"""Where Python stands is read as each version that is here has it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHECK = Path(__file__).with_name("frames_check.py")
HEADERS = (
    "import os, sysconfig; print(os.path.exists(sysconfig.get_paths()['include'] + '/Python.h'))"
)


def _works(python: str) -> bool:
    asked = subprocess.run([python, "-c", HEADERS], capture_output=True, text=True)
    return asked.stdout.strip() == "True"


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
@pytest.mark.parametrize("version", ["this", "3.11", "3.12", "3.13", "3.14"])
@pytest.mark.parametrize("way", [[], ["--objects"]], ids=["itself", "objects"])
def test_stacks_are_those_of_the_interpreter(version, way):
    python = sys.executable if version == "this" else shutil.which(f"python{version}")
    if python is None or not _works(python):
        pytest.skip(f"Python {version}, or its headers, are not here")
    done = subprocess.run([python, str(CHECK), *way], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "stacks agree" in done.stdout
