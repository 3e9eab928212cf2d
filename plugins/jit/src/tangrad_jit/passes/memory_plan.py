"""Memory plan: places in one arena for the values that live within a run.

Rule: two values share bytes only if no step lies between the first making of one and the last use
of the other. Values are placed in order of size, largest first, each at the lowest place that is
free for its whole life (best fit by offset; Pisarchyk and Lee, arXiv:2001.03288, call it greedy by
size). Where that leaves gaps in a large arena, other orders are tried: by size times life, by first
use, by last use.

What leaves a graph has memory of its own from the begin of a run. Until it is made, values that are
gone by then lie there: activations in the gradients that backward is still to make.

Where branches run side by side, no place says which of two steps comes first, unless they are of
one branch: values that begin or end in a parallel region share bytes only if one branch alone
touches both there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable

__all__ = [
    "ALIGNMENT",
    "Life",
    "lodge",
    "most_alive",
    "place",
    "place_in_best_order",
    "place_in_order",
]

ALIGNMENT = 64


class Life:
    """How many bytes a value has, and the first and last step in which they matter.

    Attributes:
        key: whose it is.
        nbytes, first, last: the bytes and the steps.
        sides: of each region of branches in which it begins or ends (region, the branch that
            touches it there); -1 where several do.
    """

    __slots__ = ("first", "key", "last", "nbytes", "sides")

    def __init__(
        self,
        key: Hashable,
        nbytes: int,
        first: int,
        last: int,
        sides: tuple[tuple[int, int], ...] = (),
    ) -> None:
        self.key, self.nbytes, self.first, self.last = key, nbytes, first, last
        self.sides = sides

    def ends_before(self, other: Life) -> bool:
        """Return whether another begins when this one is gone for certain."""
        if self.last >= other.first:
            return False
        return not (self.sides and other.sides) or self.is_with(other)

    def is_with(self, other: Life) -> bool:
        """Return whether in each region of both the same branch touches them."""
        for region, side in self.sides:
            for beside, its in other.sides:
                if region == beside and (side != its or side < 0):
                    return False
        return True


# An arena below this is not worth a second look.
_LARGE = 1 << 20
_ORDERS: list[Callable[[Life], tuple[int, int]]] = [
    lambda life: (-life.nbytes, life.first),
    lambda life: (-life.nbytes * (life.last - life.first + 1), life.first),
    lambda life: (life.first, -life.nbytes),
    lambda life: (-life.last, -life.nbytes),
]


def place(lives: Iterable[Life]) -> tuple[dict[Hashable, int], int]:
    """Return the offset of each value, and the bytes of the arena."""
    return place_in_best_order(lives)[:2]


def place_in_best_order(lives: Iterable[Life]) -> tuple[dict[Hashable, int], int, int]:
    """Return offsets, bytes, and in which order that was; `place_in_order` takes it again."""
    lives = list(lives)
    best = (*place_in_order(lives, 0), 0)
    if best[1] < _LARGE:
        return best
    least = most_alive(lives)
    for order in range(1, len(_ORDERS)):
        if best[1] <= least:
            break
        best = min(best, (*place_in_order(lives, order), order), key=lambda one: one[1])
    return best


def lodge(hosts: Iterable[Life], lives: Iterable[Life]) -> dict[Hashable, tuple[Hashable, int]]:
    """Return for values that find room in a host that is made after their last use: it, and where.

    Args:
        hosts: of which the bytes, and the first step and its sides matter. lives: the values.
    """
    rooms = [(host, _Placed()) for host in sorted(hosts, key=lambda host: host.nbytes)]
    found: dict[Hashable, tuple[Hashable, int]] = {}
    for life in sorted(lives, key=lambda life: (-life.nbytes, life.first)):
        for host, placed in rooms:
            if life.nbytes > host.nbytes or not life.ends_before(host):
                continue
            at = placed.lowest(life)
            if at + life.nbytes <= host.nbytes:
                placed.add(at, life)
                found[life.key] = host.key, at
                break
    return found


def most_alive(lives: list[Life]) -> int:
    """Return the most bytes that are alive at once."""
    change: dict[int, int] = {}
    for life in lives:
        size = _aligned(life.nbytes)
        change[life.first] = change.get(life.first, 0) + size
        change[life.last + 1] = change.get(life.last + 1, 0) - size
    alive = most = 0
    for step in sorted(change):
        alive += change[step]
        most = max(most, alive)
    return most


def place_in_order(lives: Iterable[Life], order: int) -> tuple[dict[Hashable, int], int]:
    """Return the offset of each value, placed in one order, and the bytes of the arena."""
    offsets: dict[Hashable, int] = {}
    placed = _Placed()
    total = 0
    for life in sorted(lives, key=_ORDERS[order]):
        at = offsets[life.key] = placed.lowest(life)
        placed.add(at, life)
        total = max(total, at + _aligned(life.nbytes))
    return offsets, total


class _Placed:
    """Values that have their places in one memory."""

    def __init__(self) -> None:
        self._taken: list[tuple[int, int, Life]] = []
        self._begins: list[int] = []

    def lowest(self, life: Life) -> int:
        """Return the lowest place that is free for the whole life of a value."""
        size, at = _aligned(life.nbytes), 0
        first, last, sides = life.first, life.last, life.sides
        for begin, end, other in self._taken:
            if end <= at:
                continue
            if (other.last < first or last < other.first) and not (
                sides and other.sides and not life.is_with(other)
            ):
                continue
            if begin >= at + size:
                break
            at = end
        return at

    def add(self, at: int, life: Life) -> None:
        """Note the place of a value."""
        k = bisect_right(self._begins, at)
        self._begins.insert(k, at)
        self._taken.insert(k, (at, at + _aligned(life.nbytes), life))


def _aligned(nbytes: int) -> int:
    return -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT
