"""Reductions of losses by PyTorch's numbers, and by the older arguments; libraries import them."""

from __future__ import annotations

from tangrad.ops.nn.loss import _reduction

_NUMBERS = {"none": 0, "mean": 1, "sum": 2}


def get_enum(reduction: str) -> int:
    """Return the number of a reduction: 0 for "none", 1 for "mean", 2 for "sum".

    Raises:
        ValueError: it is none of these.
    """
    return _NUMBERS[_reduction(None, None, reduction)]
