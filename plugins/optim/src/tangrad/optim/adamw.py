"""Adam with decoupled weight decay."""

from __future__ import annotations

from typing import Any

from tangrad.optim.adam import Adam, adam

__all__ = ["AdamW", "adamw"]


class AdamW(Adam):
    """Do as `Adam` does, but let weights decay apart from the gradient (arXiv:1711.05101).

    Args:
        params: parameters, or groups of them.
        lr: learning rate.
        betas: weights of the past in the running means.
        eps: added to the denominator.
        weight_decay: before each step a parameter is multiplied by 1 - lr * weight_decay.
        amsgrad: use the largest second moment so far.
        maximize: ascend.
        foreach: False updates one parameter after the other; the results are the same.
        capturable: accepted; the results are the same.
        differentiable: let autograd record the step.
        fused: as `foreach`.

    Raises:
        ValueError: if a number lies outside its range.
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        betas: tuple[Any, Any] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True


def adamw(*args: Any, **kwargs: Any) -> None:
    """Update the parameters in place as `adam` does, with decoupled weight decay.

    Args:
        *args: see `adam`.
        **kwargs: see `adam`.
    """
    adam(*args, **{**kwargs, "decoupled_weight_decay": True})
