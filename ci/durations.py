"""How long tests take, by file: `durations.json`, written by a run with ``--record``."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("durations.json")
#: No machine is believed to be faster than the recorded one, nor slower than by this factor.
SLOWEST = 3.0

Clock = Callable[[], float]


def file_of(test: str) -> str:
    """Return the file in a test's name."""
    return test.partition("::")[0]


def expected_seconds(tests: Sequence[str]) -> dict[str, float]:
    """Return how long each test takes; of an unknown file, as long as the average test."""
    recorded = _read()
    return {test: recorded["files"].get(file_of(test), recorded["usual"]) for test in tests}


def record_new(reports: Iterable[dict[str, Any]], slowness: float) -> list[str]:
    """Keep the same of files that are not known yet, from a run of any kind; return their names.

    Args:
        reports: what `sampling.Account` wrote in each step.
        slowness: how many times as long this machine takes as the one of the durations.
    """
    content = _read()
    means = {file: mean / slowness for file, mean in _means(reports).items()}
    new = sorted(set(means) - set(content["files"]))
    files = content["files"] | {file: round(means[file], 4) for file in new}
    content["files"] = {file: files[file] for file in sorted(files)}
    FILE.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
    return new


def _means(reports: Iterable[dict[str, Any]]) -> dict[str, float]:
    means: dict[str, float] = {}
    for report in reports:
        for file, (seconds, tests) in report["files"].items():
            means[file] = max(means.get(file, 0.0), seconds / tests)
    return means


def record(reports: Iterable[dict[str, Any]]) -> None:
    """Keep the mean duration of each file's tests, in the step where it is the longest.

    Args:
        reports: what `sampling.Account` wrote in each step.
    """
    reports = list(reports)
    known, means = _read()["files"], _means(reports)
    all_seconds, all_tests = 0.0, 0
    for report in reports:
        for seconds, tests in report["files"].values():
            all_seconds, all_tests = all_seconds + seconds, all_tests + tests
    here = {file: mean for file, mean in known.items() if (FILE.parents[1] / file).exists()}
    merged = here | means
    content = {
        "calibration": round(measure(), 4),
        "usual": round(all_seconds / max(all_tests, 1), 4),
        "files": {file: round(merged[file], 4) for file in sorted(merged)},
    }
    FILE.write_text(json.dumps(content, indent=1) + "\n", "utf-8")


def slowness(clock: Clock = time.perf_counter) -> float:
    """Return how many times as long this machine takes as the one that durations come from."""
    return min(max(measure(clock) / _read()["calibration"], 1.0), SLOWEST)


def measure(clock: Clock = time.perf_counter) -> float:
    """Return the seconds of a fixed piece of Python: the least of some tries."""
    return min(_once(clock) for _ in range(15))


def _once(clock: Clock) -> float:
    started = clock()
    counts: dict[str, int] = {}
    for number in range(100_000):
        key = f"test_{number % 997}"
        counts[key] = counts.get(key, 0) + len(key)
    sorted(counts.items(), key=lambda item: (item[1], item[0]))
    return clock() - started


def _read() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(FILE.read_text("utf-8"))
    return content
