"""The kit is graded by devices with one fault each: it has to find every one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tangrad
import tangrad_testing
from tangrad_testing.mutants.automatic import mutants_of
from tangrad_testing.mutants.planted import planted

SOURCES = [str(Path(m.__file__).parents[1]) for m in (tangrad, tangrad_testing)]
FULL = os.environ.get("TANGRAD_TESTS") == "full"
FEW = "8"
AUTOMATIC = "tangrad_testing.loopback=loopback"

RIGHT = """
import sys
from tangrad_testing import computing_loopback, loopback
loopback.Loopback = getattr(computing_loopback, sys.argv[1])
from tangrad_testing.levels import Device, run
failed = [f"{o.check.name}: {o.message}" for o in run(Device("loopback"), range(8))
          if o.status == "failed"]
sys.exit("; ".join(failed) or 0)
"""


def python(*arguments: str) -> str:
    path = os.pathsep.join([*SOURCES, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=1500,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("device", ["Computing", "Queued"])
def test_the_devices_that_faults_are_planted_in_are_right_without_them(device: str) -> None:
    python("-c", RIGHT, device)


def test_at_least_sixty_faults_are_planted_and_each_says_what_it_is() -> None:
    names = [mutant.name for mutant in planted()]
    assert len(set(names)) == len(names) >= 60
    assert all(mutant.says.endswith(".") for mutant in planted())


def test_planted_faults_are_found() -> None:
    told = python("-m", "tangrad_testing.mutants", *([] if FULL else ["--few", FEW]))
    count = len(planted()) if FULL else int(FEW)
    assert f"{count} of {count} killed" in told


def test_faults_made_by_machine_are_found() -> None:
    few = [] if FULL else ["--few", FEW]
    told = python("-m", "tangrad_testing.mutants", "--automatic", AUTOMATIC, *few)
    assert "SURVIVED" not in told


def test_a_machine_changes_one_thing_at_a_time() -> None:
    mutants = mutants_of("tangrad_testing.loopback", "loopback")
    assert len({mutant.name for mutant in mutants}) == len(mutants) > 30
    assert any(mutant.says.startswith("another comparison in `offset < 0`") for mutant in mutants)
