"""The base of optimizers that update each parameter from its own gradient and state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import tangrad
from tangrad.optim.optimizer import Optimizer, _evaluate, _step_number
from tangrad.plugin import number_of

__all__ = ["ElementwiseOptimizer"]

# What these options mean when a saved group lacks them.
_ABSENT = {
    "foreach": None,
    "fused": None,
    "maximize": False,
    "differentiable": False,
    "capturable": False,
    "decoupled_weight_decay": False,
}


def ranges_of_moments(betas: Any, eps: float, weight_decay: float) -> list[tuple[bool, str]]:
    """Return what is asked of the options of an optimizer that keeps two moments, as `ranges`."""
    return [
        (eps >= 0.0, f"Invalid epsilon value: {eps}"),
        *(
            (0.0 <= beta < 1.0, f"Invalid beta parameter at index {place}: {beta}")
            for place, beta in enumerate(betas)
        ),
        (weight_decay >= 0.0, f"Invalid weight_decay value: {weight_decay}"),
    ]


class ElementwiseOptimizer(Optimizer):
    """An optimizer whose step is a formula of one parameter, its gradient and its state.

    A subclass defines `_start`, which makes the state before the first step, and `_update`. Of a
    complex parameter both see the real and imaginary parts as a last dimension of two.

    Args:
        params: parameters, or groups of them.
        defaults: options of groups that do not give them.
        ranges: (whether it is legal, what to say if not) of each option to check.

    Raises:
        ValueError: if an option is not legal, or the learning rate is a tensor of several numbers.
    """

    # Options that files of earlier versions lack.
    _absent: ClassVar[dict[str, Any]] = _ABSENT
    # Whether the number of steps, as PyTorch keeps it, is a tensor.
    _counts_in_tensors = True
    # Whether it steps along the gradients of sparse tensors.
    _takes_sparse = False

    def __init__(
        self, params: Any, defaults: dict[str, Any], ranges: list[tuple[bool, str]]
    ) -> None:
        lr = defaults["lr"]
        if isinstance(lr, tangrad.Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        for legal, message in [(lr >= 0.0, f"Invalid learning rate: {lr}"), *ranges]:
            if not legal:
                raise ValueError(message)
        super().__init__(params, defaults)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in self._absent.items():
                if name in self.defaults:
                    group.setdefault(name, value)
            for parameter in group["params"] if self._counts_in_tensors else ():
                held = self.state.get(parameter, {})
                # Once the number of steps was kept as a Python number.
                if "step" in held and not isinstance(held["step"], tangrad.Tensor):
                    held["step"] = _step_number() + float(held["step"])

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters once.

        Args:
            closure: evaluates the model again and returns the loss.

        Returns:
            The loss of the closure, or None.
        """
        loss = _evaluate(closure)
        for group in self.param_groups:
            with tangrad.set_grad_enabled(group.get("differentiable", False)):
                for parameter in group["params"]:
                    grad = parameter.grad
                    if grad is None:
                        continue
                    if grad.layout is not tangrad.strided and not self._takes_sparse:
                        name = type(self).__name__
                        raise RuntimeError(f"{name} does not support sparse gradients")
                    self._step_parameter(parameter, group)
        return loss

    def _step_parameter(self, parameter: Any, group: dict[str, Any]) -> None:
        grad = parameter.grad
        state = self.state[parameter]
        if not state:
            state.update(self._start(parameter, group))
        if group.get("maximize"):
            grad = -grad
        if parameter.is_complex():
            real = tangrad.view_as_real
            seen = {
                key: real(value)
                if isinstance(value, tangrad.Tensor) and value.is_complex()
                else value
                for key, value in state.items()
            }
            self._update(real(parameter), real(grad.resolve_conj()), seen, group)
        else:
            self._update(parameter, grad, state, group)

    def _start(self, parameter: Any, group: dict[str, Any]) -> dict[str, Any]:
        """Return the state before the first step."""
        raise NotImplementedError

    def _update(
        self, parameter: Any, grad: Any, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        """Update `parameter` and the tensors in `state` in place."""
        raise NotImplementedError


def decayed(grad: Any, parameter: Any, group: dict[str, Any]) -> Any:
    """Return the gradient of the loss with its penalty; decoupled, shrink the parameter instead."""
    decay = group["weight_decay"]
    if decay == 0:
        return grad
    if group.get("decoupled_weight_decay"):
        parameter.mul_(1 - group["lr"] * decay)
        return grad
    return grad.add(parameter, alpha=decay)


def counted(state: dict[str, Any]) -> float:
    """Count a step, and return how many there were."""
    state["step"] += 1
    return tangrad.sym_float(number_of(state["step"]))
