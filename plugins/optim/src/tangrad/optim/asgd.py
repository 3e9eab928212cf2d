"""Averaged stochastic gradient descent."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.optim.elementwise import ElementwiseOptimizer, counted, decayed
from tangrad.optim.optimizer import _step_number, _value
from tangrad.plugin import number_of

__all__ = ["ASGD"]


class ASGD(ElementwiseOptimizer):
    r"""Descend along the gradient, and keep the average of the parameters on the way.

    Polyak, Juditsky 1992, https://dl.acm.org/citation.cfm?id=131098. The average is
    ``state[parameter]["ax"]``; the rate is \(\gamma / (1 + \lambda \gamma t)^\alpha\).

    Args:
        params: parameters, or groups of them.
        lr: learning rate \(\gamma\).
        lambd: \(\lambda\): decay of the rate, and of the parameters.
        alpha: \(\alpha\).
        t0: step after which to average.
        weight_decay: its product with \(\theta\) is added to the gradient.
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
        lr: Any = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "lambd": lambd,
            "alpha": alpha,
            "t0": t0,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        ranges = [(weight_decay >= 0.0, f"Invalid weight_decay value: {weight_decay}")]
        super().__init__(params, defaults, ranges)

    def _start(self, parameter: Any, group: dict[str, Any]) -> dict[str, Any]:
        return {
            "step": _step_number(),
            "eta": _step_number() + _value(group["lr"]),
            "mu": _step_number() + 1,
            "ax": tangrad.zeros_like(parameter),
        }

    def _update(
        self, parameter: Any, grad: Any, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        lr, lambd = _value(group["lr"]), group["lambd"]
        step = counted(state)
        rate, share = number_of(state["eta"]), number_of(state["mu"])
        grad = decayed(grad, parameter, group)
        parameter.mul_(1 - lambd * rate).add_(grad, alpha=-rate)
        average = state["ax"]
        if share == 1:
            average.copy_(parameter)
        else:
            average.add_((parameter - average) * share)
        state["eta"].fill_(lr / (1 + lambd * lr * step) ** group["alpha"])
        state["mu"].fill_(1 / max(1, step - group["t0"]))
