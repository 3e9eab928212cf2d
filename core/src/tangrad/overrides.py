"""Take over calls on tensors, or let another class do so: `__torch_function__`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from tangrad import _C
from tangrad.dispatch.overrides import (
    TorchFunctionMode,
    handle_torch_function,
    has_torch_function,
    has_torch_function_unary,
    has_torch_function_variadic,
)

__all__ = [
    "TorchFunctionMode",
    "handle_torch_function",
    "has_torch_function",
    "has_torch_function_unary",
    "has_torch_function_variadic",
    "is_tensor_like",
    "wrap_torch_function",
]


def is_tensor_like(inp: Any) -> bool:
    """Return whether an object is a tensor, or takes over calls by `__torch_function__`."""
    return type(inp) is _C.Tensor or hasattr(inp, "__torch_function__")


def wrap_torch_function(
    dispatcher: Callable[..., Any],
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that lets `__torch_function__` take over a Python function.

    Args:
        dispatcher: takes the function's arguments, and returns a tuple of those whose classes may
            take the call over.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def offered(*args: Any, **kwargs: Any) -> Any:
            relevant = dispatcher(*args, **kwargs)
            if has_torch_function(relevant):
                return handle_torch_function(offered, relevant, *args, **kwargs)
            return function(*args, **kwargs)

        return offered

    return decorate
