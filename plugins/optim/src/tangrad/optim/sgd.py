"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tangrad
from tangrad.ops.optimizer.steps import sgd_update
from tangrad.optim.optimizer import (
    Optimizer,
    _at_once,
    _check_kernels,
    _evaluate,
    _refuse_tensor_lr,
    _value,
    _with_grads,
)

__all__ = ["SGD", "sgd"]


class SGD(Optimizer):
    r"""Descend along the gradient, with momentum (Sutskever et al. 2013) when asked.

    \(b \leftarrow \mu b + (1 - \tau) g\), \(\theta \leftarrow \theta - \gamma b\); the first
    \(b\) is \(g\) itself.

    Args:
        params: parameters, or groups of them.
        lr: learning rate \(\gamma\).
        momentum: \(\mu\).
        dampening: \(\tau\).
        weight_decay: \(\lambda\): \(\lambda \theta\) is added to the gradient.
        nesterov: descend along \(g + \mu b\).
        maximize: ascend.
        foreach: False updates one parameter after the other; the results are the same.
        differentiable: let autograd record the step.
        fused: as `foreach`.

    Raises:
        ValueError: if a number is negative, or Nesterov's form lacks momentum.
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: Any = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        _refuse_tensor_lr(lr)
        if lr < 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        if momentum < 0.0:
            raise ValueError(f"Invalid momentum value: {momentum}")
        if weight_decay < 0.0:
            raise ValueError(f"Invalid weight_decay value: {weight_decay}")
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        _check_kernels(foreach, fused, differentiable)
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
            "foreach": foreach,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name in ("nesterov", "maximize", "differentiable"):
                group.setdefault(name, False)
            for name in ("foreach", "fused"):
                group.setdefault(name, None)

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

    def _step_group(self, group: dict[str, Any]) -> None:
        params, grads = _with_grads(group["params"])
        momentum = group["momentum"]
        buffers: list[Any] = []
        if momentum != 0:
            states = [self.state[parameter] for parameter in params]
            buffers = [state.get("momentum_buffer") for state in states]
        fresh = any(buffer is None for buffer in buffers)
        with tangrad.set_grad_enabled(group["differentiable"]):
            sgd(
                params,
                grads,
                buffers,
                foreach=group["foreach"],
                fused=group["fused"],
                differentiable=group["differentiable"],
                weight_decay=group["weight_decay"],
                momentum=momentum,
                lr=_value(group["lr"]),
                dampening=group["dampening"],
                nesterov=group["nesterov"],
                maximize=group["maximize"],
            )
        if fresh:
            for state, buffer in zip(states, buffers, strict=True):
                state["momentum_buffer"] = buffer


def sgd(
    params: list[Any],
    d_p_list: list[Any],
    momentum_buffer_list: list[Any],
    has_sparse_grad: bool = False,
    foreach: bool | None = None,
    fused: bool | None = None,
    grad_scale: Any = None,
    found_inf: Any = None,
    differentiable: bool = False,
    *,
    weight_decay: float,
    momentum: float,
    lr: float,
    dampening: float,
    nesterov: bool,
    maximize: bool,
) -> None:
    """Update `params` and `momentum_buffer_list` in place; see `SGD`.

    Args:
        params: the parameters.
        d_p_list: their gradients.
        momentum_buffer_list: their momentum; None stands for a buffer yet to be made.
        has_sparse_grad: ignored.
        foreach: False updates one parameter after the other.
        fused: as `foreach`.
        grad_scale: number by which the gradients are divided first.
        found_inf: when true, nothing is updated.
        differentiable: let autograd record the update.
        weight_decay: see `SGD`.
        momentum: see `SGD`.
        lr: see `SGD`.
        dampening: see `SGD`.
        nesterov: see `SGD`.
        maximize: see `SGD`.
    """
    if found_inf is not None and bool(found_inf):
        return
    if grad_scale is not None:
        d_p_list = [grad / grad_scale for grad in d_p_list]
    how: dict[str, Any] = {
        "weight_decay": tangrad.sym_float(weight_decay),
        "momentum": tangrad.sym_float(momentum),
        "lr": tangrad.sym_float(lr),
        "dampening": tangrad.sym_float(dampening),
        "nesterov": nesterov,
        "maximize": maximize,
    }
    fresh = []
    if momentum != 0:
        fresh = [i for i, buffer in enumerate(momentum_buffer_list) if buffer is None]
        for i in fresh:
            momentum_buffer_list[i] = tangrad.empty_like(params[i])
    if not _at_once(params, foreach, fused, differentiable):
        for i, (parameter, grad) in enumerate(zip(params, d_p_list, strict=True)):
            buffer = momentum_buffer_list[i] if momentum != 0 else None
            sgd_update(parameter, grad, buffer, is_first_step=i in fresh, **how)
        return
    if not fresh or len(fresh) == len(params):
        buffers = momentum_buffer_list if momentum != 0 else []
        tangrad._fused_sgd_(params, d_p_list, buffers, is_first_step=bool(fresh), **how)
        return
    later = [i for i in range(len(params)) if i not in fresh]
    for chosen, is_first_step in ((fresh, True), (later, False)):
        lists = ([some[i] for i in chosen] for some in (params, d_p_list, momentum_buffer_list))
        tangrad._fused_sgd_(*lists, is_first_step=is_first_step, **how)
