"""NAdam."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.optim.elementwise import ElementwiseOptimizer, counted, decayed, ranges_of_moments
from tangrad.optim.optimizer import _step_number, _value
from tangrad.plugin import number_of

__all__ = ["NAdam"]


class NAdam(ElementwiseOptimizer):
    r"""Adam with Nesterov's momentum (Dozat 2016, https://openreview.net/forum?id=OM0jvwB8jIp57ZJjtNEZ).

    The weight of the momentum grows with the step,
    \(\mu_t = \beta_1 (1 - 0.96^{t \psi} / 2)\).

    Args:
        params: parameters, or groups of them.
        lr: learning rate.
        betas: weights of the past in the means of \(g\) and of \(g^2\).
        eps: added to the root mean square.
        weight_decay: \(\lambda\): \(\lambda \theta\) is added to the gradient.
        momentum_decay: \(\psi\).
        decoupled_weight_decay: multiply \(\theta\) by \(1 - \gamma \lambda\) instead.
        foreach: accepted; the results are the same.
        maximize: ascend.
        capturable: accepted; the results are the same.
        differentiable: let autograd record the step.

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
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
        }
        ranges = [
            *ranges_of_moments(betas, eps, weight_decay),
            (momentum_decay >= 0.0, f"Invalid momentum_decay value: {momentum_decay}"),
        ]
        super().__init__(params, defaults, ranges)

    def _start(self, parameter: Any, group: dict[str, Any]) -> dict[str, Any]:
        return {
            "step": _step_number(),
            "mu_product": _step_number() + 1,
            "exp_avg": tangrad.zeros_like(parameter),
            "exp_avg_sq": tangrad.zeros_like(parameter),
        }

    def _update(
        self, parameter: Any, grad: Any, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        (beta1, beta2), lr = group["betas"], _value(group["lr"])
        step = counted(state)
        grad = decayed(grad, parameter, group)
        decay = group["momentum_decay"]
        weight = beta1 * (1 - 0.5 * 0.96 ** (step * decay))
        following = beta1 * (1 - 0.5 * 0.96 ** ((step + 1) * decay))
        state["mu_product"] *= weight
        recorded = group["differentiable"] and state["mu_product"].requires_grad
        product = state["mu_product"].clone() if recorded else number_of(state["mu_product"])
        mean = state["exp_avg"].lerp_(grad, 1 - beta1)
        squares = state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        root = squares.div(1 - beta2**step).sqrt() + group["eps"]
        rates = -lr * (1 - weight) / (1 - product), -lr * following / (1 - product * following)
        for direction, rate in zip((grad, mean), rates, strict=True):
            if recorded:
                parameter.addcdiv_(direction * rate, root)
            else:
                parameter.addcdiv_(direction, root, value=rate)
