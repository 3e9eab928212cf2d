"""Calls that are made again and again follow all that changes in between."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is the oracle of programs that write")
COUNT = 2_000 if os.environ.get("TANGRAD_TESTS") == "full" else 24


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.parametrize("shard", range(2))
def test_no_call_tells_what_was_true_before(shard: int) -> None:
    # In a process of its own, which has run nothing that its children could take over.
    program = Path(__file__).with_name("random_repetitions.py")
    asked = [f"--first={shard * COUNT}", f"--count={COUNT}"]
    command = [sys.executable, str(program), *asked]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert f"{COUNT} programs, 0 differ" in done.stdout, done.stdout + done.stderr
