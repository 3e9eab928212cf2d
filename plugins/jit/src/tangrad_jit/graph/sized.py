"""Numbers of a graph that are others where it runs at other sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["SizedFloat", "SizedInt", "is_sized", "resized", "sized"]


class SizedInt(int):
    """An integer that depends on sizes; `key` is its place in the numbers of other sizes."""

    key: int


class SizedFloat(float):
    """A float that depends on sizes, as `SizedInt`."""

    key: int


def sized(number: Any, key: int) -> Any:
    """Return a number as one that depends on sizes."""
    made = SizedFloat(number) if isinstance(number, float) else SizedInt(number)
    made.key = key
    return made


def is_sized(item: Any) -> bool:
    """Return whether there is one in nested tuples and lists."""
    if isinstance(item, (tuple, list)):
        return any(map(is_sized, item))
    return isinstance(item, (SizedInt, SizedFloat))


def resized(item: Any, numbers: Sequence[Any], keep: bool = False) -> Any:
    """Return nested arguments with the numbers of other sizes.

    Args:
        item: the arguments. numbers: by key.
        keep: they stay such numbers; otherwise they are plain ones.
    """
    if isinstance(item, (SizedInt, SizedFloat)):
        number = numbers[item.key]
        return sized(number, item.key) if keep else number
    if isinstance(item, (tuple, list)):
        return type(item)(resized(member, numbers, keep) for member in item)
    return item
