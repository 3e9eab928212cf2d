"""Copies and views that show all of their source are the source, where nobody can tell.

Rule: a clone of memory that the graph makes is replaced by its source if neither is written
afterwards and not both leave the graph; a view by what it is a view of, or that is a view of, ...,
if that has the same geometry.
"""

from __future__ import annotations

from typing import Any

from tangrad_jit.graph.ir import Graph, Node, Value
from tangrad_jit.passes.facts import Facts, same_type

__all__ = ["eliminate_copies"]


def eliminate_copies(graph: Graph) -> int:
    """Replace copies by what they copy; return how many."""
    facts = Facts(graph)
    replaced: dict[Value, Any] = {}
    kept: list[Node] = []
    for place, node in enumerate(graph.nodes):
        source = _source(node)
        while source is not None and source in replaced:
            source = replaced[source]
        if source is not None and _may_go(node, source, place, facts):
            replaced[node.results[0]] = source
            facts.last[source.root] = max(facts.last[source.root], facts.last[node.results[0].root])
            if node.results[0].root in facts.returned:
                facts.returned.add(source.root)
            continue
        kept.append(node)
    dropped = len(graph.nodes) - len(kept)
    graph.nodes = kept
    graph.replace(replaced)
    return dropped


def _source(node: Node) -> Value | None:
    """Return what a node's only result is a copy or a full view of, or None."""
    if node.form != "call" or len(node.results) != 1 or not node.args:
        return None
    source, result = node.args[0], node.results[0]
    if not isinstance(source, Value):
        return None
    if node.op.kind == "view":
        return _shown(source, result)
    return source if node.name == "clone" and same_type(result, source) else None


def _shown(source: Value | None, result: Value) -> Value | None:
    """Return what a view of a view, ..., shows as it is: `x.t().t()` is `x`."""
    while source is not None:
        if same_type(result, source) and result.offset == source.offset:
            return source
        source = source.view_of
    return None


def _may_go(node: Node, source: Value, place: int, facts: Facts) -> bool:
    result = node.results[0]
    if node.op.kind == "view":
        # A view is its source, whoever writes it; but an object that leaves is one of its own.
        return result.root not in facts.returned
    if result.root in facts.returned and result.type != source.type:
        return False  # strides are seen, also those of no elements and of single ones
    return facts.may_alias(result, source, place)
