"""Tell after the tests what each package's took of its minutes: a plugin of pytest.

It decides nothing: on a busy machine all take longer. Who measures on an idle one compares, and
corrects ``minutes`` in the package's pyproject.toml.
"""

from __future__ import annotations

from collections import defaultdict

import pytest

from build_wheelhouse import ROOT
from ci.packages import Package, read_packages


class Shares:
    """Add up the durations of tests by package."""

    def __init__(self, processes: int) -> None:
        self.processes = processes
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count one phase of one test."""
        self.seconds[report.nodeid.partition("::")[0]] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the minutes of each package that has any."""
        packages = read_packages()
        taken: defaultdict[str, float] = defaultdict(float)
        for file, seconds in self.seconds.items():
            taken[owner(packages, file)] += seconds / 60 / self.processes
        terminalreporter.section(f"minutes on {self.processes} processes", sep="-")
        for name, minutes in sorted(taken.items()):
            told = f"{minutes:6.2f} of {packages[name].minutes:5.2f}  {packages[name].factor}"
            terminalreporter.write_line(told)


def owner(packages: dict[str, Package], file: str) -> str:
    """Return the package in whose folder a test stands; the innermost, where one has another."""
    around = [p for p in packages.values() if (ROOT / file).is_relative_to(p.folder)]
    return max(around, key=lambda package: len(package.folder.parts)).name


def pytest_configure(config: pytest.Config) -> None:
    """Count in the process that sees all reports."""
    if not hasattr(config, "workerinput"):
        processes = getattr(config.option, "numprocesses", None) or 1
        config.pluginmanager.register(Shares(processes), "tangrad-shares")
