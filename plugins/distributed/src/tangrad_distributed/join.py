"""Ranks with different numbers of batches: those that have no more shadow the others' steps."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad_distributed.reduce_op import ReduceOp

_NO_MORE, _LOCAL, _SYNCED = range(3)


class Join:
    """Let modules be trained with different numbers of batches on each rank.

    Args:
        joinables: modules with data parallelism, of one group.
        enable: do nothing if False.
        throw_on_early_termination: raise on all ranks as soon as one has no more.
        divide_by_initial_world_size: divide sums of gradients by the number of all ranks.

    Raises:
        ValueError: there is no module, or their groups differ.
    """

    def __init__(
        self,
        joinables: list[Any],
        enable: bool = True,
        throw_on_early_termination: bool = False,
        divide_by_initial_world_size: bool = True,
        **_: Any,
    ) -> None:
        if not joinables:
            raise ValueError("The join context manager requires at least one joinable")
        self._joinables, self._enable = list(joinables), enable
        self._throws = throw_on_early_termination
        self._divide_by_all = divide_by_initial_world_size
        self._group = joinables[0].process_group
        if any(one.process_group is not self._group for one in self._joinables):
            raise ValueError("Using join context manager with multiple process groups")
        self._at_work: list[int] = []

    def _tell(self, state: int) -> list[int]:
        """Tell all ranks what this one does next, and return what each does."""
        states = tangrad.zeros(self._group.size(), dtype=tangrad.int64)
        states[self._group.rank()] = state
        self._group.all_reduce([states], ReduceOp(ReduceOp.MAX))
        found = states.tolist()
        if self._throws and _NO_MORE in found:
            raise RuntimeError(
                f"Detected at least one rank that exhausted inputs: {found.index(_NO_MORE)}. "
                "Throwing across all ranks."
            )
        return found

    def before_forward(self, joinable: Any) -> int:
        """Tell that this rank has a batch; return the first rank that has one."""
        if joinable is not self._joinables[0]:
            return self._at_work[0]
        states = self._tell(_SYNCED if joinable.require_backward_grad_sync else _LOCAL)
        self._at_work = [rank for rank, state in enumerate(states) if state != _NO_MORE]
        return self._at_work[0]

    def scale(self, averaged: Any) -> None:
        """Divide by the number of ranks that work, where that was asked for."""
        if not self._divide_by_all:
            averaged.mul_(self._group.size() / len(self._at_work))

    def __enter__(self) -> Join:
        if self._enable:
            for joinable in self._joinables:
                joinable._join = self
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if not self._enable:
            return
        try:
            if kind is None:
                self._shadow()
        finally:
            for joinable in self._joinables:
                joinable._join = None

    def _shadow(self) -> None:
        """Take part in the others' steps until nobody has a batch."""
        while True:
            states = self._tell(_NO_MORE)
            at_work = [rank for rank, state in enumerate(states) if state != _NO_MORE]
            if not at_work:
                break
            self._at_work = at_work
            if _SYNCED in states:
                for joinable in self._joinables:
                    joinable.shadow_step(at_work[0])
        # Who worked last is known to all: everyone was told of the last step.
        if self._at_work:
            for joinable in self._joinables:
                joinable.take_over(self._at_work[0])
