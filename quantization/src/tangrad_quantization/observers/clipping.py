"""The part of a histogram whose quantization has the least squared error."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_STEP = 1e-5  # the part of the elements that one step of the search may clip


def least_error(counts: Any, width: float, levels: int) -> tuple[int, int]:
    """Return the first and last bin of the range whose squared error is least.

    Args:
        counts: elements per bin, float32.
        width: of a bin.
        levels: how many values a range is divided into.
    """
    cumulated = np.cumsum(counts, dtype=np.float64).astype(np.float32)
    total = float(counts.sum(dtype=np.float64))
    below, above = 0.0, 1.0
    first, last = 0, len(counts) - 1
    least = math.inf
    while below < above:
        next_below, next_above = below + _STEP, above - _STEP
        left = _first_at_least(cumulated, next_below * total, first, last)
        right = _last_at_most(cumulated, next_above * total, first, last)
        next_first, next_last = first, last
        if left - first > last - right:
            next_first, below = left, next_below
        else:
            next_last, above = right, next_above
        if (next_first, next_last) == (first, last):
            continue
        error = squared_error(counts, width, next_first, next_last, levels)
        if error > least:
            break
        least, first, last = error, next_first, next_last
    return first, last


def _first_at_least(cumulated: Any, bound: float, first: int, last: int) -> int:
    return min(max(first, int(np.searchsorted(cumulated, np.float32(bound), "left"))), last)


def _last_at_most(cumulated: Any, bound: float, first: int, last: int) -> int:
    place = int(np.searchsorted(cumulated, np.float32(bound), "right")) - 1
    return max(min(last, place), first)


def squared_error(counts: Any, width: float, first: int, last: int, levels: int) -> float:
    """Return the squared error of quantizing the range from bin `first` to bin `last`.

    Elements are taken as spread evenly over their bin. Computed in float32, as PyTorch does: the
    search compares errors of ranges that differ by one bin.
    """
    step = width * (last - first + 1) / levels
    if step == 0.0:
        return 0.0
    single = np.float32
    begin = (np.arange(len(counts)) - first).astype(single) * single(width)
    end = begin + single(width)
    from_level = np.clip(np.floor_divide(begin, single(step)), 0, levels - 1).astype(single)
    to_level = np.clip(np.floor_divide(end, single(step)), 0, levels - 1).astype(single)
    density = counts / single(width)
    half = single(step / 2)
    error = _moment(begin - (from_level + single(0.5)) * single(step), half, density)
    error = error + (to_level - from_level - single(1)) * _moment(-half, half, density)
    centre = to_level * single(step) + half
    return float((error + _moment(-half, end - centre, density)).sum(dtype=np.float32))


def _moment(begin: Any, end: Any, density: Any) -> Any:
    """Return the integral of the squared distance from `begin` to `end`, times the density."""
    return density * ((end * end * end - begin * begin * begin) / np.float32(3))
