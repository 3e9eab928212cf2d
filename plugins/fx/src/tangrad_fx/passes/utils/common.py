"""Graphs compared, and made modules of."""

from __future__ import annotations

from tangrad.nn import Module
from tangrad_fx.graph import Graph
from tangrad_fx.graph_module import GraphModule, _assign_attr, _get_attr
from tangrad_fx.passes.utils.matcher_utils import SubgraphMatcher

__all__ = ["HolderModule", "compare_graphs", "lift_subgraph_as_module"]


class HolderModule(Module):
    """Hold modules by name.

    Args:
        d: {name: module}.
    """

    def __init__(self, d: dict[str, Module]) -> None:
        super().__init__()
        for name, module in d.items():
            self.add_module(name, module)


def lift_subgraph_as_module(
    gm: GraphModule, subgraph: Graph, comp_name: str = "", class_name: str = "GraphModule"
) -> tuple[GraphModule, dict[str, str]]:
    """Return a module for a graph of nodes of another module, with the attributes it uses.

    Args:
        gm: the module that has them.
        subgraph: the graph.
        comp_name: what the result will be called in a module that holds it.
        class_name: name of the result's class.

    Returns:
        The module, and {path in `gm`: path in it, behind `comp_name`}.
    """
    holder, paths = HolderModule({}), {}
    for node in subgraph.nodes:
        if node.op in ("call_module", "get_attr"):
            target = str(node.target)
            _assign_attr(_get_attr(gm, target), holder, target)
            paths[target] = f"{comp_name}.{target}" if comp_name else target
    return GraphModule(holder, subgraph, class_name), paths


def compare_graphs(left: Graph, right: Graph) -> bool:
    """Return whether two graphs are the same but for the names of their nodes."""
    matcher = SubgraphMatcher(left, match_output=True, match_placeholder=True)
    return len(matcher.match(right)) > 0
