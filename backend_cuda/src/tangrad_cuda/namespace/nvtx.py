"""Ranges for NVIDIA's profilers, through NVIDIA's package `nvtx` where it is installed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]


def _nvtx() -> Any:
    try:
        import nvtx
    except ModuleNotFoundError as error:
        raise RuntimeError(
            "tangrad.cuda.nvtx: NVIDIA's package is not installed; run: pip install nvtx"
        ) from error
    return nvtx


def range_push(msg: str) -> Any:
    """Begin a range, inside of those that are open in this thread."""
    return _nvtx().push_range(msg)


def range_pop() -> Any:
    """End the innermost range of this thread."""
    return _nvtx().pop_range()


def range_start(msg: str) -> Any:
    """Begin a range that another thread may end, and return its handle."""
    return _nvtx().start_range(msg)


def range_end(range_id: Any) -> None:
    """End a range by its handle."""
    _nvtx().end_range(range_id)


def mark(msg: str) -> None:
    """Note a point in time."""
    _nvtx().mark(msg)


@contextlib.contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """Have a range for a `with` block; arguments are put into the text by `str.format`."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
