"""Branches and loops as functions: `cond` and `while_loop`, run at once.

A `TorchFunctionMode` is offered them as a whole, so that `tangrad.export` keeps them in its graph.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tangrad import _C
from tangrad.dispatch.overrides import handle_torch_function, has_torch_function


class _Keeping(threading.local):
    held = False


_keeping = _Keeping()


def keeps_branches() -> bool:
    """Return whether a tracer of this thread keeps `cond` and `while_loop` in its graph.

    A language of its own, as scripts are one, then calls them where a condition is a tensor.
    """
    return _keeping.held


@contextmanager
def keeping_branches(keeps: bool = True) -> Iterator[None]:
    """Have `keeps_branches` say so in the body, in this thread."""
    before, _keeping.held = _keeping.held, keeps
    try:
        yield
    finally:
        _keeping.held = before


def _truth(name: str, value: Any) -> bool:
    if isinstance(value, _C.Tensor):
        if value.numel() != 1 or value.dtype.name != "bool":
            raise RuntimeError(
                f"{name}: expected a bool or a bool tensor with a single element, got "
                f"{value.dtype}{list(value.shape)}"
            )
        return bool(value)
    if not isinstance(value, (bool, int)):
        raise RuntimeError(
            f"{name}: expected a bool or a bool tensor with a single element, got "
            f"{type(value).__name__}"
        )
    return bool(value)


def cond(
    pred: Any,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    operands: Sequence[Any] = (),
) -> Any:
    """Call one of two functions, chosen by a truth value.

    Args:
        pred: a bool, or a bool tensor of one element.
        true_fn, false_fn: called with the operands where `pred` is true, or false.
        operands: a tuple or list of arguments.

    Raises:
        RuntimeError: an argument is not of these kinds.
    """
    for name, function in (("true_fn", true_fn), ("false_fn", false_fn)):
        if not callable(function):
            raise RuntimeError(f"cond: {name} must be callable, got {type(function).__name__}")
    if not isinstance(operands, (tuple, list)):
        raise RuntimeError(
            f"cond: operands must be a tuple or list of arguments, got {type(operands).__name__}"
        )
    if isinstance(pred, _C.Tensor) and has_torch_function(()):
        return handle_torch_function(cond, (), pred, true_fn, false_fn, operands)
    return (true_fn if _truth("cond", pred) else false_fn)(*operands)


def while_loop(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Sequence[Any]
) -> Any:
    """Call a function on its own results as long as a condition holds of them.

    Args:
        cond_fn: of the carried values: a bool, or a bool tensor of one element.
        body_fn: of the carried values: their successors, of the same shapes and dtypes.
        carried_inputs: the first values, a tuple or list.

    Returns:
        The values for which the condition does not hold.

    Raises:
        RuntimeError: an argument is not of these kinds, or the values change in kind.
    """
    if not callable(cond_fn) or not callable(body_fn):
        raise RuntimeError("while_loop: cond_fn and body_fn must be callable")
    if not isinstance(carried_inputs, (tuple, list)):
        raise RuntimeError(
            "while_loop: carried_inputs must be a tuple or list, got "
            f"{type(carried_inputs).__name__}"
        )
    if has_torch_function(()):
        return handle_torch_function(while_loop, (), cond_fn, body_fn, carried_inputs)
    values = tuple(carried_inputs)
    while _truth("while_loop", cond_fn(*values)):
        found = body_fn(*values)
        following = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        _require_same_kinds(values, following)
        values = following
    return values


def _kind(value: Any) -> Any:
    if isinstance(value, _C.Tensor):
        return f"{value.dtype}{list(value.shape)}"
    return type(value).__name__


def _require_same_kinds(before: tuple[Any, ...], after: tuple[Any, ...]) -> None:
    if [_kind(v) for v in before] != [_kind(v) for v in after]:
        raise RuntimeError(
            "while_loop: body_fn must return values like those it takes, but took "
            f"{[_kind(v) for v in before]} and returned {[_kind(v) for v in after]}"
        )
