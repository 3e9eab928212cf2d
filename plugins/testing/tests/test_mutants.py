"""The kit is graded by devices with one fault each: it has to find every one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import tangrad
import tangrad_testing
from tangrad_testing.mutants import campaign
from tangrad_testing.mutants.automatic import mutants_of
from tangrad_testing.mutants.fault import PLANTED
from tangrad_testing.mutants.planted import planted

SOURCES = [str(Path(m.__file__).parents[1]) for m in (tangrad, tangrad_testing)]
FULL = os.environ.get("TANGRAD_TESTS") == "full"
FEW = "8"
AUTOMATIC = "tangrad_testing.loopback=loopback"

RIGHT = """
import sys
from tangrad_testing import computing_loopback, loopback, streaming_loopback
module = streaming_loopback if hasattr(streaming_loopback, sys.argv[1]) else computing_loopback
loopback.Loopback = getattr(module, sys.argv[1])
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


@pytest.mark.parametrize(
    "device",
    [
        "Computing",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("Timed", "Counted", "Streaming")),
    ],
)
def test_the_devices_that_faults_are_planted_in_are_right_without_them(device: str) -> None:
    python("-c", RIGHT, device)


def test_faults_are_planted_in_all_that_may_go_wrong_and_each_says_what_it_is() -> None:
    names = [mutant.name for mutant in planted()]
    assert len(set(names)) == len(names)
    assert all(mutant.says.endswith(".") for mutant in planted())
    kinds = Counter(made.__module__.rpartition("_")[2] for made in PLANTED.values())
    assert min(kinds.values()) >= 20
    assert set(kinds) == {
        "memory", "lifetime", "indices", "order", "streams", "kernels", "values", "ops",
    }  # fmt: skip


def test_planted_faults_are_found() -> None:
    told = python("-m", "tangrad_testing.mutants", *([] if FULL else ["--few", FEW]))
    count = len(planted()) if FULL else int(FEW)
    assert f"{count} of {count} killed" in told


def test_faults_made_by_machine_are_found() -> None:
    few = [] if FULL else ["--few", FEW]
    told = python("-m", "tangrad_testing.mutants", "--automatic", AUTOMATIC, *few)
    assert "SURVIVED" not in told


def test_a_campaign_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    record = tmp_path / "verdicts.jsonl"
    command = ["-m", "tangrad_testing.mutants", "--record", str(record)]
    python(*command, "--only", "HandlesAreTooLarge")
    found = record.read_text("utf-8")
    told = python(*command, "--only", "HandlesAreTooLarge", "--only", "HandlesAreNegative")
    assert "2 of 2 killed" in told
    assert "HandlesAreTooLarge:" not in told
    assert record.read_text("utf-8").startswith(found)


def test_a_fault_that_nobody_planted_is_refused() -> None:
    command = [sys.executable, "-m", "tangrad_testing.mutants", "--only", "Nobody"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.strip() == "mutants: no fault is called Nobody"


def test_who_is_kept_from_the_processor_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "LOOK", 0.001)
    looks = iter(range(1000))
    reader, writer = os.pipe()

    def nothing_goes_on() -> float:
        if next(looks) == 100:
            os.write(writer, b"done")
            os.close(writer)
        return 0.0

    monkeypatch.setattr(campaign, "share_of_a_processor", nothing_goes_on)
    assert campaign.read_until_end(reader, 1e-9) == ("done", True)

    reader, writer = os.pipe()
    monkeypatch.setattr(campaign, "share_of_a_processor", lambda: 1.0)
    assert campaign.read_until_end(reader, 1e-9) == ("", False)
    os.close(writer)


def test_a_machine_changes_one_thing_at_a_time() -> None:
    mutants = mutants_of("tangrad_testing.loopback", "loopback")
    assert len({mutant.name for mutant in mutants}) == len(mutants) > 30
    assert any(mutant.says.startswith("another comparison in `offset < 0`") for mutant in mutants)
