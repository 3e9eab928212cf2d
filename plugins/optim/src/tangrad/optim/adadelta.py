"""Adadelta."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.optim.elementwise import ElementwiseOptimizer, counted, decayed
from tangrad.optim.optimizer import _step_number, _value

__all__ = ["Adadelta"]


class Adadelta(ElementwiseOptimizer):
    r"""Scale each step by the root mean square of earlier steps over that of the gradients.

    Zeiler 2012, arXiv:1212.5701:
    \(\Delta = g \sqrt{u + \epsilon} / \sqrt{v + \epsilon}\), with running means \(v\) of
    \(g^2\) and \(u\) of \(\Delta^2\).

    Args:
        params: parameters, or groups of them.
        lr: factor of each step.
        rho: weight of the past in the running means.
        eps: \(\epsilon\).
        weight_decay: \(\lambda\): \(\lambda \theta\) is added to the gradient.
        foreach: accepted; the results are the same.
        capturable: accepted; the results are the same.
        maximize: ascend.
        differentiable: let autograd record the step.

    Raises:
        ValueError: if a number lies outside its range.
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "rho": rho,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "capturable": capturable,
            "foreach": foreach,
            "differentiable": differentiable,
        }
        ranges = [
            (0.0 <= rho <= 1.0, f"Invalid rho value: {rho}"),
            (eps >= 0.0, f"Invalid epsilon value: {eps}"),
            (weight_decay >= 0.0, f"Invalid weight_decay value: {weight_decay}"),
        ]
        super().__init__(params, defaults, ranges)

    def _start(self, parameter: Any, group: dict[str, Any]) -> dict[str, Any]:
        return {
            "step": _step_number(),
            "square_avg": tangrad.zeros_like(parameter),
            "acc_delta": tangrad.zeros_like(parameter),
        }

    def _update(
        self, parameter: Any, grad: Any, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        rho, eps = group["rho"], group["eps"]
        counted(state)
        grad = decayed(grad, parameter, group)
        squares, steps = state["square_avg"], state["acc_delta"]
        squares.mul_(rho).addcmul_(grad, grad, value=1 - rho)
        delta = steps.add(eps).sqrt() / squares.add(eps).sqrt() * grad
        steps.mul_(rho).addcmul_(delta, delta, value=1 - rho)
        parameter.add_(delta, alpha=-_value(group["lr"]))
