"""Muon."""

from __future__ import annotations

from typing import Any, ClassVar

import tangrad
from tangrad.optim.elementwise import ElementwiseOptimizer
from tangrad.optim.optimizer import _value

__all__ = ["Muon"]

# Elements up to which float32 costs no more. The iteration amplifies rounding most in small
# matrices: `addmm`, which rounds twice, moves elements of 8 x 8 by 0.07, and of 512 x 512 by 0.009.
_SMALL = 1 << 16


class Muon(ElementwiseOptimizer):
    r"""Move each weight matrix by its momentum, made orthogonal.

    Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/: a few Newton-Schulz steps
    \(X \leftarrow a X + (b X X^T + c (X X^T)^2) X\), in bfloat16, take the singular values of
    the momentum to about one.

    Args:
        params: parameters, or groups of them; matrices only.
        lr: learning rate \(\gamma\).
        weight_decay: \(\lambda\): \(\theta\) is first multiplied by \(1 - \gamma \lambda\).
        momentum: weight of the past in the momentum.
        nesterov: look ahead by one step.
        ns_coefficients: \((a, b, c)\).
        eps: least norm by which the matrix is divided first.
        ns_steps: number of Newton-Schulz steps.
        adjust_lr_fn: "original" (or None) multiplies the rate by \(\sqrt{\max(1, m / n)}\) for an
            m × n matrix; "match_rms_adamw" by \(0.2 \sqrt{\max(m, n)}\), so that a rate tuned for
            AdamW serves (arXiv:2502.16982).

    Raises:
        ValueError: if a number lies outside its range, or a parameter is no matrix.
    """

    _absent: ClassVar[dict[str, Any]] = {}

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        if isinstance(lr, tangrad.Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        defaults = {
            "lr": lr,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "nesterov": nesterov,
            "ns_coefficients": ns_coefficients,
            "eps": eps,
            "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
        }
        ranges = [
            (momentum >= 0.0, f"momentum should be >= 0 but is: {momentum}"),
            (weight_decay >= 0.0, f"weight decay should be >= 0 but is: {weight_decay}"),
            (
                adjust_lr_fn in (None, "original", "match_rms_adamw"),
                f"Adjust learning rate function {adjust_lr_fn} is not supported",
            ),
            (ns_steps < 100, "Number of steps must be less than 100 for computational efficiency"),
            (
                len(ns_coefficients) == 3,
                "Coefficients must be a tuple of exactly 3 values for the Newton-Schulz step",
            ),
        ]
        super().__init__(params, defaults, ranges)
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.ndim != 2:
                    raise ValueError(
                        "Muon only supports 2D parameters, but got a parameter with size: "
                        f"{tuple(parameter.shape)}; give the others to another optimizer"
                    )

    def _start(self, parameter: Any, group: dict[str, Any]) -> dict[str, Any]:
        if parameter.is_complex():
            raise RuntimeError("Muon does not support complex parameters")
        return {"momentum_buffer": tangrad.zeros_like(parameter.grad)}

    def _update(
        self, parameter: Any, grad: Any, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        lr, momentum = _value(group["lr"]), group["momentum"]
        mean = state["momentum_buffer"].lerp_(grad, 1 - momentum)
        update = _orthogonal(grad.lerp(mean, momentum) if group["nesterov"] else mean, group)
        rows, columns = parameter.shape
        if group["adjust_lr_fn"] == "match_rms_adamw":
            factor = 0.2 * max(rows, columns) ** 0.5
        else:
            factor = max(1, rows / columns) ** 0.5
        parameter.mul_(1 - lr * group["weight_decay"])
        parameter.add_(update.to(parameter.dtype), alpha=-lr * factor)


def _orthogonal(matrix: Any, group: dict[str, Any]) -> Any:
    """Take all singular values of a matrix to about one."""
    a, b, c = group["ns_coefficients"]
    add = _rounded_once if matrix.numel() <= _SMALL else tangrad.addmm
    x = matrix.bfloat16()
    tall = x.size(0) > x.size(1)
    x = x.T if tall else x
    x = x / x.norm().clamp(min=group["eps"])
    for _ in range(group["ns_steps"]):
        gram = x @ x.T
        x = add(x, add(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


def _rounded_once(self: Any, mat1: Any, mat2: Any, **factors: float) -> Any:
    """Compute `addmm` in float32, of which only the result is rounded to bfloat16."""
    return tangrad.addmm(self.float(), mat1.float(), mat2.float(), **factors).bfloat16()
