"""Measure programs of several frameworks in turn: A B A B, so that the machine's moods hit both."""

from __future__ import annotations

import gc
import statistics
import timeit
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

OURS = "tangrad"
ROUND_SECONDS = 0.02


@dataclass(frozen=True)
class Program:
    """One statement to time.

    Attributes:
        statement: Python source.
        names: what it may use.
        repeats: how many times the measured thing happens within the statement.
    """

    statement: str
    names: Mapping[str, Any]
    repeats: int = 1


@dataclass
class Figure:
    """What was measured of one workload.

    Attributes:
        workload: what was done. group: the kind of figure it belongs to. unit: of the values.
        values: median by framework.
        ratio: our figure divided by PyTorch's: lower quartile, median, upper quartile.
        goal: the most our value may be. goal_ratio: the most the median ratio may be.
        note: what a reader has to know to read the figure rightly.
    """

    workload: str
    group: str
    unit: str
    values: dict[str, float]
    ratio: tuple[float, float, float] | None = None
    goal: float | None = None
    goal_ratio: float | None = None
    note: str = ""

    def misses(self) -> list[str]:
        """Return what falls short of a goal, in words."""
        found = []
        ours = self.values[OURS]
        if self.goal is not None and ours > self.goal:
            found.append(f"{ours:.3g} {self.unit} > {self.goal:g}")
        if self.goal_ratio is not None and self.ratio and self.ratio[1] > self.goal_ratio:
            found.append(f"{self.ratio[1]:.2f} of torch > {self.goal_ratio:g}")
        return found


@dataclass
class Samples:
    """Times by framework, one of each per round."""

    by_framework: dict[str, list[float]] = field(default_factory=dict)

    def add(self, framework: str, value: float) -> None:
        """Note one time."""
        self.by_framework.setdefault(framework, []).append(value)

    def medians(self) -> dict[str, float]:
        """Return the median by framework."""
        return {name: statistics.median(values) for name, values in self.by_framework.items()}

    def ratio(self) -> tuple[float, float, float] | None:
        """Return the quartiles of our time over PyTorch's, paired by round."""
        theirs = self.by_framework.get("torch")
        if theirs is None:
            return None
        pairs = zip(self.by_framework[OURS], theirs, strict=True)
        ratios = [ours / torch for ours, torch in pairs]
        if len(ratios) == 1:
            return (ratios[0],) * 3
        low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
        return low, middle, high


def alternate(measures: Mapping[str, Callable[[], float]], rounds: int) -> Samples:
    """Call each measure once per round, in turn."""
    samples = Samples()
    for _ in range(rounds):
        for framework, measure in measures.items():
            samples.add(framework, measure())
    return samples


def measure_programs(programs: Mapping[str, Program], rounds: int) -> Samples:
    """Time the same workload in several frameworks; microseconds per repeat."""
    return alternate({name: _timer(program) for name, program in programs.items()}, rounds)


def _timer(program: Program) -> Callable[[], float]:
    timer = timeit.Timer(program.statement, globals=dict(program.names))
    timer.timeit(2)  # what is loaded on first use is not what is measured
    number = 1
    while (taken := timer.timeit(number)) < ROUND_SECONDS / 4:
        number *= 4
    number = max(1, round(number * ROUND_SECONDS / taken))

    def run() -> float:
        gc.collect()
        return timer.timeit(number) / number / program.repeats * 1e6

    return run


def as_data(figures: Iterable[Figure]) -> list[dict[str, Any]]:
    """Return figures as JSON data."""
    return [asdict(figure) for figure in figures]


def from_data(data: Iterable[dict[str, Any]]) -> list[Figure]:
    """Return the figures that `as_data` wrote."""
    return [Figure(**{**item, "ratio": item["ratio"] and tuple(item["ratio"])}) for item in data]


def table(figures: Iterable[Figure]) -> str:
    """Lay figures out as text, ours first, the goals beside what was measured."""
    head = ("workload", "tangrad", "goal", "torch", "NumPy", "ratio (quartiles)", "goal", "")
    rows = [head]
    for f in figures:
        rows.append(
            (
                f.workload,
                f"{_number(f.values[OURS])} {f.unit}",
                _number(f.goal),
                _number(f.values.get("torch")),
                _number(f.values.get("numpy")),
                "" if f.ratio is None else "{1:.2f} ({0:.2f}-{2:.2f})".format(*f.ratio),
                _number(f.goal_ratio),
                "MISSED" if f.misses() else f.note,
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:], strict=False)]
        lines.append("  ".join([*cells, row[-1]]).rstrip())
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
