"""Choose the tests that fit into a step's seconds: a plugin of pytest (``-p ci.sampling``).

If all tests of a step take longer than it may, those are chosen whose names have the smallest
hashes: the same ones in every run of a step, others in another step.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ci.durations import expected_seconds, file_of
from ci.steps import hashed

STARTED = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what a step says to its pytest."""
    group = parser.getgroup("sampling", "tests that fit into a time")
    group.addoption("--sample-seconds", type=float, help="what the chosen tests may take in all")
    group.addoption("--sample-salt", default="", help="what makes the choice another one")
    group.addoption("--sample-report", metavar="FILE", help="where to write durations and outcomes")


def pytest_configure(config: pytest.Config) -> None:
    """Keep account in the process that sees all reports."""
    report = config.getoption("--sample-report")
    if report and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Account(Path(report)), "tangrad-ci-account")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what does not fit."""
    seconds = config.getoption("--sample-seconds")
    if seconds is None or not items:
        return
    expected = expected_seconds([item.nodeid for item in items])
    kept = fitting([item.nodeid for item in items], expected, seconds, config.option.sample_salt)
    left_out = [item for item in items if item.nodeid not in kept]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.nodeid in kept]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    """Start the clock of a test."""
    item.stash[STARTED] = processor_seconds()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Say what a phase of a test took."""
    report = yield
    now = processor_seconds()
    # Neither what threads do at once nor what other programs take from this machine is counted.
    report.seconds = min(report.duration, now - item.stash[STARTED])
    item.stash[STARTED] = now
    return report


def processor_seconds() -> float:
    """Return what this process and those that it waited for have used."""
    return sum(os.times()[:4])


def fitting(
    names: Sequence[str], expected: dict[str, float], seconds: float, salt: str = ""
) -> set[str]:
    """Return the tests, at least one, that together take no more than so many seconds."""
    if sum(expected.values()) <= seconds:
        return set(names)
    order = sorted(names, key=lambda name: (hashed(salt + name), name))
    kept, used = {order[0]}, expected[order[0]]
    for name in order[1:]:
        # A long test that does not fit any more leaves its place to shorter ones.
        if used + expected[name] <= seconds:
            kept.add(name)
            used += expected[name]
    return kept


class Account:
    """Count outcomes and add up the seconds of each file's tests."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.outcomes: defaultdict[str, int] = defaultdict(int)
        self.failed: dict[str, None] = {}
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.tests: defaultdict[str, set[str]] = defaultdict(set)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take one phase of one test into account."""
        file = file_of(report.nodeid)
        self.seconds[file] += getattr(report, "seconds", report.duration)
        self.tests[file].add(report.nodeid)
        if report.failed:
            self.failed[report.nodeid] = None
        elif report.when == "call" or report.skipped:
            self.outcomes[report.outcome] += 1

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep files that cannot be collected."""
        if report.failed:
            self.failed[report.nodeid] = None

    def pytest_sessionfinish(self) -> None:
        """Write what is known."""
        means = {
            file: [round(self.seconds[file], 3), len(tests)] for file, tests in self.tests.items()
        }
        told = {**self.outcomes, "failed": list(self.failed), "files": means}
        self.path.write_text(json.dumps(told), "utf-8")
