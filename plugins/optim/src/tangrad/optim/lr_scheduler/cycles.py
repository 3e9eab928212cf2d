"""Schedules that go up and down."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tangrad.optim.lr_scheduler.scheduler import (
    LRScheduler,
    per_group,
    set_rate,
)
from tangrad.plugin import own_copy

__all__ = ["CosineAnnealingWarmRestarts", "CyclicLR", "OneCycleLR"]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Lower the rate along half a cosine, again and again (Loshchilov, Hutter 2017).

    arXiv:1608.03983.

    Args:
        optimizer: the optimizer.
        T_0: number of epochs until the first restart.
        T_mult: factor of that number after each restart.
        eta_min: lowest rate.
        last_epoch: the epoch reached before; -1 to begin.

    Raises:
        ValueError: an argument is not legal.
    """

    def __init__(
        self,
        optimizer: Any,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, (float, int)):
            raise ValueError(
                f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}"
            )
        self.T_0 = T_0
        self.T_i = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """Return the rate of each group for `T_cur` epochs since the restart."""
        self._check_within_step()
        share = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * share for base in self.base_lrs]

    def step(self, epoch: Any = None) -> None:
        """Set the rates of the next epoch.

        Args:
            epoch: the epoch to go to; a fraction is a place within an epoch.

        Raises:
            ValueError: `epoch` is negative.
        """
        self._go_to(epoch)

    def _go_to(self, epoch: Any) -> None:
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur -= self.T_i
                self.T_i *= self.T_mult
        else:
            self._place(epoch)
        self.last_epoch = math.floor(epoch)
        self._get_lr_called_within_step = True
        try:
            self._set(self.get_lr())
        finally:
            self._get_lr_called_within_step = False

    def _place(self, epoch: Any) -> None:
        """Find the restart before an epoch."""
        if epoch < 0:
            raise ValueError(f"Expected non-negative epoch, but got {epoch}")
        if epoch < self.T_0:
            self.T_i, self.T_cur = self.T_0, epoch
        elif self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        else:
            restarts = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            passed = self.T_0 * (self.T_mult**restarts - 1) / (self.T_mult - 1)
            self.T_cur = epoch - passed
            self.T_i = self.T_0 * self.T_mult**restarts


class _WithMomentum(LRScheduler):
    """One that changes the momentum against the rate."""

    cycle_momentum: bool
    use_beta1: bool

    def _begin_momentum(self, optimizer: Any, lowest: Any, highest: Any, fresh: bool) -> None:
        """Check that there is a momentum, and set it to the highest.

        Raises:
            ValueError: the optimizer has no momentum.
        """
        if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
            raise ValueError(
                "optimizer must support momentum or beta1 with `cycle_momentum` option enabled"
            )
        self.use_beta1 = "betas" in optimizer.defaults
        if fresh:
            for group, low, high in zip(optimizer.param_groups, lowest, highest, strict=True):
                self._set_momentum(group, high)
                group["max_momentum"], group["base_momentum"] = high, low

    def _set_momentum(self, group: dict[str, Any], momentum: float) -> None:
        if self.use_beta1:
            group["betas"] = (momentum, *group["betas"][1:])
        else:
            group["momentum"] = momentum


class CyclicLR(_WithMomentum):
    """Raise and lower the rate between two bounds, batch by batch (Smith 2015, arXiv:1506.01186).

    Args:
        optimizer: the optimizer.
        base_lr: lower bound, or a list of one for each group.
        max_lr: upper bound, or a list of one for each group.
        step_size_up: number of steps upwards.
        step_size_down: number of steps downwards; as many by default.
        mode: "triangular"; "triangular2": half the height after each cycle; "exp_range":
            `gamma**iterations` of the height.
        gamma: see `mode`.
        scale_fn: share of the height, in place of `mode`.
        scale_mode: what `scale_fn` is called with: "cycle" or "iterations".
        cycle_momentum: change the momentum against the rate.
        base_momentum: lowest momentum.
        max_momentum: highest momentum.
        last_epoch: the number of steps made before; -1 to begin.

    Raises:
        ValueError: an argument is not legal, or the optimizer has no momentum to change.
    """

    def __init__(
        self,
        optimizer: Any,
        base_lr: Any,
        max_lr: Any,
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: Any = 0.8,
        max_momentum: Any = 0.9,
        last_epoch: int = -1,
    ) -> None:
        base_lrs = per_group(optimizer, "base_lr", base_lr)
        if last_epoch == -1:
            for group, rate in zip(optimizer.param_groups, base_lrs, strict=True):
                set_rate(group, rate)
        self.max_lrs = per_group(optimizer, "max_lr", max_lr)
        self.total_size = float(step_size_up) + float(
            step_size_up if step_size_down is None else step_size_down
        )
        self.step_ratio = step_size_up / self.total_size
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        self.mode = mode
        self.gamma = gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode = scale_mode
        if scale_fn is None:
            self.scale_mode = "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.base_momentums = per_group(optimizer, "base_momentum", base_momentum)
            self.max_momentums = per_group(optimizer, "max_momentum", max_momentum)
            self._begin_momentum(
                optimizer, self.base_momentums, self.max_momentums, last_epoch == -1
            )
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def scale_fn(self, x: float) -> float:
        """Return the share of the height for a number of cycles or iterations."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "triangular":
            return 1.0
        return 1 / 2.0 ** (x - 1) if self.mode == "triangular2" else self.gamma**x

    def state_dict(self) -> dict[str, Any]:
        """Return everything but the optimizer; of an own scale, what an object holds."""
        state = super().state_dict()
        scale = state.pop("_scale_fn_custom")
        is_object = scale is not None and not hasattr(scale, "__code__")
        state["_scale_fn_custom"] = scale.__dict__.copy() if is_object else None
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take what `state_dict` returned."""
        rest = dict(state_dict)
        held = rest.pop("_scale_fn_custom", None)
        super().load_state_dict(rest)
        if held is not None and self._scale_fn_custom is not None:
            self._scale_fn_custom.__dict__.update(own_copy(held))

    def get_lr(self) -> list[Any]:
        """Return the rate of each group for `last_epoch`, and set its momentum."""
        self._check_within_step()
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        place = 1.0 + self.last_epoch / self.total_size - cycle
        if place <= self.step_ratio:
            height = place / self.step_ratio
        else:
            height = (place - 1) / (self.step_ratio - 1)
        height *= self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            momenta = zip(self.base_momentums, self.max_momentums, strict=True)
            for group, (low, high) in zip(self.optimizer.param_groups, momenta, strict=True):
                self._set_momentum(group, high - (high - low) * height)
        bounds = zip(self.base_lrs, self.max_lrs, strict=True)
        return [low + (high - low) * height for low, high in bounds]


