"""Dead code: a node goes whose results nobody wants and whose effects nobody sees.

Writes are seen if they reach memory that the graph is given, that leaves it, or that a later node
reads. Random draws stay: they move a generator on, as in eager. So do checks, which raise.
"""

from __future__ import annotations

from tangrad_jit.graph.ir import Graph, Node, Value

__all__ = ["remove_dead_code"]

_SEEN = frozenset(("random", "communicate", "check"))


def remove_dead_code(graph: Graph) -> int:
    """Remove dead nodes; return how many there were."""
    given = {entry.value for entry in graph.inputs}
    wanted: set[Value] = set(graph.returned())
    roots = {value.root for value in wanted}
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        seen = any(value in wanted for value in node.results)
        seen = seen or any(value.root in given or value.root in roots for value in node.written)
        seen = seen or not _SEEN.isdisjoint(node.effects)
        if not seen:
            continue
        kept.append(node)
        for value in node.inputs:
            wanted.add(value)
            roots.add(value.root)
        for value in node.results:
            roots.add(value.root)
            if value.view_of is not None:
                wanted.add(value.view_of)
    removed = len(graph.nodes) - len(kept)
    graph.nodes = kept[::-1]
    return removed
