"""Local SGD: ranks step by themselves and average their parameters every few steps.

Gradients are averaged in all ranks at first, then within subgroups, or not at all (Lin et al.
2018, arXiv:1808.07217).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

import tangrad
from tangrad_distributed.communication.reductions import ReduceOp
from tangrad_distributed.futures import Future
from tangrad_distributed.training.communication_hooks import averaged, ready
from tangrad_distributed.training.gradient_buckets import GradBucket
from tangrad_distributed.world import default_group, get_rank, new_subgroups


class PostLocalSGDState:
    """Say where gradients are averaged, and until when.

    Args:
        process_group: averages them in the first steps; None for all ranks.
        subgroup: averages them afterwards; None for the ranks of one machine.
        start_localSGD_iter: how many steps average in all ranks.
        post_local_gradient_allreduce: whether the subgroup averages afterwards, or nobody.
    """

    def __init__(
        self,
        process_group: Any,
        subgroup: Any,
        start_localSGD_iter: int,
        post_local_gradient_allreduce: bool = True,
    ) -> None:
        self.process_group, self.subgroup = process_group, subgroup
        self.start_localSGD_iter = start_localSGD_iter
        self.post_local_gradient_allreduce = post_local_gradient_allreduce
        self.iter = 0

    def maybe_increase_iter(self, bucket: GradBucket) -> None:
        """Count a step with its last bucket."""
        self.iter += bucket.is_last()


def post_localSGD_hook(state: PostLocalSGDState, bucket: GradBucket) -> Future[Any]:
    """Average the gradients in all ranks in the first steps, then in the subgroup."""
    group = default_group() if state.process_group is None else state.process_group
    local = state.iter >= state.start_localSGD_iter
    state.maybe_increase_iter(bucket)
    if not local:
        return averaged(group, bucket.buffer())
    if not state.post_local_gradient_allreduce:
        return ready(bucket.buffer())
    if state.subgroup is None:
        state.subgroup, _ = new_subgroups()
    return averaged(state.subgroup, bucket.buffer())


def average_parameters(params: Iterable[Any], process_group: Any = None) -> None:
    """Replace parameters by their mean over the ranks of a group; nothing if this is no member.

    Args:
        params: the same on all ranks, of one dtype.
        process_group: None for all ranks.
    """
    group = default_group("average_parameters") if process_group is None else process_group
    listed = list(params)
    if get_rank(group) < 0 or not listed:
        return
    with tangrad.no_grad():
        flat = tangrad.cat([parameter.detach().reshape(-1) for parameter in listed])
        flat.div_(group.size())
        group.all_reduce([flat], ReduceOp(ReduceOp.SUM))
        parts = flat.split([parameter.numel() for parameter in listed])
        for parameter, part in zip(listed, parts, strict=True):
            parameter.copy_(part.view_as(parameter))


def get_params_to_average(params: Any) -> list[Any]:
    """Return those that have a gradient, of parameters or of groups of an optimizer.

    Raises:
        NotImplementedError: something else is among them.
    """
    found = []
    for one in params:
        if isinstance(one, tangrad.Tensor):
            found += [one] if one.grad is not None else []
        elif isinstance(one, dict):
            found += [parameter for parameter in one["params"] if parameter.grad is not None]
        else:
            raise NotImplementedError(
                f"Parameter input of type {type(one)} is not supported: give parameters or groups"
            )
    return found


def average_parameters_or_parameter_groups(params: Any, process_group: Any = None) -> None:
    """Average those parameters that have a gradient, dtype by dtype."""
    kinds: dict[Any, list[Any]] = {}
    for parameter in get_params_to_average(params):
        kinds.setdefault(parameter.dtype, []).append(parameter)
    for listed in kinds.values():
        average_parameters(listed, process_group)


class ModelAverager(ABC):
    """Average parameters over the ranks of a group; `step` counts the calls.

    Args:
        process_group: None for all ranks.
    """

    def __init__(self, process_group: Any = None) -> None:
        self.process_group = default_group() if process_group is None else process_group
        self.step = 0

    @abstractmethod
    def average_parameters(self, params: Any) -> None:
        """Average parameters, or groups of an optimizer, if it is time to."""


class PeriodicModelAverager(ModelAverager):
    """Average parameters every `period` steps, after the first ones.

    Args:
        period: steps from one average to the next.
        warmup_steps: how many steps do not average.
        process_group: None for all ranks.

    Raises:
        ValueError: a number is out of range.
    """

    def __init__(self, period: int, warmup_steps: int = 0, process_group: Any = None) -> None:
        super().__init__(process_group)
        if warmup_steps < 0:
            raise ValueError("Arg ``warmup_steps`` must be a non-negative number.")
        if period < 1:
            raise ValueError("Arg ``period`` must be a positive value.")
        self.period, self.warmup_steps = period, warmup_steps

    def average_parameters(self, params: Any) -> None:
        """Average, if it is time to."""
        if self.step >= self.warmup_steps and (self.step - self.warmup_steps) % self.period == 0:
            average_parameters_or_parameter_groups(params, self.process_group)
        self.step += 1


class HierarchicalModelAverager(ModelAverager):
    """Average often among few ranks, and seldom among many.

    Args:
        period_group_size_dict: steps between averages to the size of the groups that average,
            both growing; the largest size is that of `process_group`.
        warmup_steps: how many steps do not average.
        process_group: None for all ranks.

    Raises:
        ValueError: periods or sizes do not grow, or do not divide the group.
    """

    def __init__(
        self,
        period_group_size_dict: OrderedDict[int, int],
        warmup_steps: int = 0,
        process_group: Any = None,
    ) -> None:
        super().__init__(process_group)
        if not period_group_size_dict:
            raise ValueError("Arg ``period_group_size_dict`` must not be empty.")
        if warmup_steps < 0:
            raise ValueError("Arg ``warmup_steps`` must be a non-negative number.")
        periods, sizes = list(period_group_size_dict), list(period_group_size_dict.values())
        if periods != sorted(periods) or sizes != sorted(sizes) or periods[0] < 1:
            raise ValueError(f"periods and sizes must grow, got {dict(period_group_size_dict)}")
        if sizes[-1] != self.process_group.size():
            raise ValueError(
                f"the last value in arg ``period_group_size_dict`` ({sizes[-1]}) must be the size "
                f"of the group ({self.process_group.size()})"
            )
        self.warmup_steps = warmup_steps
        self.period_process_group_dict: OrderedDict[int, Any] = OrderedDict()
        for period, size in period_group_size_dict.items():
            whole = size == self.process_group.size()
            group = self.process_group if whole else new_subgroups(size, self.process_group)[0]
            self.period_process_group_dict[period] = group

    def average_parameters(self, params: Any) -> None:
        """Average in the largest group whose time it is."""
        if self.step >= self.warmup_steps:
            due = [p for p in self.period_process_group_dict if self.step % p == 0]
            if due:
                group = self.period_process_group_dict[due[-1]]
                average_parameters_or_parameter_groups(params, group)
        self.step += 1


class PostLocalSGDOptimizer(tangrad.optim.Optimizer):
    """Step by another optimizer, then average the parameters when it is time to.

    Args:
        optim: the optimizer.
        averager: says when, and among whom.
    """

    def __init__(self, optim: Any, averager: ModelAverager) -> None:
        self.optim, self.averager = optim, averager
        self.param_groups = optim.param_groups

    @property
    def state(self) -> Any:
        """Return the optimizer's state."""
        return self.optim.state

    @state.setter
    def state(self, value: Any) -> None:
        self.optim.state = value

    def __repr__(self) -> str:
        return repr(self.optim)

    def state_dict(self) -> dict[str, Any]:
        """Return the optimizer's state, and the step of the averages."""
        return {**self.optim.state_dict(), "step": self.averager.step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state; one without the step of the averages begins them anew."""
        rest = dict(state_dict)
        self.averager.step = rest.pop("step", 0)
        self.optim.load_state_dict(rest)
        self.param_groups = self.optim.param_groups

    def step(self, closure: Any = None) -> Any:
        """Step, then average if it is time to."""
        loss = self.optim.step() if closure is None else self.optim.step(closure)
        self.averager.average_parameters(self.param_groups)
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients."""
        self.optim.zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters."""
        self.optim.add_param_group(param_group)
