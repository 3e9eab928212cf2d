"""Steps that all ranks do and one of them combines; what fails on one is raised on all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tangrad_distributed.checkpoint.api import CheckpointException, wrapped
from tangrad_distributed.communication.objects import (
    all_gather_object,
    broadcast_object_list,
    gather_object,
)


class Exchange:
    """Do the steps of saving and loading among the ranks of a group.

    Args:
        group: None where this process is alone.
        coordinator: the rank that combines.
    """

    def __init__(self, group: Any, coordinator: int = 0) -> None:
        self.group, self.coordinator = group, coordinator
        self.rank = 0 if group is None else group.rank()
        self.size = 1 if group is None else group.size()
        self.is_coordinator = self.rank == coordinator

    def each_then_one(
        self,
        step: str,
        each: Callable[[], Any],
        one: Callable[[list[Any]], list[Any]],
    ) -> Any:
        """Return this rank's place of what `one` makes of what `each` gives on all ranks.

        Raises:
            CheckpointException: either failed somewhere.
        """
        gathered = self._gather(_attempt(each))
        return self._taken(step, gathered, lambda values: one(values), places=True)

    def each_then_all(
        self, step: str, each: Callable[[], Any], one: Callable[[list[Any]], Any]
    ) -> Any:
        """Return on all ranks what `one` makes of what `each` gives on all ranks.

        Raises:
            CheckpointException: either failed somewhere.
        """
        gathered = self._gather(_attempt(each))
        return self._taken(step, gathered, one, places=False)

    def everywhere(self, step: str, each: Callable[[], Any]) -> list[Any]:
        """Return what `each` gives on all ranks.

        Raises:
            CheckpointException: it failed somewhere.
        """
        outcome = _attempt(each)
        every: list[Any] = [outcome] * self.size
        if self.group is not None:
            all_gather_object(every, outcome, self.group)
        _raise_failures(step, every)
        return [value for value, _ in every]

    def _gather(self, outcome: Any) -> list[Any] | None:
        if self.group is None:
            return [outcome]
        gathered = [None] * self.size if self.is_coordinator else None
        gather_object(outcome, gathered, group=self.group, group_dst=self.coordinator)
        return gathered

    def _taken(
        self,
        step: str,
        gathered: list[Any] | None,
        one: Callable[[list[Any]], Any],
        places: bool,
    ) -> Any:
        """Combine on the coordinator, and bring the result to all."""
        held: list[Any] = [None]
        if gathered is not None:
            failures = {rank: error for rank, (_, error) in enumerate(gathered) if error}
            value, error = (None, None)
            if not failures:
                value, error = _attempt(lambda: one([value for value, _ in gathered]))
                failures = {self.rank: error} if error else {}
            held = [(value, failures)]
        if self.group is not None:
            broadcast_object_list(held, group=self.group, group_src=self.coordinator)
        value, failures = held[0]
        if failures:
            raise CheckpointException(step, failures)
        return value[self.rank] if places else value


def _attempt(work: Callable[[], Any]) -> tuple[Any, Any]:
    """Return (what `work` returns, None), or (None, what it raised)."""
    try:
        return work(), None
    except Exception as error:
        return None, wrapped(error)


def _raise_failures(step: str, outcomes: list[Any]) -> None:
    failures = {rank: error for rank, (_, error) in enumerate(outcomes) if error}
    if failures:
        raise CheckpointException(step, failures)
