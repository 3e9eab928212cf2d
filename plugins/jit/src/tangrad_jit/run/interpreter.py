"""Run a graph node by node: slow and right, on any device, any number of runs at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tangrad
from tangrad.plugin import call_recorded, call_unrecorded
from tangrad_jit.graph.ir import DRAW, Graph, Node, Value, map_values

__all__ = ["interpret", "run_node"]


def interpret(graph: Graph, inputs: Sequence[Any]) -> list[Any]:
    """Run a graph without recording.

    Args:
        graph: the graph.
        inputs: tensors and numbers, in the order of the graph's inputs.

    Returns:
        Its outputs.
    """
    if tangrad.is_grad_enabled():
        made: list[Any] = call_unrecorded(_interpret, graph, inputs)
        return made
    return _interpret(graph, inputs)


def _interpret(graph: Graph, inputs: Sequence[Any]) -> list[Any]:
    env: dict[Value, Any] = {}
    copied = {entry.value for entry in graph.fresh_constants()}
    for given, item in zip(graph.inputs, inputs, strict=True):
        if given.value in copied:
            item = item.clone()
        # What is written through `.data` keeps its version.
        env[given.value] = item if given.counted else item.data
    for node in graph.nodes:
        try:
            run_node(node, env)
        except Exception as error:
            place = " ".join(part for part in (node.module, node.line) if part)
            if place:
                error.add_note(f"in the compiled graph, at {place}")
            raise
    return [map_values(env.__getitem__, item) for item in graph.outputs]


def run_node(node: Node, env: dict[Value, Any]) -> None:
    """Run one node, reading and writing the values of an environment."""
    args = map_values(env.__getitem__, node.args)
    if node.op.kind == "number":
        made: Any = node.op.compute(*args)
    elif node.form == DRAW:
        made = node.op.definition.draw(args)
    elif node.form == "inplace":
        made = call_recorded(node.op, args, args[0], True)
    elif node.form == "out":
        outs = tuple(env[value] for value in node.outs)
        made = call_recorded(node.op, args, outs[0] if len(outs) == 1 else outs, False)
    else:
        made = call_recorded(node.op, args, None, False)
    if not node.results:
        return
    several = made if isinstance(made, (tuple, list)) else (made,)
    for value, item in zip(node.results, several, strict=True):
        env[value] = item
