"""Adafactor."""

from __future__ import annotations

from typing import Any, ClassVar

import tangrad
from tangrad.optim.elementwise import ElementwiseOptimizer, counted
from tangrad.optim.optimizer import _step_number, _value

__all__ = ["Adafactor"]


class Adafactor(ElementwiseOptimizer):
    r"""Divide a matrix's gradient by a root mean square kept as one row and one column.

    Shazeer, Stern 2018, arXiv:1804.04235. The weight of the present in the running means is
    \(t^\tau\), the rate \(\max(\epsilon_2, RMS(\theta)) \min(\gamma, 1 / \sqrt t)\), and no update
    is longer, in the root mean square, than \(d\) times it.

    Args:
        params: parameters, or groups of them.
        lr: \(\gamma\).
        beta2_decay: \(\tau\).
        eps: \(\epsilon_1\), whose square is the least mean square (the dtype's epsilon when
            None), and \(\epsilon_2\).
        d: the limit.
        weight_decay: \(\lambda\): \(\theta\) is first multiplied by \(1 - \gamma \lambda\).
        foreach: accepted; the results are the same.
        maximize: ascend.

    Raises:
        ValueError: if a number lies outside its range.
        RuntimeError: a parameter is complex.
    """

    _absent: ClassVar[dict[str, Any]] = {"foreach": None}

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "beta2_decay": beta2_decay,
            "eps": eps,
            "d": d,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
        }
        ranges = [
            (beta2_decay <= 0.0, f"beta2_decay should be <= 0 but is: {beta2_decay}"),
            (eps[0] is None or eps[0] >= 0.0, f"epsilon1 should be >= 0 but is: {eps[0]}"),
            (eps[1] >= 0.0, f"epsilon2 should be >= 0 but is: {eps[1]}"),
            (d >= 1.0, f"Clipping threshold d should be >= 1 but is: {d}"),
            (weight_decay >= 0.0, f"weight_decay should be >= 0 but is: {weight_decay}"),
        ]
        super().__init__(params, defaults, ranges)

    def _step_parameter(self, parameter: Any, group: dict[str, Any]) -> None:
        if parameter.is_complex():
            raise RuntimeError("Adafactor does not support complex parameters")
        super()._step_parameter(parameter, group)

    def _start(self, parameter: Any, group: dict[str, Any]) -> dict[str, Any]:
        grad = parameter.grad
        if grad.dim() < 2:
            return {"step": _step_number(), "variance": tangrad.zeros_like(grad)}
        *batch, rows, columns = grad.shape
        return {
            "step": _step_number(),
            "row_var": grad.new_zeros([*batch, rows, 1]),
            "col_var": grad.new_zeros([*batch, 1, columns]),
        }

    def _update(
        self, parameter: Any, grad: Any, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        step, lr = counted(state), _value(group["lr"])
        present = step ** group["beta2_decay"]
        smallest, least_scale = group["eps"]
        if smallest is None:
            smallest = tangrad.finfo(parameter.dtype).eps
        scale = parameter.norm(2).item() / parameter.numel() ** 0.5
        rate = max(least_scale, scale) * min(lr, 1 / step**0.5)
        if group["weight_decay"] != 0:
            parameter.mul_(1 - lr * group["weight_decay"])
        if grad.dim() < 2:
            squares = state["variance"].lerp_(grad.square(), present)
        else:
            rows, columns = state["row_var"], state["col_var"]
            rows.lerp_(grad.norm(dim=-1, keepdim=True).square() / grad.size(-1), present)
            columns.lerp_(grad.norm(dim=-2, keepdim=True).square() / grad.size(-2), present)
            squares = rows @ columns / rows.mean(dim=-2, keepdim=True).clamp(min=smallest)
        update = squares.clamp(min=smallest * smallest).rsqrt() * grad
        length = update.norm(2).item() / (update.numel() ** 0.5 * group["d"])
        parameter.add_(update, alpha=-rate / max(1.0, length))
