"""The base class of all schedules."""

from __future__ import annotations

import warnings
from typing import Any

import tangrad
from tangrad.optim.optimizer import Optimizer
from tangrad.plugin import own_copy

__all__ = ["EPOCH_DEPRECATION_WARNING", "LRScheduler"]

EPOCH_DEPRECATION_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where "
    "possible. Please use `scheduler.step()` to step the scheduler."
)
_HOW_TO = "https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate"


class LRScheduler:
    """Set the learning rate of each group of an optimizer, epoch by epoch.

    A subclass defines `get_lr`: the rates for `last_epoch`, made from those in the groups, so
    that several schedules of one optimizer multiply.

    Args:
        optimizer: the optimizer.
        last_epoch: the epoch reached before; -1 to begin.

    Raises:
        TypeError: if `optimizer` is no optimizer.
        KeyError: if `last_epoch` is not -1 and a group lacks ``"initial_lr"``.

    Attributes:
        base_lrs: the initial rate of each group.
        last_epoch: the number of steps since the first.
    """

    def __init__(self, optimizer: Any, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer = optimizer
        for position, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", _copied(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{position}] when "
                    "resuming an optimizer"
                )
        self.base_lrs: list[Any] = [_copied(g["initial_lr"]) for g in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._get_lr_called_within_step = False
        self._last_lr: list[Any] = []
        self._initial_step()

    def _initial_step(self) -> None:
        """Set the rates of the first epoch."""
        self._step_count, self._is_initial = 0, True
        self.optimizer._opt_called = False
        self.optimizer._step_when_scheduled = vars(self.optimizer).get("step")
        self.step()
        self._is_initial = False

    def state_dict(self) -> dict[str, Any]:
        """Return everything but the optimizer."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take what `state_dict` returned."""
        self.__dict__.update(own_copy(state_dict))

    def get_last_lr(self) -> list[Any]:
        """Return the rates set last."""
        return self._last_lr

    def get_lr(self) -> list[Any]:
        """Return the rate of each group for `last_epoch`.

        Raises:
            NotImplementedError: unless overridden.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define get_lr")

    def _check_within_step(self) -> None:
        if not self._get_lr_called_within_step:
            warnings.warn(
                "To get the last learning rate computed by the scheduler, please use "
                "`get_last_lr()`.",
                stacklevel=3,
            )

    def step(self, epoch: int | None = None) -> None:
        """Set the rates of the next epoch.

        Args:
            epoch: deprecated: the epoch to go to.
        """
        if self._step_count == 1:
            self._check_order()
        self._step_count += 1
        if epoch is not None:
            warnings.warn(EPOCH_DEPRECATION_WARNING, stacklevel=2)
        self._go_to(epoch)

    def _check_order(self) -> None:
        """Warn if the optimizer made no step before this one, or if that cannot be told."""
        override = vars(self.optimizer).get("step")
        if override is not getattr(self.optimizer, "_step_when_scheduled", override):
            warnings.warn(
                "Seems like `optimizer.step()` has been overridden after learning rate scheduler "
                "initialization. Please, make sure to call `optimizer.step()` before "
                f"`lr_scheduler.step()`. See {_HOW_TO}",
                stacklevel=3,
            )
        elif not getattr(self.optimizer, "_opt_called", True):
            warnings.warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`: the first "
                "value of the learning rate schedule will be skipped. Call them in the opposite "
                f"order. See {_HOW_TO}",
                stacklevel=3,
            )

    def _go_to(self, epoch: int | None) -> None:
        """Set the rates of an epoch, or of the next."""
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        self._get_lr_called_within_step = True
        try:
            closed = getattr(self, "_get_closed_form_lr", None)
            rates = closed() if epoch is not None and closed else self.get_lr()
        finally:
            self._get_lr_called_within_step = False
        self._set(rates)

    def _set(self, rates: list[Any]) -> None:
        """Put rates into the groups."""
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            set_rate(group, rate)
        self._last_lr = self._rates()

    def _rates(self) -> list[Any]:
        return [_copied(group["lr"]) for group in self.optimizer.param_groups]

    def _scaled(self, factor: float) -> list[Any]:
        return [group["lr"] * factor for group in self.optimizer.param_groups]


def set_rate(group: dict[str, Any], rate: Any) -> None:
    """Put a rate into a group, into the tensor there if it is one."""
    if isinstance(group["lr"], tangrad.Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


def per_group(optimizer: Any, name: str, value: Any) -> list[Any]:
    """Return a list with a value for each group, from one or from a list.

    Tensors are copied: what happens to the caller's later must not change the schedule.

    Raises:
        ValueError: the list has another length than the groups.
    """
    groups = optimizer.param_groups
    if not isinstance(value, (list, tuple)):
        return [_copied(value) for _ in groups]
    if len(value) != len(groups):
        raise ValueError(
            f"{name} must have the same length as optimizer.param_groups. {name} has "
            f"{len(value)}, param_groups has {len(groups)}."
        )
    return [_copied(each) for each in value]


def _copied(rate: Any) -> Any:
    return rate.clone() if isinstance(rate, tangrad.Tensor) else rate
