"""In-place reuse: a pointwise result takes the memory of an operand that dies there.

Rule: one loop reads each element before it writes it, so a result of an operand's type may lie
where the operand lies, if no later node reads that operand and no other operand shows its memory.
So may a copy into which a kernel writes lie where the copied lies.
"""

from __future__ import annotations

from tangrad_jit.graph.ir import Graph, Node, Value
from tangrad_jit.graph.types import TensorType
from tangrad_jit.passes.facts import is_whole

__all__ = ["WRITE_INTO_FIRST", "partners"]

#: Ops that copy their first operand and write into the copy; in place, their kernels do the latter.
WRITE_INTO_FIRST = (
    "index_add",
    "index_copy",
    "index_fill",
    "scatter",
    "scatter_add",
)


def partners(graph: Graph, movable: set[Value], last: dict[Value, int]) -> dict[Value, Value]:
    """Return result -> the operand whose memory it takes.

    Args:
        graph: the graph.
        movable: roots that have a place in the arena.
        last: root -> place of the last node that uses it.
    """
    found: dict[Value, Value] = {}
    for place, node in enumerate(graph.nodes):
        if node.form != "call" or len(node.results) != 1:
            continue
        if node.op.kind != "pointwise" and node.name not in WRITE_INTO_FIRST:
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
    args = node.args[:1] if node.name in WRITE_INTO_FIRST else node.args
    for item in args:
        if not isinstance(item, Value) or not is_whole(item) or item.root not in movable:
            continue
        if last.get(item.root) != place or item.type != result.type:
            continue
        if not isinstance(item.type, TensorType) or 0 in item.type.stride:
            continue
        shared = [v for v in node.inputs if v.root is item.root and v is not item]
        if not shared:
            return item.root
    return None
