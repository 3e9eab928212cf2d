"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tangrad
from tangrad.optim.optimizer import (
    Optimizer,
    _check_kernels,
    _evaluate,
    _refuse_tensor_lr,
    _value,
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
        foreach: accepted; the results are the same.
        differentiable: let autograd record the step.
        fused: accepted; the results are the same.

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
        params = [parameter for parameter in group["params"] if parameter.grad is not None]
        keeps_momentum = group["momentum"] != 0
        buffers = [
            self.state[parameter].get("momentum_buffer") if keeps_momentum else None
            for parameter in params
        ]
        with tangrad.set_grad_enabled(group["differentiable"]):
            sgd(
                params,
                [parameter.grad for parameter in params],
                buffers,
                weight_decay=group["weight_decay"],
                momentum=group["momentum"],
                lr=_value(group["lr"]),
                dampening=group["dampening"],
                nesterov=group["nesterov"],
                maximize=group["maximize"],
            )
        if keeps_momentum:
            for parameter, buffer in zip(params, buffers, strict=True):
                self.state[parameter]["momentum_buffer"] = buffer


def sgd(
    params: list[Any],
    d_p_list: list[Any],
    momentum_buffer_list: list[Any],
    has_sparse_grad: bool = False,
    foreach: bool | None = None,
    fused: bool | None = None,
    grad_scale: Any = None,
    found_inf: Any = None,
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
        foreach: ignored.
        fused: ignored.
        grad_scale: number by which the gradients are divided first.
        found_inf: when true, nothing is updated.
        weight_decay: see `SGD`.
        momentum: see `SGD`.
        lr: see `SGD`.
        dampening: see `SGD`.
        nesterov: see `SGD`.
        maximize: see `SGD`.
    """
    if found_inf is not None and bool(found_inf):
        return
    for position, (parameter, grad) in enumerate(zip(params, d_p_list, strict=True)):
        if grad_scale is not None:
            grad = grad / grad_scale
        if maximize:
            grad = -grad
        if weight_decay != 0:
            grad = grad.add(parameter, alpha=weight_decay)
        if momentum != 0:
            buffer = momentum_buffer_list[position]
            if buffer is None:
                buffer = grad.detach().clone()
                momentum_buffer_list[position] = buffer
            else:
                buffer.mul_(momentum).add_(grad, alpha=1 - dampening)
            grad = grad.add(buffer, alpha=momentum) if nesterov else buffer
        parameter.add_(grad, alpha=-lr)
