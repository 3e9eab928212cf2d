"""Measure programs of several frameworks in turn: A B A B, so that the machine's moods hit both."""

from __future__ import annotations

import gc
import statistics
import time
import timeit
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

OURS = "tangrad"
# What a first run loads takes less: a statement that is slower is not run a second time.
AGAIN = 2.0
# Threads of a framework look for more work for some milliseconds after its last call; what is timed
# meanwhile has one processor less. Waiting for them: seconds per look, and how many looks at most.
# Linux counts the time of a thread that goes on running once per tick, which is 10 ms at most.
LOOK = 0.021
LOOKS = 20
# The processor's time is right on a busy machine too, but adds up what threads do at once.
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


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


@dataclass(frozen=True)
class Pace:
    """How long to measure.

    Attributes:
        rounds: of one timing per framework, at most.
        timing: seconds that a single timing should take; fast statements are repeated so often.
        row: seconds after which no further round starts.
        slow: a statement that takes longer than so many seconds is timed once.
        patience: seconds that our first run of a statement may take before it counts as absent.
        peers: whether to measure others than PyTorch.
        clock: a key of CLOCKS.
    """

    rounds: int = 15
    timing: float = 0.02
    row: float = 2.5
    slow: float = 1.0
    patience: float = 6.0
    peers: bool = True
    clock: str = "wall"


QUICK = Pace(rounds=5, timing=0.01, row=0.4, slow=0.15, patience=1.5, peers=False)


@dataclass
class Figure:
    """What was measured of one workload.

    Attributes:
        workload: what was done. group: the kind of figure it belongs to. unit: of the values.
        values: median by framework.
        ratio: our figure divided by PyTorch's: lower quartile, median, upper quartile.
        goal: the most our value may be. goal_ratio: the most the median ratio may be.
        note: what a reader has to know to read the figure rightly.
        limit: the least that the machine allows, in the unit of the values.
        absent: why we have no value, empty if we have one.
    """

    workload: str
    group: str
    unit: str
    values: dict[str, float]
    ratio: tuple[float, float, float] | None = None
    goal: float | None = None
    goal_ratio: float | None = None
    note: str = ""
    limit: float | None = None
    absent: str = ""

    def misses(self) -> list[str]:
        """Return what falls short of a goal, in words."""
        found = []
        ours = self.values.get(OURS)
        if ours is None:
            return found
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
        ours, theirs = self.by_framework.get(OURS), self.by_framework.get("torch")
        if ours is None or theirs is None:
            return None
        ratios = [mine / torch for mine, torch in zip(ours, theirs, strict=True)]
        if len(ratios) == 1:
            return (ratios[0],) * 3
        low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
        return low, middle, high


def alternate(
    measures: Mapping[str, Callable[[], float]], rounds: int, seconds: float = float("inf")
) -> Samples:
    """Call each measure once per round, in turn; start no round after so many seconds."""
    samples = Samples()
    start = time.perf_counter()
    for done in range(rounds):
        if done and time.perf_counter() - start > seconds:
            break
        for framework, measure in measures.items():
            samples.add(framework, measure())
    return samples


def measure_programs(programs: Mapping[str, Program], pace: Pace) -> Samples:
    """Time the same workload in several frameworks; microseconds per repeat."""
    with collected():
        timers = {name: timer(program, pace) for name, program in programs.items()}
        return alternate(timers, pace.rounds, pace.row)


@contextmanager
def collected() -> Iterator[None]:
    """Collect garbage, then spare what is alive: frameworks make every collection slow."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    yield


def wait_for_silence() -> None:
    """Wait until no other thread of this process uses the processor."""
    for _ in range(LOOKS):
        before = time.process_time()
        time.sleep(LOOK)
        if time.process_time() - before < LOOK / 4:
            return


def timer(program: Program, pace: Pace, first: float | None = None) -> Callable[[], float]:
    """Return what times a program once and tells microseconds per repeat.

    Args:
        program: what to time.
        pace: how long.
        first: the seconds that its first run took, if it has had one.
    """
    clock = CLOCKS[pace.clock]
    timing = timeit.Timer(program.statement, timer=clock, globals=dict(program.names))
    if first is None or first < AGAIN:
        # What is loaded on first use is not what is measured, nor are pages that the machine hands
        # out for the first time: a result that is still held keeps the second run from reusing
        # the memory of the first.
        wait_for_silence()
        first = min(timing.timeit(1) for _ in range(2))
    if first > pace.slow:
        return lambda: first / program.repeats * 1e6
    number, taken = 1, first if first > pace.timing else timing.timeit(1)
    while taken < pace.timing / 4:
        number *= 4
        taken = timing.timeit(number)
    number = max(1, round(number * pace.timing / taken))

    def run() -> float:
        gc.collect()
        wait_for_silence()
        if taken < pace.timing:
            timing.timeit(1)  # threads that sleep are woken
        return timing.timeit(number) / number / program.repeats * 1e6

    return run


def as_data(figures: Iterable[Figure]) -> list[dict[str, Any]]:
    """Return figures as JSON data."""
    return [asdict(figure) for figure in figures]


def from_data(data: Iterable[dict[str, Any]]) -> list[Figure]:
    """Return the figures that `as_data` wrote."""
    return [Figure(**{**item, "ratio": item["ratio"] and tuple(item["ratio"])}) for item in data]
