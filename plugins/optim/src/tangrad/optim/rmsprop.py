"""RMSprop."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.optim.elementwise import ElementwiseOptimizer, counted, decayed
from tangrad.optim.optimizer import _step_number, _value

__all__ = ["RMSprop"]


class RMSprop(ElementwiseOptimizer):
    r"""Divide the gradient by its root mean square (Hinton, lecture 6e of his course of 2012).

    Centered, by its standard deviation (Graves 2013, arXiv:1308.0850). The \(\epsilon\) is added
    after the root.

    Args:
        params: parameters, or groups of them.
        lr: learning rate.
        alpha: weight of the past in the running mean.
        eps: \(\epsilon\).
        weight_decay: \(\lambda\): \(\lambda \theta\) is added to the gradient.
        momentum: weight of the past in the steps.
        centered: divide by the standard deviation.
        capturable: accepted; the results are the same.
        foreach: accepted; the results are the same.
        maximize: ascend.
        differentiable: let autograd record the step.

    Raises:
        ValueError: if a number lies outside its range.
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "alpha": alpha,
            "eps": eps,
            "centered": centered,
            "weight_decay": weight_decay,
            "capturable": capturable,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
        }
        ranges = [
            (eps >= 0.0, f"Invalid epsilon value: {eps}"),
            (momentum >= 0.0, f"Invalid momentum value: {momentum}"),
            (weight_decay >= 0.0, f"Invalid weight_decay value: {weight_decay}"),
            (alpha >= 0.0, f"Invalid alpha value: {alpha}"),
        ]
        super().__init__(params, defaults, ranges)

    def _start(self, parameter: Any, group: dict[str, Any]) -> dict[str, Any]:
        names = ["square_avg"]
        names += ["momentum_buffer"] if group["momentum"] > 0 else []
        names += ["grad_avg"] if group["centered"] else []
        zeros = {name: tangrad.zeros_like(parameter) for name in names}
        return {"step": _step_number(), **zeros}

    def _update(
        self, parameter: Any, grad: Any, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        alpha, lr = group["alpha"], _value(group["lr"])
        counted(state)
        grad = decayed(grad, parameter, group)
        squares = state["square_avg"].mul_(alpha).addcmul_(grad, grad, value=1 - alpha)
        if group["centered"]:
            mean = state["grad_avg"].lerp_(grad, 1 - alpha)
            squares = squares.addcmul(mean, mean, value=-1)
        root = squares.sqrt() + group["eps"]
        if group["momentum"] > 0:
            steps = state["momentum_buffer"].mul_(group["momentum"]).addcdiv_(grad, root)
            parameter.add_(steps, alpha=-lr)
        else:
            parameter.addcdiv_(grad, root, value=-lr)
