"""The memory in which values of a run lie."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import tangrad

__all__ = ["Arena", "plain_tensors"]


@contextmanager
def plain_tensors() -> Iterator[None]:
    """Make tensors in the body that serve runs in every mode and under every default device.

    Some call has a plan built, or its memory moved, and other calls run it.
    """
    with tangrad.inference_mode(False), tangrad.device("cpu"):
        yield


class Tenant(Protocol):
    """A plan that has values in an arena."""

    arena_bytes: int

    def leave_arena(self) -> None:
        """Let go of the arena's memory."""

    def enter_arena(self) -> None:
        """Have values where the arena is now."""


class Arena:
    """Memory for what lives within a run, shared by plans of which one runs at a time.

    Attributes:
        lock: held by the plan that runs.
        nbytes: how many bytes there are.
        memory: the bytes, as a tensor.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.nbytes = 0
        self.memory: Any = None
        self._plans: weakref.WeakSet[Tenant] = weakref.WeakSet()

    def grow(self, nbytes: int, plan: Tenant) -> None:
        """Have so many bytes, or more, for a plan; others move to where these are."""
        others = [other for other in self._plans if other is not plan]
        self._plans.add(plan)
        if self.memory is None or nbytes > self.nbytes:
            self._move(nbytes, others)

    def fit(self) -> None:
        """Have as few bytes as the plans need."""
        most = max(plan.arena_bytes for plan in self._plans)
        if most < self.nbytes:
            self._move(most, list(self._plans))

    def _move(self, nbytes: int, plans: list[Tenant]) -> None:
        for plan in plans:
            plan.leave_arena()
        self.memory, self.nbytes = None, max(nbytes, 1)
        with plain_tensors():
            self.memory = tangrad.empty(self.nbytes, dtype=tangrad.uint8)
            for plan in plans:
                plan.enter_arena()
