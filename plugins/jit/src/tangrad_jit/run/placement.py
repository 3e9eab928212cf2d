"""Where the values of a run lie: in the arena, or in the memory of what is made later and leaves.

Rule: a value matters from the first to the last place of the graph that knows of it; in a parallel
region it matters which branches touch it, too.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from tangrad_jit.graph.ir import Graph, Value
from tangrad_jit.graph.types import ITEMSIZE
from tangrad_jit.passes import branches
from tangrad_jit.passes.branches import ParallelRegion, Step, find_parallel_regions
from tangrad_jit.passes.in_place_reuse import partners
from tangrad_jit.passes.memory_plan import Life, lodge, place_in_best_order, place_in_order
from tangrad_jit.passes.schedule import peak_of

__all__ = ["Lives", "Placement", "chosen"]

#: What branches may add to an arena, wherever that leaves the peak.
MOST_ADDED = 1 << 17
#: A graph's peak may be this share of that of its calls one by one.
GOAL = 0.8
# Where not all regions have room, so few are tried one by one, and of more a quarter.
_FEW = 4


class Placement(NamedTuple):
    """Where values lie.

    Attributes:
        offsets: bytes from the arena's begin.
        lodged: value -> (the one in whose memory it lies, at which byte).
        nbytes: of the arena.
        order: of values, in which they were placed.
    """

    offsets: dict[Value, int]
    lodged: dict[Value, tuple[Value, int]]
    nbytes: int
    order: int


class Lives:
    """When which value matters, and what of it may lie where.

    Args:
        graph: the graph.
        first, last: of each root the places between which it matters.
        movable: the roots that have a place in the arena.
        looped: values that may lie where an operand of their op dies.
        bound: roots that are Python objects on the arena, once for all runs.
        hosts: the roots that leave and have memory of their own.
        steps: of the program.
    """

    def __init__(
        self,
        graph: Graph,
        first: dict[Value, int],
        last: dict[Value, int],
        movable: set[Value],
        looped: set[Value],
        bound: set[Value],
        hosts: list[Value],
        steps: list[Step],
    ) -> None:
        self.graph, self.first, self.last = graph, first, last
        self.movable, self.looped, self.bound, self.hosts = movable, looped, bound, hosts
        self.steps = steps

    def placed(
        self, regions: Sequence[ParallelRegion] = (), plain: Placement | None = None
    ) -> Placement:
        """Place all values, for a program of which some regions run in branches.

        Args:
            regions: these. plain: the places without branches, whose order is taken.
        """
        sides = _Sides(regions, self.steps)
        shared = self._shared(sides)
        first, last = self.first, dict(self.last)
        bound = set(self.bound)
        for root in reversed(shared):
            last[shared[root]] = max(last[shared[root]], last[root])
            if root in bound:
                bound.add(shared[root])
        chains: dict[Value, list[Value]] = {root: [root] for root in self.movable - shared.keys()}
        for root in shared:
            chains[_holder(shared, root)].append(root)
        lives = [
            Life(
                root,
                _nbytes(root),
                first[root],
                last[root],
                sides.of(chain, first[root], last[root]),
            )
            for root, chain in chains.items()
        ]
        hosts = [
            Life(
                root,
                _nbytes(root),
                first[root],
                first[root],
                sides.of([root], first[root], first[root]),
            )
            for root in self.hosts
        ]
        lodged: Any = lodge(hosts, [life for life in lives if life.key not in bound])
        lives = [life for life in lives if life.key not in lodged]
        offsets: Any
        if plain is None:
            offsets, total, order = place_in_best_order(lives)
        else:
            order = plain.order
            offsets, total = place_in_order(lives, order)
        for root in shared:
            holder = _holder(shared, root)
            where = lodged if holder in lodged else offsets
            where[root] = where[holder]
        return Placement(offsets, lodged, total, order)

    def bytes_of_goal(self) -> int:
        """Return the bytes of an arena with which the peak is at the goal."""
        leaving = sum(_nbytes(root) for root in self.hosts)
        return int(GOAL * peak_of(self.graph)) - leaving

    def _shared(self, sides: _Sides) -> dict[Value, Value]:
        """Return the results that lie where an operand lies: those of loops called directly."""
        ends = {
            root: -1 if sides.is_used_apart(root, end) else end for root, end in self.last.items()
        }
        found = partners(self.graph, self.movable, ends)
        return {root: operand for root, operand in found.items() if root in self.looped}


def _holder(shared: dict[Value, Value], root: Value) -> Value:
    """Return the value whose memory another takes, by way of others."""
    while root in shared:
        root = shared[root]
    return root


def chosen(
    lives: Lives, threads: int, refused: Collection[ParallelRegion] = ()
) -> tuple[list[ParallelRegion], Placement, int]:
    """Return the regions to run in branches, the places of values then, and what they add.

    Branches need memory at the same time. Where that is more than `MOST_ADDED` bytes and more than
    the goal, those that save least time are left out.

    Args:
        lives: the values. threads: of the host. refused: regions that have turned out slower.
    """
    plain = lives.placed()
    found = [s for s in find_parallel_regions(lives.steps, threads) if s not in refused]
    if not found:
        return [], plain, 0
    most = max(plain.nbytes + MOST_ADDED, lives.bytes_of_goal())
    placement = lives.placed(found, plain)
    if placement.nbytes > most and not branches.costs.always:
        found, placement = _within(lives, found, plain, most)
    return found, placement, placement.nbytes - plain.nbytes


def _within(
    lives: Lives, found: list[ParallelRegion], plain: Placement, most: int
) -> tuple[list[ParallelRegion], Placement]:
    """Return of some regions those that save most time, as many as an arena has room for."""
    found = sorted(found, key=lambda region: -region.saved)
    while len(found) > _FEW:
        found = found[: len(found) // 4]
        placement = lives.placed(found, plain)
        if placement.nbytes <= most:
            return found, placement
    kept: list[ParallelRegion] = []
    placement = plain
    for region in found:
        tried = lives.placed([*kept, region], plain)
        if tried.nbytes <= most:
            kept, placement = [*kept, region], tried
    return kept, placement


class _Sides:
    """Which branches touch which memory."""

    def __init__(self, regions: Sequence[ParallelRegion], steps: list[Step]) -> None:
        self._of: dict[int, int] = {}  # place -> the region that it lies in
        self._touching: dict[tuple[int, Value], set[int]] = {}
        if not regions:
            return
        branch_of: dict[int, int] = {}
        for k, region in enumerate(regions):
            self._of.update(dict.fromkeys(range(region.first, region.last + 1), k))
            for j, places in enumerate(region.branches):
                branch_of.update(dict.fromkeys(places, j))
        for step in steps:
            if step.place in branch_of:
                for root in step.reads | step.writes:
                    key = self._of[step.place], root
                    self._touching.setdefault(key, set()).add(branch_of[step.place])

    def is_used_apart(self, root: Value, end: int) -> bool:
        """Return whether several branches touch a memory in the region where it dies."""
        return end in self._of and len(self._touching.get((self._of[end], root), ())) > 1

    def of(self, roots: list[Value], first: int, last: int) -> tuple[tuple[int, int], ...]:
        """Return of each region where a life begins or ends the branch that touches it, or -1."""
        found = []
        for region in sorted({self._of[at] for at in (first, last) if at in self._of}):
            touching = {j for root in roots for j in self._touching.get((region, root), ())}
            found.append((region, next(iter(touching)) if len(touching) == 1 else -1))
        return tuple(found)


def _nbytes(root: Value) -> int:
    """Return the bytes of a tensor's elements."""
    return int(root.type.numel * ITEMSIZE[root.type.dtype])
