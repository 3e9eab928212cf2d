"""Where the values of a run lie: in the arena, or in the memory of what is made later and leaves.

Rule: a value matters from the first to the last place of the graph that knows of it. Where branches
run side by side, what is made, used and let go within one of them has places of that branch's own,
and everything else matters from the begin of the stretch to its end.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from tangrad_jit.graph.ir import Graph, Value
from tangrad_jit.graph.types import ITEMSIZE
from tangrad_jit.passes import branches
from tangrad_jit.passes.branches import Step, Stretch, find_stretches
from tangrad_jit.passes.in_place_reuse import partners
from tangrad_jit.passes.memory_plan import Life, lodge, place

__all__ = ["Lives", "Placement", "chosen"]

#: An arena of up to so many bytes may grow for branches, a larger one may not.
SMALL_ARENA = 1 << 20


@dataclass(frozen=True)
class Placement:
    """Where values lie.

    Attributes:
        offsets: bytes from the arena's begin.
        lodged: value -> (the one in whose memory it lies, at which byte).
        nbytes: of the arena.
    """

    offsets: dict[Value, int]
    lodged: dict[Value, tuple[Value, int]]
    nbytes: int


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

    def placed(self, stretches: Sequence[Stretch] = ()) -> Placement:
        """Place all values, for a program of which some stretches run in branches."""
        sides = _Sides(stretches, self.steps)
        shared = self._shared(sides)
        first, last = self.first, dict(self.last)
        bound: set[Hashable] = set(self.bound)
        for root in reversed(shared):
            last[shared[root]] = max(last[shared[root]], last[root])
            if root in bound:
                bound.add(shared[root])
        lives: list[Life] = []
        of_branch: dict[tuple[int, int], list[Life]] = {}
        for root in self.movable:
            if root in shared:
                continue
            life = Life(root, _nbytes(root), first[root], last[root])
            branch = sides.only_branch(life)
            if branch is None:
                lives.append(sides.widened(life))
            else:
                of_branch.setdefault(branch, []).append(life)
        inner: dict[Hashable, tuple[Hashable, int]] = {}
        for branch, members in of_branch.items():
            offsets, nbytes = place(members)
            begin, end = sides.bounds(branch)
            lives.append(Life(branch, nbytes, begin, end))
            inner.update((root, (branch, at)) for root, at in offsets.items())
            if any(life.key in bound for life in members):
                bound.add(branch)
        hosts = [
            sides.widened(Life(root, _nbytes(root), first[root], first[root]))
            for root in self.hosts
        ]
        lodged = lodge(hosts, [life for life in lives if life.key not in bound])
        offsets, total = place(life for life in lives if life.key not in lodged)
        return self._told(shared, inner, offsets, lodged, total)

    def _shared(self, sides: _Sides) -> dict[Value, Value]:
        """Return the results that lie where an operand lies: those of loops called directly."""
        ends = {
            root: -1 if sides.is_used_apart(root, end) else end for root, end in self.last.items()
        }
        found = partners(self.graph, self.movable, ends)
        return {root: operand for root, operand in found.items() if root in self.looped}

    def _told(
        self,
        shared: dict[Value, Value],
        inner: dict[Hashable, tuple[Hashable, int]],
        offsets: dict[Hashable, int],
        lodged: dict[Hashable, tuple[Hashable, int]],
        total: int,
    ) -> Placement:
        """Return the place of each value, those within others' places included."""
        told = Placement({}, {}, total)
        for root in self.movable:
            holder = root
            while holder in shared:
                holder = shared[holder]
            key, within = inner.get(holder, (holder, 0))
            if key in lodged:
                host, at = lodged[key]
                told.lodged[root] = host, at + within  # type: ignore[assignment]
            else:
                told.offsets[root] = offsets[key] + within
        return told


def chosen(lives: Lives, threads: int) -> tuple[list[Stretch], Placement]:
    """Return the stretches to run in branches, and the places of values then.

    Branches need memory at the same time: those that need most are left out until the arena is as
    small as without any, or small anyway.
    """
    plain = lives.placed()
    stretches = find_stretches(lives.steps, threads)
    most = max(plain.nbytes, SMALL_ARENA)
    while stretches:
        placement = lives.placed(stretches)
        if placement.nbytes <= most or branches.costs.always:
            return stretches, placement
        alone = [lives.placed([stretch]).nbytes for stretch in stretches]
        kept = [s for s, nbytes in zip(stretches, alone, strict=True) if nbytes <= most]
        if len(kept) == len(stretches):
            kept.pop(alone.index(max(alone)))
        stretches = kept
    return [], plain


class _Sides:
    """Which branches touch which memory."""

    def __init__(self, stretches: Sequence[Stretch], steps: list[Step]) -> None:
        self._stretches = stretches
        self._of: dict[int, int] = {}  # place -> the stretch that it lies in
        self._touching: dict[tuple[int, Value], set[int]] = {}
        if not stretches:
            return
        branch_of: dict[int, int] = {}
        for k, stretch in enumerate(stretches):
            self._of.update(dict.fromkeys(range(stretch.first, stretch.last + 1), k))
            for j, places in enumerate(stretch.branches):
                branch_of.update(dict.fromkeys(places, j))
        for step in steps:
            if step.place in branch_of:
                for root in step.reads | step.writes:
                    key = self._of[step.place], root
                    self._touching.setdefault(key, set()).add(branch_of[step.place])

    def is_used_apart(self, root: Value, end: int) -> bool:
        """Return whether several branches touch a memory in the stretch where it dies."""
        return end in self._of and len(self._touching.get((self._of[end], root), ())) > 1

    def only_branch(self, life: Life) -> tuple[int, int] | None:
        """Return the branch, (stretch, number), in which a value lives and dies, or None."""
        stretch = self._of.get(life.first)
        if stretch is None or self._of.get(life.last) != stretch:
            return None
        touching = self._touching.get((stretch, life.key), set())  # type: ignore[arg-type]
        return (stretch, next(iter(touching))) if len(touching) == 1 else None

    def bounds(self, branch: tuple[int, int]) -> tuple[int, int]:
        """Return the first and last place of a branch's stretch."""
        return self._stretches[branch[0]].first, self._stretches[branch[0]].last

    def widened(self, life: Life) -> Life:
        """Return a life that ends with the stretches in which it begins and ends."""
        first, last = life.first, life.last
        if first in self._of:
            first = self._stretches[self._of[first]].first
        if last in self._of:
            last = self._stretches[self._of[last]].last
        return Life(life.key, life.nbytes, first, last)


def _nbytes(root: Value) -> int:
    """Return the bytes of a tensor's elements."""
    return int(root.type.numel * ITEMSIZE[root.type.dtype])
