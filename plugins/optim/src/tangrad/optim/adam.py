"""Adam."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tangrad
from tangrad.ops.optimizer.steps import adam_update
from tangrad.optim.optimizer import (
    Optimizer,
    _at_once,
    _check_kernels,
    _evaluate,
    _refuse_tensor_lr,
    _step_number,
    _value,
    _with_grads,
)
from tangrad.plugin import number_of

__all__ = ["Adam", "adam"]


class Adam(Optimizer):
    r"""Descend along the mean gradient over its root mean square (arXiv:1412.6980).

    With running means \(m\) of \(g\) and \(v\) of \(g^2\), corrected for their start at zero,
    \(\theta \leftarrow \theta - \gamma \hat m / (\sqrt{\hat v} + \epsilon)\).

    Args:
        params: parameters, or groups of them.
        lr: learning rate \(\gamma\).
        betas: weights of the past in \(m\) and \(v\).
        eps: \(\epsilon\).
        weight_decay: \(\lambda\): \(\lambda \theta\) is added to the gradient, or, when
            decoupled, \(\theta\) is first multiplied by \(1 - \gamma \lambda\).
        amsgrad: use the largest \(v\) so far (https://openreview.net/forum?id=ryQu7f-RZ).
        foreach: False updates one parameter after the other; the results are the same.
        maximize: ascend.
        capturable: accepted; the results are the same.
        differentiable: let autograd record the step.
        fused: as `foreach`.
        decoupled_weight_decay: decouple weight decay from the gradient, as `AdamW` does.

    Raises:
        ValueError: if a number lies outside its range, or `betas` are not of one kind.
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        betas: tuple[Any, Any] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        _refuse_tensor_lr(lr)
        if isinstance(lr, tangrad.Tensor) and foreach and not capturable:
            raise ValueError(
                "lr as a Tensor is not supported for capturable=False and foreach=True"
            )
        if not lr >= 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        if not eps >= 0.0:
            raise ValueError(f"Invalid epsilon value: {eps}")
        for position, beta in enumerate(betas):
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"Invalid beta parameter at index {position}: {beta}")
        if not weight_decay >= 0.0:
            raise ValueError(f"Invalid weight_decay value: {weight_decay}")
        if not any(all(isinstance(b, kind) for b in betas) for kind in (float, tangrad.Tensor)):
            raise ValueError("betas must be either both floats or both Tensors")
        if isinstance(betas[0], tangrad.Tensor) and foreach and not capturable:
            raise ValueError(
                "betas[0] as a Tensor is not supported for capturable=False and foreach=True"
            )
        _check_kernels(foreach, fused, differentiable)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
            "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, defaults)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        flags = ("amsgrad", "maximize", "capturable", "differentiable", "decoupled_weight_decay")
        for group in self.param_groups:
            for name in flags:
                group.setdefault(name, False)
            for name in ("foreach", "fused"):
                group.setdefault(name, None)
            for parameter in group["params"]:
                state = self.state.get(parameter, {})
                # Once the number of steps was kept as a Python number.
                if state and not isinstance(state["step"], tangrad.Tensor):
                    state["step"] = _step_number() + float(state["step"])

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters once.

        Args:
            closure: evaluates the model again and returns the loss.

        Returns:
            The loss of the closure, or None.
        """
        loss = _evaluate(closure)
        for group in self.param_groups:
            self._step_group(group)
        return loss

    def _state_of(self, parameter: Any, amsgrad: bool) -> dict[str, Any]:
        state = self.state[parameter]
        if not state:
            state["step"] = _step_number()
            state["exp_avg"] = tangrad.zeros_like(parameter)
            state["exp_avg_sq"] = tangrad.zeros_like(parameter)
            if amsgrad:
                state["max_exp_avg_sq"] = tangrad.zeros_like(parameter)
        return state

    def _step_group(self, group: dict[str, Any]) -> None:
        amsgrad = group["amsgrad"]
        params, grads = _with_grads(group["params"])
        if any(grad.layout is not tangrad.strided for grad in grads):
            raise RuntimeError(
                "Adam does not support sparse gradients, please consider SparseAdam instead"
            )
        beta1, beta2 = group["betas"]
        with tangrad.set_grad_enabled(group["differentiable"]):
            states = [self._state_of(parameter, amsgrad) for parameter in params]
            adam(
                params,
                grads,
                [state["exp_avg"] for state in states],
                [state["exp_avg_sq"] for state in states],
                [state["max_exp_avg_sq"] for state in states] if amsgrad else [],
                [state["step"] for state in states],
                foreach=group["foreach"],
                fused=group["fused"],
                differentiable=group["differentiable"],
                decoupled_weight_decay=group["decoupled_weight_decay"],
                amsgrad=amsgrad,
                beta1=_value(beta1),
                beta2=_value(beta2),
                lr=_value(group["lr"]),
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                maximize=group["maximize"],
            )


def adam(
    params: list[Any],
    grads: list[Any],
    exp_avgs: list[Any],
    exp_avg_sqs: list[Any],
    max_exp_avg_sqs: list[Any],
    state_steps: list[Any],
    foreach: bool | None = None,
    capturable: bool = False,
    differentiable: bool = False,
    fused: bool | None = None,
    grad_scale: Any = None,
    found_inf: Any = None,
    has_complex: bool = False,
    decoupled_weight_decay: bool = False,
    *,
    amsgrad: bool,
    beta1: float,
    beta2: float,
    lr: float,
    weight_decay: float,
    eps: float,
    maximize: bool,
) -> None:
    """Update the first six lists, the gradients excepted, in place; see `Adam`.

    Args:
        params: the parameters.
        grads: their gradients.
        exp_avgs: running means of the gradients.
        exp_avg_sqs: running means of their squares.
        max_exp_avg_sqs: largest of these so far, when `amsgrad`.
        state_steps: numbers of steps, tensors of one element.
        foreach: False updates one parameter after the other.
        capturable: ignored.
        differentiable: let autograd record the update.
        fused: as `foreach`.
        grad_scale: number by which the gradients are divided first.
        found_inf: when true, nothing is updated.
        has_complex: ignored.
        decoupled_weight_decay: see `Adam`.
        amsgrad: see `Adam`.
        beta1: see `Adam`.
        beta2: see `Adam`.
        lr: see `Adam`.
        weight_decay: see `Adam`.
        eps: see `Adam`.
        maximize: see `Adam`.
    """
    if not params or (found_inf is not None and bool(found_inf)):
        return
    if grad_scale is not None:
        grads = [grad / grad_scale for grad in grads]
    how: dict[str, Any] = {
        "lr": tangrad.sym_float(lr),
        "beta1": tangrad.sym_float(beta1),
        "beta2": tangrad.sym_float(beta2),
        "weight_decay": tangrad.sym_float(weight_decay),
        "eps": tangrad.sym_float(eps),
        "maximize": maximize,
    }
    tangrad._foreach_add_(state_steps, 1)
    if _at_once(params, foreach, fused, differentiable):
        step = tangrad._fused_adamw_ if decoupled_weight_decay else tangrad._fused_adam_
        lists = (params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps)
        step(*lists, amsgrad=amsgrad, **how)
        return
    for i, (parameter, grad) in enumerate(zip(params, grads, strict=True)):
        adam_update(
            parameter,
            grad,
            exp_avgs[i],
            exp_avg_sqs[i],
            max_exp_avg_sqs[i] if amsgrad else None,
            number_of(state_steps[i]),
            decoupled=decoupled_weight_decay,
            **how,
        )
