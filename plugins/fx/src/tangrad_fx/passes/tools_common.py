"""Small things that passes share."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tangrad_fx.graph_module import GraphModule
from tangrad_fx.node import Node

__all__ = ["get_node_target", "legalize_graph", "stable_topological_sort", "topo_sort"]


def get_node_target(submodules: Any, node: Node) -> str:
    """Return what a node calls, as text: the class of a module, the name of a function."""
    if node.op == "call_module":
        module = dict(submodules)[str(node.target)]
        return str(module._get_name())
    if node.op == "call_function":
        return node._pretty_print_target(node.target)
    return str(node.target)


def topo_sort(
    nodes: Sequence[Node], before: Mapping[Node, Collection[Node]] | None = None
) -> list[Node]:
    """Return nodes in an order in which each comes behind those of them that it uses, moving few.

    Args:
        nodes: the nodes.
        before: {node: further nodes behind which it comes}.

    Raises:
        RuntimeError: they use each other in a circle.
    """
    own, placed = set(nodes), set[Node]()
    waiting, order = list(nodes), list[Node]()
    further = before or {}
    while waiting:
        rest = []
        for node in waiting:
            needed = (*node.all_input_nodes, *further.get(node, ()))
            if all(used in placed for used in needed if used in own):
                placed.add(node)
                order.append(node)
            else:
                rest.append(node)
        if len(rest) == len(waiting):
            raise RuntimeError(f"Input graph has cycles, unable to add {[n.name for n in rest]}")
        waiting = rest
    return order


def stable_topological_sort(
    gm: GraphModule, before: Mapping[Node, Collection[Node]] | None = None
) -> GraphModule:
    """Put the nodes into an order in which each comes behind what it uses, moving few.

    Args:
        gm: the module.
        before: {node: further nodes behind which it comes}.

    Raises:
        RuntimeError: nodes use each other in a circle.
    """
    order = topo_sort(list(gm.graph.nodes), before)
    outputs = [n for n in order if n.op == "output"]
    for node in [n for n in order if n.op != "output"] + outputs:
        gm.graph._root.prepend(node)
    return gm


def legalize_graph(gm: GraphModule) -> GraphModule:
    """Put the nodes into an order in which each comes behind what it uses."""
    return stable_topological_sort(gm)
