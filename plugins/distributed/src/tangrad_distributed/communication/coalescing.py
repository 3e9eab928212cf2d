"""Wait at once for the messages and collectives that were begun in one block."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_OPEN = threading.local()


class _CoalescingManager:
    """Hold the works of one block."""

    def __init__(self) -> None:
        self.works: list[Any] = []

    def append(self, work: Any = None) -> None:
        """Take in a work that was begun elsewhere."""
        if work is not None:
            self.works.append(work)

    def wait(self) -> None:
        """Wait for all works of the block."""
        for work in self.works:
            work.wait()


@contextmanager
def _coalescing_manager(
    group: Any = None, device: Any = None, async_ops: bool = False
) -> Iterator[_CoalescingManager]:
    """Wait for the messages that are begun within, at its end or when the program asks for it.

    Args:
        group: changes nothing: each collective is of its own group, and is done when it returns.
        device: changes nothing.
        async_ops: leave the waiting to `wait` of what the block is given.
    """
    manager = _CoalescingManager()
    outer = getattr(_OPEN, "manager", None)
    _OPEN.manager = manager
    try:
        yield manager
    finally:
        _OPEN.manager = outer
    if not async_ops:
        manager.wait()


def noted(work: Any) -> Any:
    """Return a work that begins, and note it in the block that is open."""
    manager = getattr(_OPEN, "manager", None)
    if manager is not None:
        manager.append(work)
    return work
