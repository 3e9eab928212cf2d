"""Arguments that may be one number or one for each dimension."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def _ntuple(n: int) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that makes a tuple of `n` values of one, and a tuple of an iterable."""

    def spread(value: Any) -> tuple[Any, ...]:
        return tuple(value) if isinstance(value, Iterable) else (value,) * n

    return spread


_single = _ntuple(1)
_pair = _ntuple(2)
_triple = _ntuple(3)


def _reverse_repeat_tuple(values: tuple[Any, ...], times: int) -> tuple[Any, ...]:
    """Return the values from last to first, each `times` times."""
    return tuple(value for value in reversed(values) for _ in range(times))
