"""Copies and views that show all of their source are the source, where nobody can tell.

Rule: a clone of memory that the graph makes, or a view of the same geometry, is replaced by its
source if neither is written afterwards and not both leave the graph.
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
    source = node.args[0]
    if not isinstance(source, Value) or not same_type(node.results[0], source):
        return None
    if node.name == "clone" or (node.op.kind == "view" and node.results[0].offset == source.offset):
        return source
    return None


def _may_go(node: Node, source: Value, place: int, facts: Facts) -> bool:
    result = node.results[0]
    if node.op.kind == "view":
        # A view is its source, whoever writes it; but an object that leaves is one of its own.
        return result.root not in facts.returned
    return facts.may_alias(result, source, place)
