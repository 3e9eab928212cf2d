"""Run the steps one after the other, each within its time, and tell at the end all that failed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from build_wheelhouse import ROOT
from ci.environment import StepError, install
from ci.steps import Step, relative

PROCESSES = int(os.environ.get("TANGRAD_TEST_PROCESSES", "2"))
#: Of the time in which tests run, the part in which every process has a test to run.
BUSY = 0.9
#: Durations come from the fastest machine known; minutes are meant on one that takes so many times
#: as long. A constant, not a measurement: the same tests are to run on every machine.
MARGIN = 2.0
#: A step is stopped when it takes so many times its minutes, on a slow machine so many times more,
#: and what any step may take besides: what hangs is to end, not what a neighbour slows down.
PATIENCE, GRACE = 2.0, 60.0


@dataclass
class Outcome:
    """Hold what became of a step.

    Attributes:
        step: which one.
        seconds: what it took.
        problem: why it is red, empty if it is not.
        report: outcomes and durations, as `sampling.Account` writes them.
    """

    step: Step
    seconds: float = 0.0
    problem: str = ""
    report: dict[str, Any] = field(default_factory=dict)

    @property
    def failed(self) -> list[str]:
        """Return the names of the failed tests."""
        return self.report.get("failed", [])

    def count(self, outcome: str) -> int:
        """Return how many tests had an outcome."""
        return self.report.get(outcome, 0)


def run(step: Step, slowness: float = 1.0, extra: Sequence[str] = ()) -> Outcome:
    """Install a step's packages and run its tests, as many as fit.

    Args:
        step: what to run.
        slowness: how many times as long this machine takes as the one of the durations; it decides
            when a step hangs, not which tests run.
        extra: further arguments for pytest.
    """
    outcome = Outcome(step)
    started = time.monotonic()
    try:
        install(step.packages)
        outcome.problem = _run_tests(step, outcome, slowness, extra)
    except StepError as error:
        outcome.problem = str(error)
    outcome.seconds = time.monotonic() - started
    return outcome


def seconds_of_tests(step: Step) -> float:
    """Return what the tests of a step may take by the recorded durations, over all processes."""
    return max(0.0, step.minutes * 60 / MARGIN - step.overhead) * PROCESSES * BUSY


def _run_tests(step: Step, outcome: Outcome, slowness: float, extra: Sequence[str]) -> str:
    limit = step.minutes * 60 * PATIENCE * slowness + GRACE
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [
            *(sys.executable, "-m", "pytest", "-q", "-rfE", "-n", str(PROCESSES)),
            *("-p", "ci.sampling", f"--sample-salt={step.name}", f"--sample-report={report}"),
            f"--sample-seconds={seconds_of_tests(step):.0f}",
            # Tells where a test hangs, in C too, before it or its step is stopped.
            *("-o", f"faulthandler_timeout={min(240.0, 0.8 * limit):.0f}"),
            *step.arguments,
            *(relative(path) for path in step.tests),
            *extra,
        ]
        print("$ python", *command[1:], flush=True)
        code = run_within(command, limit)
        if report.exists():
            outcome.report = json.loads(report.read_text("utf-8"))
    if code is None:
        return f"stopped after {limit / 60:.1f} minutes"
    return "" if code == 0 else EXIT_CODES.get(code, f"pytest ended with {code}")


EXIT_CODES = {1: "tests failed", 2: "tests cannot be collected", 5: "ran no test"}


def run_within(command: Sequence[str], seconds: float) -> int | None:
    """Run a command in the repository, and end it with all it started when its time is over.

    Returns:
        Its exit status, or None if it had to be ended.
    """
    process = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        # Also what a step that ended by itself left behind: the next one wants both cores.
        for sign in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, sign)
            except ProcessLookupError:
                break
            _wait_briefly(process)


def _wait_briefly(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        return


def tell(outcomes: Sequence[Outcome]) -> bool:
    """Print what became of every step and every failed test; say whether all is well."""
    print(f"\n{'step':<30} minutes  of    passed  failed  skipped")
    for outcome in outcomes:
        counts = (outcome.count("passed"), len(outcome.failed), outcome.count("skipped"))
        times = f"{outcome.seconds / 60:7.1f} {outcome.step.minutes:4.1f}"
        verdict = outcome.problem.partition("\n")[0]
        columns = "{:>9} {:>7} {:>8}".format(*counts)
        print(f"{outcome.step.name:<30} {times} {columns}  {verdict}".rstrip())
    red = [outcome for outcome in outcomes if outcome.problem]
    for outcome in red:
        print(f"\n{outcome.step.name}: {outcome.problem}")
        for name in outcome.failed:
            print(f"  FAILED {name}")
    passed, skipped = (sum(o.count(kind) for o in outcomes) for kind in ("passed", "skipped"))
    # A step that is red without a failed test is a failure, too.
    failed = sum(len(outcome.failed) for outcome in outcomes) + sum(not o.failed for o in red)
    print(f"\ntotal: {passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return not red
