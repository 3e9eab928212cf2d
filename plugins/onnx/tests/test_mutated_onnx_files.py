"""Mutated files are loaded or refused, in bounded time and memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("onnx")

COUNT = 3000


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits of a process are Linux's")
def test_mutated_files_are_taken_or_refused() -> None:
    script = Path(__file__).with_name("mutated_onnx_files.py")
    command = [sys.executable, str(script), "0", str(COUNT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == f"0 of {COUNT} files went wrong\n", done.stdout + done.stderr
