"""Integers of a graph that grow with the rows of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["GrowingInt", "growing_in", "sized"]


class GrowingInt(int):
    """An integer of a graph that is larger by `by` with every row of the batch."""

    by: int

    @classmethod
    def of(cls, value: int, by: int) -> GrowingInt:
        """Return such an integer."""
        made = cls(value)
        made.by = by
        return made


def sized(item: Any, more: int) -> Any:
    """Return nested arguments as they are for some rows more."""
    if isinstance(item, GrowingInt):
        return int(item) + item.by * more
    if isinstance(item, (tuple, list)):
        return type(item)(sized(member, more) for member in item)
    return item


def growing_in(
    item: Any, path: tuple[int, ...] = ()
) -> Iterator[tuple[tuple[int, ...], GrowingInt]]:
    """Yield the places and growing integers of nested tuples and lists."""
    if isinstance(item, GrowingInt):
        yield path, item
    elif isinstance(item, (tuple, list)):
        for k, member in enumerate(item):
            yield from growing_in(member, (*path, k))
