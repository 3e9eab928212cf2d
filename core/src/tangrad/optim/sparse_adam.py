"""Adam for sparse gradients."""

from __future__ import annotations

from typing import Any

from tangrad.optim.elementwise import ElementwiseOptimizer

__all__ = ["SparseAdam"]


class SparseAdam(ElementwiseOptimizer):
    """Adam that touches only the rows which a sparse gradient holds.

    A gradient is sparse when a package that brings a sparse layout made it; the core's own are
    dense.

    Args:
        params: parameters, or groups of them.
        lr: learning rate.
        betas: weights of the past in the means of the gradient and of its square.
        eps: added to the root mean square.
        maximize: ascend.

    Raises:
        ValueError: if a number lies outside its range, or a parameter is complex.
    """

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
        found = [
            [k, i]
            for k, group in enumerate(self.param_groups)
            for i, parameter in enumerate(group["params"])
            if parameter.is_complex()
        ]
        if found:
            raise ValueError(
                f"Complex params at indices {found}: SparseAdam does not support complex parameters"
            )

    def _step_parameter(self, parameter: Any, group: dict[str, Any]) -> None:
        raise RuntimeError(
            "SparseAdam does not support dense gradients, please consider Adam instead"
        )
