"""RAdam."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.optim.elementwise import ElementwiseOptimizer, decayed, ranges_of_moments
from tangrad.optim.optimizer import _step_number, _value
from tangrad.plugin import number_of

__all__ = ["RAdam"]


class RAdam(ElementwiseOptimizer):
    r"""Adam whose adaptive rate is rectified for its variance in the first steps.

    Liu et al. 2019, arXiv:1908.03265: with \(\rho_\infty = 2 / (1 - \beta_2) - 1\) and
    \(\rho_t = \rho_\infty - 2 t \beta_2^t / (1 - \beta_2^t)\), steps are those of plain momentum
    while \(\rho_t \le 5\), and later those of Adam times
    \(\sqrt{(\rho_t - 4)(\rho_t - 2) \rho_\infty / ((\rho_\infty - 4)(\rho_\infty - 2) \rho_t)}\).

    Args:
        params: parameters, or groups of them.
        lr: learning rate.
        betas: weights of the past in the means of \(g\) and of \(g^2\).
        eps: added to the root mean square.
        weight_decay: \(\lambda\): \(\lambda \theta\) is added to the gradient.
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
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
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
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "decoupled_weight_decay": decoupled_weight_decay,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults, ranges_of_moments(betas, eps, weight_decay))

    def _start(self, parameter: Any, group: dict[str, Any]) -> dict[str, Any]:
        return {
            "step": _step_number(),
            "exp_avg": tangrad.zeros_like(parameter),
            "exp_avg_sq": tangrad.zeros_like(parameter),
        }

    def _update(
        self, parameter: Any, grad: Any, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        (beta1, beta2), lr = group["betas"], _value(group["lr"])
        # Read before it is counted: what a compiled step decides by is known before the step then.
        step = tangrad.sym_float(number_of(state["step"])) + 1
        state["step"] += 1
        grad = decayed(grad, parameter, group)
        mean = state["exp_avg"].lerp_(grad, 1 - beta1)
        squares = state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        rate, seen = lr / (1 - beta1**step), 1 - beta2**step
        longest = 2 / (1 - beta2) - 1
        length = longest - 2 * step * beta2**step / seen
        if length <= 5:
            parameter.add_(mean, alpha=-rate)
            return
        rectified = (length - 4) * (length - 2) * longest
        rectified /= (longest - 4) * (longest - 2) * length
        root = squares.sqrt() + group["eps"]
        parameter.addcdiv_(mean, root, value=-rate * (rectified * seen) ** 0.5)
