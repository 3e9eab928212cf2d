"""Find the nodes of a graph that come from one module or function of the program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tangrad_fx.graph import Graph
from tangrad_fx.node import Node

__all__ = ["SourcePartition", "check_subgraphs_connected", "get_source_partitions"]


@dataclass
class SourcePartition:
    """Nodes that come from one call of a module or function.

    Attributes:
        nodes: the nodes.
        source: class of the module, or the function.
        input_nodes: nodes outside that they use.
        output_nodes: those of them that others use.
        params: those of them that read attributes.
    """

    nodes: list[Node]
    source: Any
    input_nodes: list[Node] = field(default_factory=list)
    output_nodes: list[Node] = field(default_factory=list)
    params: list[Node] = field(default_factory=list)


def get_source_partitions(
    graph: Graph,
    wanted_sources: Sequence[Any],
    filter_fn: Callable[[Node], bool] | None = None,
) -> dict[Any, list[SourcePartition]]:
    """Return the nodes of each call of some classes of modules or functions.

    Args:
        graph: of an exported program, whose nodes say in which modules they run
            (`meta["nn_module_stack"]`).
        wanted_sources: classes of modules, and functions.
        filter_fn: which nodes are looked at.

    Returns:
        {source: its calls, in the order of the graph}.
    """
    calls: dict[Any, dict[str, list[Node]]] = {}
    for node in graph.nodes:
        if filter_fn is None or filter_fn(node):
            for source, call in _sources_of(node, wanted_sources):
                calls.setdefault(source, {}).setdefault(call, []).append(node)
    return {
        source: [_partition(source, nodes) for nodes in by_call.values()]
        for source, by_call in calls.items()
    }


def _sources_of(node: Node, wanted: Sequence[Any]) -> Iterator[tuple[Any, str]]:
    """Give the wanted source of a node, if it has one, and the call of it."""
    for call, (_, kind) in reversed(node.meta.get("nn_module_stack", {}).items()):
        for source in wanted:
            if isinstance(source, type) and kind in (source, _full_name(source)):
                yield source, str(call)
                return
    if node.op == "call_function" and node.target in wanted:
        yield node.target, node.name


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _partition(source: Any, nodes: list[Node]) -> SourcePartition:
    own = set(nodes)
    used = dict.fromkeys(n for node in nodes for n in node.all_input_nodes if n not in own)
    return SourcePartition(
        nodes,
        source,
        [n for n in used if n.op != "get_attr"],
        [node for node in nodes if any(user not in own for user in node.users)],
        [node for node in nodes if node.op == "get_attr"] + [n for n in used if n.op == "get_attr"],
    )


def check_subgraphs_connected(subgraph1: SourcePartition, subgraph2: SourcePartition) -> bool:
    """Return whether the second uses what the first gives."""
    own = set(subgraph1.nodes)
    return any(used in own for node in subgraph2.nodes for used in node.all_input_nodes)
