"""Branches: independent parts of a parallel region, to run side by side.

Rule: within a parallel region, steps that touch memory that one of them writes are one branch. A
region pays where its heaviest branch, or its share of the threads, takes less than its steps in
turn, each with the threads that it can use by itself, and one hand-over more. Of all choices of
regions the one that saves most is taken, found by dynamic programming over where they end.

Steps of Python end a parallel region, and so do writes into what the graph is given: where one
branch fails, the others have changed nothing that the program holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tangrad_jit.graph.ir import Value

__all__ = ["Costs", "Step", "ParallelRegion", "costs", "find_parallel_regions"]


class Costs(NamedTuple):
    """What is worth a branch, in microseconds.

    Attributes:
        handover: what it costs to start branches and to wait for them.
        least: the work that two branches of a parallel region have, or more.
        timed: time branches both ways, and take the faster.
        always: count steps in place of work, and take branches whatever memory and time they need.
    """

    handover: float = 12.0
    least: float = 15.0
    timed: bool = True
    always: bool = False


#: What `find_parallel_regions` goes by; tests have others.
costs = Costs()

# A parallel region has so many steps at most, begins with a step of one thread, and has at least
# this share of `least`: so the search takes a time that grows with the program's length alone.
_MOST_STEPS = 128
_FIRST = 0.125


class Step(NamedTuple):
    """One step of a program.

    Attributes:
        place: of its node in the graph; of a group's last one.
        reads, writes: roots of the values that it reads and makes or writes.
        work: about how long it takes on one thread, in microseconds.
        joins: whether it may be part of a branch.
        pieces: how many threads its kernel can use by itself.
    """

    place: int
    reads: frozenset[Value]
    writes: frozenset[Value]
    work: float
    joins: bool
    pieces: int = 1


class ParallelRegion(NamedTuple):
    """Steps that follow each other, in branches.

    Attributes:
        first, last: the places of its first and last step.
        branches: the places of their steps, in order; the heaviest branch first.
        saved: about how many microseconds they save.
    """

    first: int
    last: int
    branches: tuple[tuple[int, ...], ...]
    saved: float


def find_parallel_regions(steps: list[Step], threads: int) -> list[ParallelRegion]:
    """Return regions that pay on so many threads, in order."""
    if costs.always:
        steps = [Step(s.place, s.reads, s.writes, 1.0, s.joins) for s in steps]
        threads = max(2, threads)
    elif threads < 2 or sum(s.work for s in steps if s.joins) < 2 * costs.least:
        return []
    best, begins = [0.0] * (len(steps) + 1), [-1] * (len(steps) + 1)
    for k, step in enumerate(steps):
        if k and best[k - 1] >= best[k]:
            best[k], begins[k] = best[k - 1], -1
        if not costs.always and (step.work < _FIRST * costs.least or step.pieces > 1):
            continue
        for end, saved in _saved_from(steps, k, threads):
            if best[k] + saved > best[end]:
                best[end], begins[end] = best[k] + saved, k
    found, end = [], len(steps)
    if best[end - 1] >= best[end]:
        begins[end] = -1
    while end > 0:
        if begins[end] < 0:
            end -= 1
            continue
        begin = begins[end]
        found.append(_parallel_region(steps[begin:end], best[end] - best[begin]))
        end = begin
    return found[::-1]


def _saved_from(steps: list[Step], first: int, threads: int) -> Iterator[tuple[int, float]]:
    """Yield (end, microseconds saved) of the regions from a step on that pay."""
    parts = _Parts()
    in_turn = most = 0.0
    handover, least = (0.0, 1.0) if costs.always else (costs.handover, costs.least)
    for k in range(first, min(len(steps), first + _MOST_STEPS)):
        step = steps[k]
        if not step.joins:
            return
        parts.add(step)
        in_turn += step.work / min(threads, step.pieces)
        if sum(work >= least for work in parts.work.values()) < 2:
            if most > 0:
                return
            continue
        loads = parts.work.values()
        saved = in_turn - max(max(loads), sum(loads) / threads) - handover
        if saved > 0:
            yield k + 1, saved
        if saved < most / 2:
            return
        most = max(most, saved)


def _parallel_region(steps: list[Step], saved: float) -> ParallelRegion:
    parts = _Parts()
    for step in steps:
        parts.add(step)
    branches: dict[int, list[int]] = {}
    for step, part in zip(steps, parts.of, strict=True):
        branches.setdefault(parts.find(part), []).append(step.place)
    heaviest = sorted(branches, key=lambda part: -parts.work[part])
    apart = tuple(tuple(branches[part]) for part in heaviest)
    return ParallelRegion(steps[0].place, steps[-1].place, apart, saved)


class _Parts:
    """Steps in parts that touch no memory that another of them writes.

    Attributes:
        of: the part of each step when it was added; `find` tells what has become of it.
        work: of each part that there is.
    """

    def __init__(self) -> None:
        self.of: list[int] = []
        self.work: dict[int, float] = {}
        self._within: list[int] = []
        self._writer: dict[Value, int] = {}
        self._readers: dict[Value, list[int]] = {}

    def find(self, part: int) -> int:
        """Return the part that another is in now."""
        while self._within[part] != part:
            self._within[part] = part = self._within[self._within[part]]
        return part

    def add(self, step: Step) -> None:
        """Add a step, and join the parts that it needs or that need it."""
        own = len(self._within)
        self._within.append(own)
        self.of.append(own)
        writer, readers = self._writer, self._readers
        touched = [writer[root] for root in step.reads if root in writer]
        for root in step.writes:
            if root in writer:
                touched.append(writer[root])
            if root in readers:
                touched.extend(readers.pop(root))
            writer[root] = own
        work = step.work
        for other in touched:
            part = self.find(other)
            if part != own:
                self._within[part] = own
                work += self.work.pop(part)
        self.work[own] = work
        for root in step.reads:
            if root in readers:
                readers[root].append(own)
            else:
                readers[root] = [own]
