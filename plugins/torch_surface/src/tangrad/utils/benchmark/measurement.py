"""What a measurement is of, and what it says."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

_UNITS = (("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0))
_ENGLISH = {"ns": "nanosecond", "us": "microsecond", "ms": "millisecond", "s": "second"}
_FEWEST_FOR_QUARTILES = 4
_IQR_OF_CONCERN = 0.1


def select_unit(t: float) -> tuple[str, float]:
    """Return the unit in which a time of `t` seconds reads well, and that unit in seconds."""
    fitting = [unit for unit in _UNITS if t >= unit[1]]
    return fitting[-1] if fitting else _UNITS[0]


def unit_to_english(u: str) -> str:
    """Return a unit's name."""
    return _ENGLISH[u]


@dataclass(frozen=True)
class TaskSpec:
    """What was measured; equal ones belong together."""

    stmt: str
    setup: str
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        """The labels, or the statement, as a heading."""
        if self.label is not None:
            return self.label + (f": {self.sub_label}" if self.sub_label else "")
        several = "\n" in self.stmt
        return f"stmt:\n{self.stmt}" if several else self.stmt

    def summarize(self) -> str:
        """Return the heading, the description and the setup as text."""
        parts = [self.title, self.description or "", f"setup: {self.setup}"]
        return "\n".join(part for part in parts if part and part != "setup: pass")


@dataclass(init=True, repr=False)
class Measurement:
    """Times of one task.

    Args:
        number_per_run: how often the statement ran for each time.
        raw_times: the times of the runs, in seconds.
        task_spec: what was measured.
        metadata: whatever its maker wants to keep beside it.
    """

    number_per_run: int
    raw_times: list[float]
    task_spec: TaskSpec
    metadata: dict[Any, Any] | None = field(default=None)

    @property
    def times(self) -> list[float]:
        """Seconds for one run of the statement, of each run."""
        return [t / self.number_per_run for t in self.raw_times]

    @property
    def median(self) -> float:
        """The median of the times."""
        return statistics.median(self.times)

    @property
    def mean(self) -> float:
        """The mean of the times."""
        return statistics.fmean(self.times)

    @property
    def iqr(self) -> float:
        """The distance between the quartiles of the times."""
        if len(self.raw_times) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.times, n=4, method="inclusive")
        return high - low

    @property
    def significant_figures(self) -> int:
        """How many digits of the median the spread of the times leaves meaningful."""
        spread = self.iqr / math.sqrt(max(len(self.raw_times), 1))
        if spread == 0 or self.median == 0:
            return 2
        return max(1, min(4, math.floor(math.log10(self.median / spread)) + 1))

    @property
    def has_warnings(self) -> bool:
        """Whether the times spread so much that they should not be trusted."""
        return not self.meets_confidence()

    def meets_confidence(self, threshold: float = _IQR_OF_CONCERN) -> bool:
        """Return whether the distance of the quartiles is below a share of the median."""
        enough = len(self.raw_times) >= _FEWEST_FOR_QUARTILES
        return not enough or self.iqr < threshold * self.median

    @property
    def title(self) -> str:
        """What was measured, as a heading."""
        return self.task_spec.title

    @property
    def env(self) -> str:
        """Where it was measured, as its maker named it."""
        return self.task_spec.env or "Unspecified env"

    @property
    def as_row_name(self) -> str:
        """Its name in a table."""
        return self.task_spec.sub_label or self.task_spec.stmt or "[Unknown]"

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """Return one measurement per task with all its times, for one run each."""
        grouped: dict[TaskSpec, list[float]] = {}
        for measurement in measurements:
            grouped.setdefault(measurement.task_spec, []).extend(measurement.times)
        return [Measurement(1, times, task) for task, times in grouped.items()]

    def __repr__(self) -> str:
        unit, scale = select_unit(self.median)
        count = len(self.raw_times)
        shown = f"{self.median / scale:.2f} {unit}"
        lines = [object.__repr__(self), self.task_spec.summarize()]
        if count == 1:
            lines.append(f"  {shown}")
        else:
            lines.append(f"  Median: {shown}")
        if count >= _FEWEST_FOR_QUARTILES:
            low, _, high = statistics.quantiles(self.times, n=4, method="inclusive")
            spread = f"{self.iqr / scale:.2f} {unit} ({low / scale:.2f} to {high / scale:.2f})"
            lines.append(f"  IQR:    {spread}")
        threads = self.task_spec.num_threads
        lines.append(
            f"  {count} measurement{'s' * (count > 1)}, {self.number_per_run} runs "
            f"{'per measurement' * (count > 1)}, {threads} thread{'s' * (threads > 1)}"
        )
        if self.has_warnings:
            lines.append("  WARNING: the times spread widely; the machine may be busy.")
        return "\n".join(lines)
