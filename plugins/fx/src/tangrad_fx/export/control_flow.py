"""Keep the branches and loops of a program, `tangrad.cond` and `tangrad.while_loop`, in its graph.

Both functions of a call are run on the example, once, whatever the condition says there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tangrad
from tangrad import Tensor
from tangrad.utils import _pytree
from tangrad_fx.export.nested import Functions
from tangrad_fx.higher_order.while_loop import while_loop_op

__all__ = ["FUNCTIONS", "record"]

Recorder = Any  # of `tracing.py`, which asks here
FUNCTIONS = (tangrad.cond, tangrad.while_loop)


def record(recorder: Recorder, function: Any, *args: Any) -> Any:
    """Run a call of `cond` or `while_loop` and make a node of it.

    Raises:
        RuntimeError: the functions give values that are no tensors, or of other shapes and dtypes
            than each other; one writes into a tensor from outside of it.
    """
    if function is tangrad.cond:
        return _cond(recorder, *args)
    return _loop(recorder, *args)


class _Traced(NamedTuple):
    leaves: list[Any]
    spec: Any


def _cond(recorder: Recorder, pred: Tensor, *rest: Any) -> Any:
    true_fn, false_fn, operands = rest
    holds = tangrad.cond(pred, lambda: True, lambda: False)
    condition = recorder.given(pred)
    functions = Functions(recorder.graph)
    names = "true_fn", "false_fn"
    first, second = (
        _traced(recorder, functions, f"cond: {name}", function, operands)
        for name, function in zip(names, (true_fn, false_fn), strict=True)
    )
    if first.spec != second.spec or _kinds(first.leaves) != _kinds(second.leaves):
        raise RuntimeError(
            "cond: true_fn and false_fn must return tensors of the same nesting, shapes and "
            f"dtypes, got {_kinds(first.leaves)} and {_kinds(second.leaves)}"
        )
    taken = first if holds else second
    node = functions.call(tangrad.cond, condition, **recorder.place())
    return _results(recorder, node, taken.leaves, taken.spec)


def _loop(
    recorder: Recorder,
    cond_fn: Callable[..., Any],
    body_fn: Callable[..., Any],
    carried_inputs: Sequence[Any],
) -> Any:
    carried = tuple(carried_inputs)
    if not all(isinstance(t, Tensor) for t in carried):
        with recorder:  # decided by Python's numbers: the graph holds each round
            values = carried
            while bool(cond_fn(*values)):
                found = body_fn(*values)
                values = tuple(found) if isinstance(found, (tuple, list)) else (found,)
            return values
    functions = Functions(recorder.graph)
    for t in carried:
        functions.add(recorder.given(t))
    condition = _traced(recorder, functions, "while_loop: cond_fn", cond_fn, carried, True)
    tangrad.cond(condition.leaves[0], lambda: True, lambda: False)  # refuses what is no truth value
    body = _traced(recorder, functions, "while_loop: body_fn", body_fn, carried, True)
    if _kinds(body.leaves) != _kinds(carried):
        raise RuntimeError(
            "while_loop: body_fn must return values like those it takes, but took "
            f"{_kinds(carried)} and returned {_kinds(body.leaves)}"
        )
    _return_one(functions.graphs[0])
    node = functions.call(while_loop_op, carried=len(carried), **recorder.place())
    # One round stands for all: a loop in a branch that the example does not take need not end.
    return _results(recorder, node, body.leaves, _pytree.tree_structure(carried))


def _traced(
    recorder: Recorder,
    functions: Functions,
    name: str,
    function: Callable[..., Any],
    operands: Sequence[Any],
    carried: bool = False,
) -> _Traced:
    """Run a function and keep its graph.

    Args:
        recorder: of the graph of the call.
        functions: of the call, among which the graph is put.
        name: for errors.
        function: the function.
        operands: what it is given.
        carried: whether the operands are inputs of the graph by themselves.
    """
    inner = recorder.inside(functions)
    given = tuple(operands)
    if carried:
        given = tuple(t.view_as(t) for t in operands)
        for t, node in zip(given, functions.inputs(inner.graph), strict=False):
            inner.follow(t, node)
    with inner:
        result = function(*given)
    inner.note_modes()
    if inner.writes_outside:
        raise RuntimeError(
            f"{name}: a function writes into a tensor from outside of it, which a graph cannot "
            "keep; return the new value instead"
        )
    leaves, spec = _pytree.tree_flatten(result)
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise RuntimeError(f"{name} must return tensors, got {type(leaf).__name__}")
    inner.graph.output(tuple(inner.given(leaf) for leaf in leaves))
    return _Traced(leaves, spec)


def _results(recorder: Recorder, node: Any, leaves: list[Any], spec: Any) -> Any:
    """Return results as tensors of their own: a function may hand on what it is given."""
    fresh = [t.clone() for t in leaves]
    recorder.track(fresh, node)
    return _pytree.tree_unflatten(fresh, spec)


def _return_one(graph: Any) -> None:
    """Have a graph return its only result as it is."""
    output = next(node for node in graph.nodes if node.op == "output")
    output.args = (output.args[0][0],)


def _kinds(leaves: Sequence[Any]) -> list[str]:
    return [f"{t.dtype}{list(t.shape)}" for t in leaves]
