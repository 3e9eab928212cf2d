"""Adam for sparse gradients."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import tangrad
from tangrad.optim.elementwise import ElementwiseOptimizer

__all__ = ["SparseAdam"]


class SparseAdam(ElementwiseOptimizer):
    """Adam that touches only the rows which a sparse gradient holds.

    A gradient is sparse when a package that brings a sparse layout made it, as it does for
    `Embedding(sparse=True)`. Rows that a gradient leaves out keep their means (Kingma and Ba, 2014,
    applied to what is stored).

    Args:
        params: parameters, or groups of them.
        lr: learning rate.
        betas: weights of the past in the means of the gradient and of its square.
        eps: added to the root mean square.
        maximize: ascend.

    Raises:
        ValueError: if a number lies outside its range, or a parameter is complex or sparse.
    """

    _absent: ClassVar[dict[str, Any]] = {"maximize": False}
    _counts_in_tensors = False

    _takes_sparse = True

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize}
        ranges = [
            (lr > 0.0, f"Invalid learning rate: {lr}"),
            (eps > 0.0, f"Invalid epsilon value: {eps}"),
            (0.0 <= betas[0] < 1.0, f"Invalid beta parameter at index 0: {betas[0]}"),
            (0.0 <= betas[1] < 1.0, f"Invalid beta parameter at index 1: {betas[1]}"),
        ]
        super().__init__(params, defaults, ranges)
        places = [
            ([k, i], parameter)
            for k, group in enumerate(self.param_groups)
            for i, parameter in enumerate(group["params"])
        ]
        if found := [place for place, p in places if p.layout is not tangrad.strided]:
            raise ValueError(
                f"Sparse params at indices {found}: SparseAdam requires dense parameter tensors"
            )
        if found := [place for place, p in places if p.is_complex()]:
            raise ValueError(
                f"Complex params at indices {found}: SparseAdam does not support complex parameters"
            )

    def _step_parameter(self, parameter: Any, group: dict[str, Any]) -> None:
        gradient = parameter.grad
        if not gradient.is_sparse:
            raise RuntimeError(
                "SparseAdam does not support dense gradients, please consider Adam instead"
            )
        state = self.state[parameter]
        if not state:
            state["step"] = 0
            state["exp_avg"] = tangrad.zeros_like(parameter, memory_format=tangrad.preserve_format)
            state["exp_avg_sq"] = tangrad.zeros_like(state["exp_avg"])
        state["step"] += 1
        gradient = gradient.coalesce()
        values = gradient.values()
        if values.numel() == 0:
            return
        place = tuple(gradient.indices())
        if group["maximize"]:
            values = -values
        lr = float(group["lr"])
        mean = _moved(state["exp_avg"], place, values, group["betas"][0])
        square = _moved(state["exp_avg_sq"], place, values.square(), group["betas"][1])
        first, second = (1 - beta ** state["step"] for beta in group["betas"])
        size = lr * math.sqrt(second) / first
        change = mean.div(square.sqrt().add_(group["eps"])).mul_(-size)
        parameter.index_put_(place, change, accumulate=True)


def _moved(average: Any, place: tuple[Any, ...], values: Any, beta: float) -> Any:
    """Move a running mean towards values at the places they have; returns it there."""
    old = average[place]
    new = old + (values - old) * (1 - beta)
    average.index_put_(place, new)
    return new