class OneCycleLR(_WithMomentum):
    """Raise the rate once, and lower it far below where it began, batch by batch.

    Smith, Topin 2017, arXiv:1708.07120.

    Args:
        optimizer: the optimizer.
        max_lr: highest rate, or a list of one for each group.
        total_steps: number of steps; otherwise `epochs * steps_per_epoch`.
        epochs: number of epochs.
        steps_per_epoch: number of steps in each.
        pct_start: share of the steps in which the rate rises.
        anneal_strategy: "cos" or "linear".
        cycle_momentum: change the momentum against the rate.
        base_momentum: lowest momentum, or a list.
        max_momentum: highest momentum, or a list.
        div_factor: the highest rate over the first.
        final_div_factor: the first rate over the last.
        three_phase: go down as steeply as up, then lower in a third phase.
        last_epoch: the number of steps made before; -1 to begin.

    Raises:
        ValueError: an argument is not legal, or the optimizer has no momentum to change.
    """

    def __init__(
        self,
        optimizer: Any,
        max_lr: Any,
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: Any = 0.85,
        max_momentum: Any = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        if total_steps is not None:
            _check_count("total_steps", total_steps)
            self.total_steps = total_steps
        elif epochs is None or steps_per_epoch is None:
            raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
        else:
            _check_count("epochs", epochs)
            _check_count("steps_per_epoch", steps_per_epoch)
            self.total_steps = epochs * steps_per_epoch
        if pct_start < 0 or pct_start > 1 or not isinstance(pct_start, float):
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        self._anneal_func_type = anneal_strategy
        self._schedule_phases = _phases(self.total_steps, pct_start, three_phase)
        if last_epoch == -1:
            rates = per_group(optimizer, "max_lr", max_lr)
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["initial_lr"] = rate / div_factor
                group["max_lr"] = rate
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            lowest = per_group(optimizer, "base_momentum", base_momentum)
            highest = per_group(optimizer, "max_momentum", max_momentum)
            self._begin_momentum(optimizer, lowest, highest, last_epoch == -1)
        super().__init__(optimizer, last_epoch)

    def _anneal(self, bounds: tuple[float, float], progress: float) -> float:
        begin, end = bounds
        if self._anneal_func_type == "linear":
            return begin + (end - begin) * progress
        return end + (begin - end) / 2.0 * (math.cos(math.pi * progress) + 1)

    def get_lr(self) -> list[Any]:
        """Return the rate of each group for `last_epoch`, and set its momentum.

        Raises:
            ValueError: there were more than `total_steps` steps.
        """
        self._check_within_step()
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(
                f"Tried to step {step} times. The total number of steps is {self.total_steps}"
            )
        start = 0.0
        phase = self._schedule_phases[0]
        for phase in self._schedule_phases:
            if step <= phase["end_step"] or phase is self._schedule_phases[-1]:
                break
            start = phase["end_step"]
        progress = (step - start) / (phase["end_step"] - start)
        rates = []
        for group in self.optimizer.param_groups:
            bounds = group[phase["start_lr"]], group[phase["end_lr"]]
            rates.append(self._anneal(bounds, progress))
            if self.cycle_momentum:
                momenta = group[phase["start_momentum"]], group[phase["end_momentum"]]
                self._set_momentum(group, self._anneal(momenta, progress))
        return rates


def _check_count(name: str, value: Any) -> None:
    if not isinstance(value, int) or value <= 0:
        raise ValueError(f"Expected positive integer {name}, but got {value}")


def _phases(steps: int, share: float, three: bool) -> list[dict[str, Any]]:
    """Return until which step the rate and the momentum go from where to where.

    They are a part of the state, so they are what PyTorch's states hold.
    """
    first = _phase(share * steps - 1, "initial_lr", "max_lr", "max_momentum", "base_momentum")
    if not three:
        last = _phase(steps - 1, "max_lr", "min_lr", "base_momentum", "max_momentum")
        return [first, last]
    return [
        first,
        _phase(2 * share * steps - 2, "max_lr", "initial_lr", "base_momentum", "max_momentum"),
        _phase(steps - 1, "initial_lr", "min_lr", "max_momentum", "max_momentum"),
    ]


def _phase(end: float, *ways: str) -> dict[str, Any]:
    names = ("start_lr", "end_lr", "start_momentum", "end_momentum")
    return {"end_step": end, **dict(zip(names, ways, strict=True))}
