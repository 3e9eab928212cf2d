"""In-place reuse: a pointwise result takes the memory of an operand that dies there.

Rule: one loop reads each element before it writes it, so a result of an operand's type may lie
where the operand lies, if no later node reads that operand and no other operand shows its memory.
"""

from __future__ import annotations

from tangrad_jit.graph.ir import Graph, Node, Value
from tangrad_jit.graph.types import TensorType

__all__ = ["partners"]


def partners(graph: Graph, movable: set[Value], last: dict[Value, int]) -> dict[Value, Value]:
    """Return result -> the operand whose memory it takes.

    Args:
        graph: the graph.
        movable: roots that have a place in the arena.
        last: root -> place of the last node that uses it.
    """
    found: dict[Value, Value] = {}
    for place, node in enumerate(graph.nodes):
        if node.form != "call" or node.op.kind != "pointwise" or len(node.results) != 1:
            continue
        result = node.results[0]
        if result not in movable:
            continue
        operand = _dying(node, result, place, movable, last)
        if operand is not None:
            found[result] = operand
    return found


def _dying(
    node: Node, result: Value, place: int, movable: set[Value], last: dict[Value, int]
) -> Value | None:
    for item in node.args:
        if not isinstance(item, Value) or item.root is not item or item not in movable:
            continue
        if last.get(item) != place or item.type != result.type:
            continue
        if not isinstance(item.type, TensorType) or 0 in item.type.stride:
            continue
        shared = [v for v in node.inputs if v.root is item and v is not item]
        if not shared:
            return item
    return None
