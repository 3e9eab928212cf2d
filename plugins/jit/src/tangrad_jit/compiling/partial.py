"""Backward graphs for some of the results alone: what the others would add is left out.

A backward graph takes the gradient of each result. Where a caller differentiates some of them, the
others' gradients are not zeros but nothing: zeros would give nan where a derivative is infinite,
and gradients of what only the other results were computed from.
"""

from __future__ import annotations

from typing import Any

from tangrad.plugin import find_op
from tangrad_jit.graph.ir import Graph, Node, Value
from tangrad_jit.graph.types import TensorType

__all__ = ["backward_of"]


def backward_of(graph: Graph, present: tuple[bool, ...], device_of: Any) -> tuple[Graph, list[int]]:
    """Return a backward graph for some results, and which of the outputs it still has.

    Derivatives are linear in the gradients of results, so what depends on absent ones alone is
    nothing: a sum with it is the other summand, and other ops are given zeros in its place.

    Args:
        graph: of all results, before any pass; its tangents are those of the results, in order.
        present: of which results there is a gradient. device_of: a device of its name.
    """
    made = graph.copy()
    tangents = [entry.value for entry in made.inputs if entry.kind == "tangent"]
    dependent = set(tangents)
    nothing = {value for value, there in zip(tangents, present, strict=True) if not there}
    zeros: dict[Value, Value] = {}
    replaced: dict[Value, Any] = {}
    nodes: list[Node] = []
    for node in made.nodes:
        asked = [value for value in node.inputs if value in dependent]
        dependent.update(node.results if asked else ())
        missing = [value for value in asked if value in nothing]
        if asked and len(missing) == len(asked):
            nothing.update(node.results)
            continue
        summand = _only_summand(node, nothing) if missing else None
        if summand is not None:
            replaced[node.results[0]] = summand
            continue
        for value in dict.fromkeys(missing):
            if value not in zeros and value not in tangents:
                filled, zeros[value] = _filled_with_zeros(value.type, device_of)
                nodes.extend(filled)
        nodes.append(node)
    made.nodes = nodes
    kept = [k for k, value in enumerate(made.outputs) if value not in nothing]
    made.outputs = [made.outputs[k] for k in kept]
    made.replace({**replaced, **zeros})
    return made, kept


def _only_summand(node: Node, nothing: set[Value]) -> Value | None:
    """Return what a sum is where one of its two summands is nothing."""
    if node.name != "add_plain" or node.form != "call" or len(node.args) != 2:
        return None
    there = [item for item in node.args if not (isinstance(item, Value) and item in nothing)]
    same = len(there) == 1 and isinstance(there[0], Value)
    return there[0] if same and there[0].type == node.results[0].type else None


def _filled_with_zeros(type: TensorType, device_of: Any) -> tuple[list[Node], Value]:
    import tangrad

    dtype = getattr(tangrad, type.dtype)
    args = (type.shape, type.stride, dtype, None, device_of(type.device), False, False)
    new = Node(find_op("empty_strided"), args)
    new.results = [Value(type, new)]
    fill = Node(find_op("fill_"), (new.results[0], 0.0))
    fill.results = [Value(type, fill)]
    fill.results[0].view_of = new.results[0]
    return [new, fill], fill.results[0]
