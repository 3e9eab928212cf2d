"""Distances of tensors, and questions about nodes of a graph."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import tangrad
from tangrad import fx, nn
from tangrad_quantization.observer import is_observer

__all__ = [
    "compute_cosine_similarity",
    "compute_normalized_l2_error",
    "compute_sqnr",
    "get_arg_indices_of_inputs_to_log",
    "get_normalized_nth_input",
    "get_number_of_non_param_args",
    "get_target_type_str",
    "getattr_from_fqn",
    "return_first_non_observer_node",
]

_OF_TWO = (tangrad.add, operator.add, tangrad.mul, operator.mul)


def _of_numbers(distance: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Have a distance take quantized tensors, and lists and tuples; None for other dtypes."""

    @wraps(distance)
    def measured(x: Any, y: Any) -> Any:
        if isinstance(x, (list, tuple)):
            return [measured(a, b) for a, b in zip(x, y, strict=True)]
        x, y = (t.dequantize() if t.is_quantized else t for t in (x, y))
        if x.dtype != tangrad.float32 or y.dtype != tangrad.float32:
            return None
        return distance(x, y)

    return measured


@_of_numbers
def compute_sqnr(x: Any, y: Any) -> Any:
    """Return the ratio of a signal to the noise in another form of it, in decibels.

    Args:
        x: the signal, float32 or quantized; or a list or tuple of such.
        y: its other form, likewise.
    """
    return 20 * tangrad.log10(tangrad.norm(x) / tangrad.norm(x - y))


@_of_numbers
def compute_normalized_l2_error(x: Any, y: Any) -> Any:
    """Return the Euclidean distance of two tensors, in units of the first's length.

    Args:
        x: float32 or quantized; or a list or tuple of such.
        y: likewise.
    """
    return ((x - y).square().sum() / x.square().sum()).sqrt()


@_of_numbers
def compute_cosine_similarity(x: Any, y: Any) -> Any:
    """Return the cosine of the angle between two tensors, of all their elements.

    Args:
        x: float32 or quantized; or a list or tuple of such.
        y: likewise.
    """
    return nn.functional.cosine_similarity(x.reshape(1, -1), y.reshape(1, -1))


def getattr_from_fqn(obj: Any, fqn: str) -> Any:
    """Return the attribute of a dotted name."""
    for name in fqn.split("."):
        obj = getattr(obj, name)
    return obj


def called_module(node: Any, model: Any) -> Any:
    """Return the module that a node calls; None for other nodes."""
    if not isinstance(node, fx.Node) or node.op != "call_module":
        return None
    return getattr_from_fqn(model, str(node.target))


def observes(node: Any, model: Any) -> bool:
    """Return whether a node calls an observer or a fake quantization."""
    return is_observer(called_module(node, model))


def return_first_non_observer_node(node: fx.Node, gm: Any) -> fx.Node:
    """Return the node whose value an observer sees; other nodes themselves."""
    while observes(node, gm):
        node = node.args[0]  # type: ignore[assignment]
    return node


def get_normalized_nth_input(node: fx.Node, gm: Any, idx: int) -> Any:
    """Return an argument of a node, whether it was given by its place or by name.

    Raises:
        AssertionError: there are fewer.
    """
    given = [*node.args, *node.kwargs.values()]
    if idx >= len(given):
        raise AssertionError(
            f"'{node.name}' has {len(given)} arguments, and number {idx} was asked for"
        )
    return given[idx]


def get_number_of_non_param_args(node: fx.Node, gm: Any) -> int:
    """Return how many of a node's first arguments are no parameters: of LSTMs two, else one."""
    return 2 if isinstance(called_module(node, gm), nn.LSTM) else 1


def get_arg_indices_of_inputs_to_log(node: fx.Node) -> list[int]:
    """Return the places of a node's inputs that are kept: of sums and products both, else one."""
    from tangrad_quantization import functional

    if not node.args:
        return []
    if node.op == "call_function" and node.target in (*_OF_TWO, functional.add, functional.mul):
        return [n for n in range(2) if isinstance(node.args[n], fx.Node)]
    return [0]


def target_type(node: fx.Node, gm: Any) -> Any:
    """Return the function, type of module or name of a method that a node calls, or None."""
    if node.op == "call_module":
        return type(called_module(node, gm))
    return node.target if node.op in ("call_function", "call_method") else None


def get_target_type_str(node: fx.Node, gm: Any) -> str:
    """Return what a node calls, as text; "" for nodes that call nothing."""
    found = target_type(node, gm)
    if found is None:
        return ""
    if isinstance(found, str):
        return found
    name = getattr(found, "__qualname__", None) or found.__name__
    return f"{getattr(found, '__module__', None) or 'tangrad'}.{name}"


def op_type_supports_shadowing(node: fx.Node) -> bool:
    """Return whether another node may run beside one: not beside such of several tensors."""
    several = (*_OF_TWO, tangrad.cat, tangrad.stack)
    return not (node.op == "call_function" and node.target in several)


def nodes_in(argument: Any) -> Iterator[fx.Node]:
    """Return the nodes in an argument."""
    if isinstance(argument, fx.Node):
        yield argument
    elif isinstance(argument, (list, tuple)):
        for part in argument:
            yield from nodes_in(part)
    elif isinstance(argument, dict):
        yield from nodes_in(list(argument.values()))
