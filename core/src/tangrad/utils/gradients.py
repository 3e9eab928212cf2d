"""What modules and optimizers both do to gradients."""

from __future__ import annotations

from typing import Any


def clear_grad(parameter: Any, set_to_none: bool) -> None:
    """Drop the gradient of `parameter`, or cut it from its graph and fill it with zeros."""
    if parameter.grad is None:
        return
    if set_to_none:
        parameter.grad = None
        return
    if parameter.grad.grad_fn is not None:
        parameter.grad.detach_()
    else:
        parameter.grad.requires_grad = False
    parameter.grad.zero_()
