"""Conditions that libraries ask for by `torch._check` and its kind."""

from __future__ import annotations

from typing import Any

import tangrad

__name__ = "tangrad"  # where PyTorch has them


def _check_with(error_type: type[Exception], cond: Any, message: Any) -> None:
    """Raise an error of a type unless a condition holds.

    Args:
        error_type: the type.
        cond: a bool, or a number that stands for one.
        message: a function that returns the text, or None.

    Raises:
        TypeError: the condition is a tensor or none at all, or the message no function.
    """
    if isinstance(cond, tangrad.Tensor) or (
        not isinstance(cond, (bool, int)) and not hasattr(cond, "hint")
    ):
        raise TypeError(f"cond must be a bool, but got {type(cond)}")
    if cond:
        return
    if message is None:
        raise error_type("Expected cond to be True, but got False")
    if not callable(message):
        raise TypeError("message must be a callable")
    raise error_type(str(message()))


def _check(cond: Any, message: Any = None) -> None:
    """Raise RuntimeError unless a condition holds; `message` is a function."""
    if isinstance(message, str):
        _check_with(RuntimeError, cond, lambda: message)
    else:
        _check_with(RuntimeError, cond, message)


def _check_index(cond: Any, message: Any = None) -> None:
    """Raise IndexError unless a condition holds."""
    _check_with(IndexError, cond, message)


def _check_value(cond: Any, message: Any = None) -> None:
    """Raise ValueError unless a condition holds."""
    _check_with(ValueError, cond, message)


def _check_type(cond: Any, message: Any = None) -> None:
    """Raise TypeError unless a condition holds."""
    _check_with(TypeError, cond, message)


def _check_not_implemented(cond: Any, message: Any = None) -> None:
    """Raise NotImplementedError unless a condition holds."""
    _check_with(NotImplementedError, cond, message)


def _check_is_size(i: Any, message: Any = None, *, max: Any = None) -> None:
    """Raise RuntimeError unless a number may be a size: not negative, and not above `max`."""
    _check(i >= 0, message)
    if max is not None:
        _check(i <= max, message)


def _check_tensor_all_with(error_type: type[Exception], cond: Any, message: Any = None) -> None:
    """Raise an error of a type unless all elements of a tensor of bool are true."""
    if not isinstance(cond, tangrad.Tensor):
        raise TypeError(f"cond must be a tensor, but got {type(cond)}")
    if cond.dtype is not tangrad.bool:
        raise TypeError(f"cond tensor must have dtype torch.bool, but got {cond.dtype}")
    _check_with(error_type, bool(cond.all()), message)


def _check_tensor_all(cond: Any, message: Any = None) -> None:
    """Raise RuntimeError unless all elements of a tensor of bool are true."""
    _check_tensor_all_with(RuntimeError, cond, message)
