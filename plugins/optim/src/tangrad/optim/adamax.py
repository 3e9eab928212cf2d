"""Adamax."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.optim.elementwise import ElementwiseOptimizer, counted, decayed, ranges_of_moments
from tangrad.optim.optimizer import _step_number, _value

__all__ = ["Adamax"]


class Adamax(ElementwiseOptimizer):
    r"""Descend along the mean gradient over a decaying maximum of its magnitude.

    Kingma, Ba 2014, arXiv:1412.6980, section 7.1: Adam with
    \(u \leftarrow \max(\beta_2 u, |g| + \epsilon)\) in place of the root mean square.

    Args:
        params: parameters, or groups of them.
        lr: learning rate.
        betas: weights of the past in the mean and in the maximum.
        eps: \(\epsilon\).
        weight_decay: \(\lambda\): \(\lambda \theta\) is added to the gradient.
        foreach: accepted; the results are the same.
        maximize: ascend.
        differentiable: let autograd record the step.
        capturable: accepted; the results are the same.

    Raises:
        ValueError: if a number lies outside its range.
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults, ranges_of_moments(betas, eps, weight_decay))

    def _start(self, parameter: Any, group: dict[str, Any]) -> dict[str, Any]:
        return {
            "step": _step_number(),
            "exp_avg": tangrad.zeros_like(parameter),
            "exp_inf": tangrad.zeros_like(parameter),
        }

    def _update(
        self, parameter: Any, grad: Any, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        beta1, beta2 = group["betas"]
        step = counted(state)
        grad = decayed(grad, parameter, group)
        mean, largest = state["exp_avg"], state["exp_inf"]
        mean.lerp_(grad, 1 - beta1)
        largest.copy_(tangrad.maximum(largest * beta2, grad.abs() + group["eps"]))
        parameter.addcdiv_(mean, largest, value=-_value(group["lr"]) / (1 - beta1**step))
