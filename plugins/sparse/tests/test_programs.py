"""Programs written for PyTorch run unchanged and print what they print there."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.py"))


def lines(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [line.split() for line in done.stdout.splitlines()]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_prints_what_it_prints_on_pytorch(program):
    theirs = lines(sys.executable, "-W", "ignore", str(program))
    ours = lines(sys.executable, "-W", "error", "-m", "tangrad", "run", str(program))
    assert len(theirs) == len(ours) > 2
    for a, b in zip(theirs, ours, strict=True):
        assert [w for w in a if "." not in w] == [w for w in b if "." not in w]
        mine = [float(w) for w in b if "." in w]
        assert mine == pytest.approx([float(w) for w in a if "." in w], abs=5e-4)
