"""Rprop."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.optim.elementwise import ElementwiseOptimizer, counted
from tangrad.optim.optimizer import _step_number, _value

__all__ = ["Rprop"]


class Rprop(ElementwiseOptimizer):
    r"""Move each element by a length of its own, in the direction of the gradient's sign.

    Riedmiller, Braun 1993: a length grows by \(\eta_+\) while the sign stays, and shrinks by
    \(\eta_-\), for one step without a move, when it changes.

    Args:
        params: parameters, or groups of them.
        lr: the first length.
        etas: \((\eta_-, \eta_+)\).
        step_sizes: shortest and longest length.
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
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "etas": etas,
            "step_sizes": step_sizes,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        ranges = [(0.0 < etas[0] < 1.0 < etas[1], f"Invalid eta values: {etas[0]}, {etas[1]}")]
        super().__init__(params, defaults, ranges)

    def _start(self, parameter: Any, group: dict[str, Any]) -> dict[str, Any]:
        first = _value(group["lr"])
        if parameter.is_complex():
            first = complex(first, first)
        return {
            "step": _step_number(),
            "prev": tangrad.zeros_like(parameter),
            "step_size": tangrad.full_like(parameter, first),
        }

    def _update(
        self, parameter: Any, grad: Any, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        (shrink, grow), (shortest, longest) = group["etas"], group["step_sizes"]
        counted(state)
        turn = grad * state["prev"]
        lengths = state["step_size"]
        factor = tangrad.where(turn > 0, grow, tangrad.where(turn < 0, shrink, 1.0))
        lengths.mul_(factor.to(lengths.dtype)).clamp_(shortest, longest)
        grad = tangrad.where(turn < 0, 0.0, grad)
        parameter.addcmul_(grad.sign(), lengths, value=-1)
        state["prev"].copy_(grad)
