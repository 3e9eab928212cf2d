"""Ranks with different numbers of batches: those that have no more shadow the others' steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import tangrad
from tangrad_distributed.communication.reductions import ReduceOp

NO_MORE, LOCAL, SYNCED = range(3)


class JoinHook:
    """Say what a rank does for a joinable when it has no more batches itself."""

    def main_hook(self) -> None:
        """Take part in the collectives of one step of the others."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """Finish, once no rank has a batch.

        Args:
            is_last_joiner: whether this rank was among those that worked to the last.
        """


class Joinable(ABC):
    """What takes part in `Join`: before its collectives it calls `Join.notify_join_context`."""

    _join: Join | None = None

    def __init__(self) -> None:
        super().__init__()
        self._join = None

    @abstractmethod
    def join_hook(self, **kwargs: Any) -> JoinHook:
        """Return what a rank without batches does; `kwargs` are those given to `Join`."""

    @property
    @abstractmethod
    def join_device(self) -> Any:
        """Return the device of its collectives."""

    @property
    @abstractmethod
    def join_process_group(self) -> Any:
        """Return the group of its collectives."""


class Join:
    """Let joinables be used a different number of times on each rank.

    A rank that leaves the block goes on calling the joinables' hooks until all have left it.

    Args:
        joinables: modules with data parallelism, optimizers with parts, others; of one group. The
            first one tells the others about each step.
        enable: do nothing if False.
        throw_on_early_termination: raise on all ranks as soon as one has no more.
        **kwargs: for the joinables' `join_hook`; for modules `divide_by_initial_world_size`.

    Raises:
        ValueError: there is no joinable, or their groups differ.
    """

    def __init__(
        self,
        joinables: list[Any],
        enable: bool = True,
        throw_on_early_termination: bool = False,
        **kwargs: Any,
    ) -> None:
        if not joinables:
            raise ValueError("The join context manager requires at least one joinable")
        self._joinables, self._enable = list(joinables), enable
        self._throws = throw_on_early_termination
        self._group = joinables[0].join_process_group
        if any(one.join_process_group is not self._group for one in self._joinables):
            raise ValueError("Using join context manager with multiple process groups")
        self._hooks = [one.join_hook(**kwargs) for one in self._joinables]
        self.states: list[int] = []
        # Who took part in the last step, the same list on all ranks.
        self.at_work: list[int] = []

    @staticmethod
    def notify_join_context(joinable: Any) -> None:
        """Tell ranks that have no more that a step begins; nothing outside of `Join`.

        Unlike PyTorch's, which may return a work, it has waited for the others when it returns.
        """
        if joinable._join is not None:
            joinable._join.begin_step(joinable)

    def begin_step(self, joinable: Any, state: int = SYNCED) -> list[int]:
        """Tell that this rank begins a step; return what each rank does in it.

        Only the first joinable tells: the others of its step are told already.
        """
        if joinable is self._joinables[0]:
            self.states = self._tell(state)
            self.at_work = [rank for rank, one in enumerate(self.states) if one != NO_MORE]
        return self.states

    def leads(self, joinable: Any) -> bool:
        """Tell whether it is this joinable that tells the others of each step."""
        return joinable is self._joinables[0]

    def exchange(self, state: int) -> list[int]:
        """Return the state that each rank gives."""
        states = tangrad.zeros(self._group.size(), dtype=tangrad.int64)
        states[self._group.rank()] = state
        self._group.all_reduce([states], ReduceOp(ReduceOp.MAX))
        return states.tolist()

    def _tell(self, state: int) -> list[int]:
        found = self.exchange(state)
        if self._throws and NO_MORE in found:
            raise RuntimeError(
                f"Detected at least one rank that exhausted inputs: {found.index(NO_MORE)}. "
                "Throwing across all ranks."
            )
        return found

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
            states = self._tell(NO_MORE)
            at_work = [rank for rank, state in enumerate(states) if state != NO_MORE]
            if not at_work:
                break
            self.states, self.at_work = states, at_work
            for hook in self._hooks:
                hook.main_hook()
        for hook in self._hooks:
            hook.post_hook(self._group.rank() in self.at_work)
