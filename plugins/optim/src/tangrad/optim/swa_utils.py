"""Averages of a model's parameters over training."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from copy import deepcopy
from itertools import chain
from typing import Any

import tangrad
from tangrad.nn import Module
from tangrad.nn.modules.batchnorm import _BatchNorm
from tangrad.optim.lr_scheduler import LRScheduler
from tangrad.optim.lr_scheduler.scheduler import per_group

__all__ = [
    "SWALR",
    "AveragedModel",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]


def _check_decay(decay: float) -> None:
    if not 0.0 <= decay <= 1.0:
        raise ValueError(
            f"Invalid decay value {decay} provided. Please provide a value in [0,1] range."
        )


def get_ema_avg_fn(decay: float = 0.999) -> Callable[..., Any]:
    """Return the function of an exponential moving average, for one parameter.

    Args:
        decay: weight of the past.

    Raises:
        ValueError: `decay` lies outside [0, 1].
    """
    _check_decay(decay)

    @tangrad.no_grad()
    def ema_update(ema_param: Any, current_param: Any, num_averaged: Any) -> Any:
        return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[..., None]:
    """Return the function of an exponential moving average, for lists of parameters.

    Args:
        decay: weight of the past.

    Raises:
        ValueError: `decay` lies outside [0, 1].
    """
    _check_decay(decay)

    @tangrad.no_grad()
    def ema_update(ema_param_list: Any, current_param_list: Any, _: Any) -> None:
        for average, current in zip(ema_param_list, current_param_list, strict=True):
            if _interpolates(average):
                average.lerp_(current, 1 - decay)
            else:
                average.copy_(average * decay + current * (1 - decay))

    return ema_update


def get_swa_avg_fn() -> Callable[..., Any]:
    """Return the function of the mean of all that was seen, for one parameter."""

    @tangrad.no_grad()
    def swa_update(averaged_param: Any, current_param: Any, num_averaged: Any) -> Any:
        return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


def get_swa_multi_avg_fn() -> Callable[..., None]:
    """Return the function of the mean of all that was seen, for lists of parameters."""

    @tangrad.no_grad()
    def swa_update(averaged_param_list: Any, current_param_list: Any, num_averaged: Any) -> None:
        share = 1 / (int(num_averaged) + 1)
        for average, current in zip(averaged_param_list, current_param_list, strict=True):
            if _interpolates(average):
                average.lerp_(current, share)
            else:
                average.copy_(average + (current - average) / (num_averaged + 1))

    return swa_update


def _interpolates(average: Any) -> bool:
    """Tell whether `lerp_` takes the tensor: an average of integers is rounded as a whole."""
    return bool(average.is_floating_point() or average.is_complex())


def _alike(averages: list[Any], currents: list[Any]) -> Iterable[tuple[list[Any], list[Any]]]:
    """Divide averages, and what belongs to them, by device and dtype."""
    groups: dict[Any, tuple[list[Any], list[Any]]] = {}
    for average, current in zip(averages, currents, strict=True):
        mine, others = groups.setdefault((average.device, average.dtype), ([], []))
        mine.append(average)
        others.append(current)
    return groups.values()


class AveragedModel(Module):
    """A copy of a model whose parameters are averages of those of the model.

    Stochastic weight averaging: Izmailov et al. 2018, arXiv:1803.05407; exponential: Polyak,
    Juditsky 1992.

    Args:
        model: the model.
        device: where the averages are.
        avg_fn: (average, current, number averaged) -> new average, of one parameter.
        multi_avg_fn: the same for lists, in place; called for each device and dtype.
        use_buffers: average the buffers too; otherwise they are copied.

    Raises:
        ValueError: both functions are given.
    """

    n_averaged: Any

    def __init__(
        self,
        model: Any,
        device: Any = None,
        avg_fn: Callable[..., Any] | None = None,
        multi_avg_fn: Callable[..., None] | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise ValueError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        count = tangrad.tensor(0, dtype=tangrad.long, device=device)
        self.register_buffer("n_averaged", count)
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the averaged model."""
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Any) -> None:
        """Take the present parameters of `model` into the averages."""
        own, others = self._averaged(self.module), self._averaged(model)
        averages = [tensor.detach() for tensor in own]
        currents = [
            tensor.detach().to(mine.device) for mine, tensor in zip(own, others, strict=True)
        ]
        if self.n_averaged == 0:
            for average, current in zip(averages, currents, strict=True):
                average.copy_(current)
        elif self.avg_fn is not None:
            for average, current in zip(averages, currents, strict=True):
                average.copy_(self.avg_fn(average, current, self.n_averaged.to(average.device)))
        else:
            multi_avg_fn = self.multi_avg_fn or get_swa_multi_avg_fn()
            for mine, theirs in _alike(averages, currents):
                multi_avg_fn(mine, theirs, self.n_averaged.to(mine[0].device))
        if not self.use_buffers:
            for mine, other in zip(self.module.buffers(), model.buffers(), strict=True):
                mine.detach().copy_(other.detach().to(mine.device))
        self.n_averaged += 1

    def _averaged(self, module: Any) -> list[Any]:
        if self.use_buffers:
            return list(chain(module.parameters(), module.buffers()))
        return list(module.parameters())


@tangrad.no_grad()
def update_bn(loader: Iterable[Any], model: Any, device: Any = None) -> None:
    """Compute the running statistics of all batch normalizations anew, in one pass over data.

    Args:
        loader: batches: tensors, or lists or tuples that begin with the tensor.
        model: the model; left in the mode, training or not, in which it was.
        device: where the batches are moved to.
    """
    momenta = {}
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.reset_running_stats()
            momenta[module] = module.momentum
    if not momenta:
        return
    was_training = model.training
    model.train()
    for module in momenta:
        module.momentum = None
    for batch in loader:
        data = batch[0] if isinstance(batch, (list, tuple)) else batch
        model(data if device is None else data.to(device))
    for module, momentum in momenta.items():
        module.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """Anneal the rate to a constant one.

    Args:
        optimizer: the optimizer.
        swa_lr: the constant rate, or a list of one for each group.
        anneal_epochs: number of epochs of annealing.
        anneal_strategy: "cos" or "linear".
        last_epoch: the epoch reached before; -1 to begin.

    Raises:
        ValueError: if an argument is not legal.
    """

    def __init__(
        self,
        optimizer: Any,
        swa_lr: Any,
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        rates = per_group(optimizer, "swa_lr", swa_lr)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"anneal_strategy must by one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self._anneal_strategy = anneal_strategy
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _share(self, progress: float) -> float:
        return (
            (1 - math.cos(math.pi * progress)) / 2 if self._anneal_strategy == "cos" else progress
        )

    def get_lr(self) -> list[Any]:
        """Return the rate of each group for the present step."""
        self._check_within_step()
        step, epochs = self._step_count - 1, max(1, self.anneal_epochs)
        if self.anneal_epochs == 0:
            step = max(1, step)
        before = self._share(max(0.0, min(1.0, (step - 1) / epochs)))
        share = self._share(max(0.0, min(1.0, step / epochs)))
        rates = []
        for group in self.optimizer.param_groups:
            target, lr = group["swa_lr"], group["lr"]
            # The rate before the annealing follows from where the last step took it.
            begun = target if before == 1 else (lr - before * target) / (1 - before)
            rates.append(target * share + begun * (1 - share))
        return rates
