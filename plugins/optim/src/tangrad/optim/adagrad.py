"""Adagrad."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.optim.elementwise import ElementwiseOptimizer, counted, decayed
from tangrad.optim.optimizer import _check_kernels, _step_number, _value

__all__ = ["Adagrad"]


class Adagrad(ElementwiseOptimizer):
    r"""Divide the gradient by the root of the sum of its squares so far.

    Duchi, Hazan, Singer 2011, https://jmlr.org/papers/v12/duchi11a.html:
    \(\theta \leftarrow \theta - \gamma_t g / (\sqrt{\sum g^2} + \epsilon)\).

    Args:
        params: parameters, or groups of them.
        lr: learning rate \(\gamma\).
        lr_decay: \(\eta\): \(\gamma_t = \gamma / (1 + (t - 1) \eta)\).
        weight_decay: \(\lambda\): \(\lambda \theta\) is added to the gradient.
        initial_accumulator_value: what the sum begins with.
        eps: \(\epsilon\).
        foreach: accepted; the results are the same.
        maximize: ascend.
        differentiable: let autograd record the step.
        fused: accepted; the results are the same.

    Raises:
        ValueError: if a number lies outside its range.
    """

    _takes_sparse = True

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        _check_kernels(foreach, fused, differentiable)
        defaults = {
            "lr": lr,
            "lr_decay": lr_decay,
            "eps": eps,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "fused": fused,
        }
        ranges = [
            (lr_decay >= 0.0, f"Invalid lr_decay value: {lr_decay}"),
            (weight_decay >= 0.0, f"Invalid weight_decay value: {weight_decay}"),
            (
                initial_accumulator_value >= 0.0,
                f"Invalid initial_accumulator_value value: {initial_accumulator_value}",
            ),
            (eps >= 0.0, f"Invalid epsilon value: {eps}"),
        ]
        super().__init__(params, defaults, ranges)
        # There is a state before the first step: a checkpoint of PyTorch holds it.
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter].update(self._start(parameter, group))

    def share_memory(self) -> None:
        """Move the sums into memory that other processes see."""
        for state in self.state.values():
            state["sum"].share_memory_()

    def _start(self, parameter: Any, group: dict[str, Any]) -> dict[str, Any]:
        first = group["initial_accumulator_value"]
        if parameter.is_complex():
            first = complex(first, first)
        return {
            "step": _step_number(),
            "sum": tangrad.full_like(parameter, first, memory_format=tangrad.preserve_format),
        }

    def _update(
        self, parameter: Any, grad: Any, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        step = counted(state)
        grad = decayed(grad, parameter, group)
        rate = _value(group["lr"]) / (1 + (step - 1) * group["lr_decay"])
        total = state["sum"].addcmul_(grad, grad, value=1)
        parameter.addcdiv_(grad, total.sqrt() + group["eps"], value=-rate)
