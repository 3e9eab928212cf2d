"""Schedules made of schedules."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any

from tangrad.optim.lr_scheduler.plateau import ReduceLROnPlateau
from tangrad.optim.lr_scheduler.scheduler import LRScheduler, set_rate

__all__ = ["ChainedScheduler", "SequentialLR"]


class _Combined(LRScheduler):
    """One that keeps others, and their state."""

    _schedulers: list[Any]

    def _begin(self) -> None:
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """Return everything but the optimizer, with the state of each schedule."""
        left_out = ("optimizer", "_schedulers")
        state = {key: value for key, value in self.__dict__.items() if key not in left_out}
        state["_schedulers"] = [scheduler.state_dict() for scheduler in self._schedulers]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take what `state_dict` returned."""
        own = {key: value for key, value in state_dict.items() if key != "_schedulers"}
        super().load_state_dict(own)
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(state)


def _check(name: str, optimizer: Any, schedulers: Iterable[Any]) -> None:
    for position, scheduler in enumerate(schedulers):
        if not hasattr(scheduler, "optimizer"):
            raise TypeError(f"{name} at index {position} should have `optimizer` as its attribute.")
        if isinstance(scheduler, ReduceLROnPlateau):
            raise ValueError(
                f"{name} does not support `ReduceLROnPlateau` scheduler as it requires additional "
                f"kwargs to be specified when calling `step`, but got one at index {position} in "
                "the given schedulers sequence."
            )
        if scheduler.optimizer is not optimizer:
            raise ValueError(
                f"{name} expects all schedulers to belong to the same optimizer, but got "
                f"scheduler {type(scheduler).__name__} at index {position} has another one"
            )


def _take_back(scheduler: Any) -> None:
    """Take back the first step of a schedule, or of each that it is made of."""
    if isinstance(scheduler, _Combined):
        for part in scheduler._schedulers:
            _take_back(part)
    else:
        scheduler.last_epoch -= 1


def _begin(scheduler: Any) -> None:
    """Make the first step of a schedule that has made none."""
    if isinstance(scheduler, _Combined):
        scheduler._begin()
    else:
        scheduler._initial_step()


class SequentialLR(_Combined):
    """Follow one schedule after the other.

    Args:
        optimizer: the optimizer.
        schedulers: the schedules.
        milestones: the epoch at which each but the first begins.
        last_epoch: the epoch reached before; -1 to begin.

    Raises:
        ValueError: there are no schedules, they belong to different optimizers, or their number
            does not fit that of the milestones.
    """

    def __init__(
        self,
        optimizer: Any,
        schedulers: list[Any],
        milestones: list[int],
        last_epoch: int = -1,
    ) -> None:
        if len(schedulers) < 1:
            raise ValueError(
                "SequentialLR expects at least one scheduler to be chained, but got no scheduler."
            )
        _check("SequentialLR", optimizer, schedulers)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                "Sequential Schedulers expects number of schedulers provided to be one more than "
                f"the number of milestone points, but got number of schedulers {len(schedulers)} "
                f"and the number of milestones to be equal to {len(milestones)}"
            )
        self._schedulers = schedulers
        self._milestones = milestones
        self.last_epoch = last_epoch + 1
        self.optimizer = optimizer
        # Each has made its first step when it was built: take them back, and make the first one's.
        for scheduler in schedulers:
            _take_back(scheduler)
        self._begin()

    def _begin(self) -> None:
        """Set the rates of the first epoch, by the schedule that is followed then."""
        for group in self.optimizer.param_groups:
            set_rate(group, group["initial_lr"])
        first = self._schedulers[bisect_right(self._milestones, 0)]
        _begin(first)
        self._last_lr = first.get_last_lr()

    def step(self) -> None:  # type: ignore[override]
        """Set the rates of the next epoch."""
        self.last_epoch += 1
        chosen = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[chosen]
        if chosen > 0 and self._milestones[chosen - 1] == self.last_epoch:
            if isinstance(scheduler, _Combined):
                _begin(scheduler)
            else:
                scheduler._go_to(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


class ChainedScheduler(_Combined):
    """Step several schedules at once; their factors multiply.

    Args:
        schedulers: the schedules.
        optimizer: their optimizer; that of the first by default.

    Raises:
        ValueError: there are no schedules, or they belong to different optimizers.
    """

    def __init__(self, schedulers: Sequence[Any], optimizer: Any = None) -> None:
        if len(schedulers) < 1:
            raise ValueError(
                "ChainedScheduler expects at least one scheduler to be chained, but got no "
                "scheduler."
            )
        self.optimizer = optimizer or schedulers[0].optimizer
        _check("ChainedScheduler", self.optimizer, schedulers)
        self._schedulers = list(schedulers)
        self._last_lr = self._rates()

    def _begin(self) -> None:
        """Set the rates of the first epoch."""
        for group in self.optimizer.param_groups:
            set_rate(group, group["initial_lr"])
        for scheduler in self._schedulers:
            _begin(scheduler)
        self._last_lr = self._rates()

    def step(self) -> None:  # type: ignore[override]
        """Step each schedule."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = self._rates()
