"""Memory plan: places in one arena for the values that live within a run.

Rule: two values share bytes only if no step lies between the first making of one and the last use
of the other. Values are placed in order of size, largest first, each at the lowest place that is
free for its whole life (best fit by offset; Pisarchyk and Lee, arXiv:2001.03288, call it greedy by
size).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

__all__ = ["ALIGNMENT", "Life", "place"]

ALIGNMENT = 64


@dataclass(frozen=True)
class Life:
    """How many bytes a value has, and the first and last step in which they matter."""

    key: Hashable
    nbytes: int
    first: int
    last: int


def place(lives: Iterable[Life]) -> tuple[dict[Hashable, int], int]:
    """Return the offset of each value, and the bytes of the arena."""
    offsets: dict[Hashable, int] = {}
    placed: list[tuple[int, int, Life]] = []
    total = 0
    for life in sorted(lives, key=lambda one: (-one.nbytes, one.first)):
        size = _aligned(life.nbytes)
        at = 0
        for begin, end, other in placed:
            if other.last < life.first or life.last < other.first or end <= at:
                continue
            if begin >= at + size:
                break
            at = end
        offsets[life.key] = at
        placed.append((at, at + size, life))
        placed.sort(key=lambda one: one[0])
        total = max(total, at + size)
    return offsets, total


def _aligned(nbytes: int) -> int:
    return -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT
