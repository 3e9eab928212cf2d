"""Functional form: a write into a value that only the graph knows becomes a new value.

Rule: the target has memory of its own made in the graph, of which nothing shows a part, and the op
without its in-place form gives the same dtype and shape. Reads after the write name the new value
already, so nothing else changes.
"""

from __future__ import annotations

from tangrad_jit.graph.ir import Graph, Value
from tangrad_jit.graph.types import NumberType, TensorType
from tangrad_jit.passes.facts import is_whole

__all__ = ["keeps_type", "make_functional"]

_NUMBER = NumberType("float")


def make_functional(graph: Graph) -> int:
    """Turn writes in place into calls; return how many."""
    given = {entry.value for entry in graph.inputs}
    shown: set[Value] = set()
    for node in graph.nodes:
        for value in node.results:
            if value.view_of is not None and (node.op.kind == "view" or not is_whole(value)):
                shown.add(value.root)
    changed = 0
    for node in graph.nodes:
        if node.form != "inplace" or node.op.kind != "pointwise" or len(node.results) != 1:
            continue
        target, result = node.args[0], node.results[0]
        if target.root in given or target.root in shown or not is_whole(target):
            continue
        if not keeps_type(node.args, target) or "promoted" not in node.op.definition.results:
            continue
        node.form = "call"
        result.view_of, result.offset = None, 0
        changed += 1
    return changed


def keeps_type(args: tuple[object, ...], target: Value) -> bool:
    """Return whether all tensors are of the target's dtype and no larger than it."""
    assert isinstance(target.type, TensorType)
    for item in args:
        if not isinstance(item, Value) or item.type == _NUMBER:
            continue
        if not isinstance(item.type, TensorType) or item.type.dtype != target.type.dtype:
            return False
        lead = len(target.type.shape) - len(item.type.shape)
        if lead < 0 or any(
            own not in (1, whole)
            for own, whole in zip(item.type.shape, target.type.shape[lead:], strict=True)
        ):
            return False
    return target.type.dtype in ("float16", "bfloat16", "float32", "float64")
