"""Replace parts of a graph by calls of modules."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from tangrad_fx.graph import Graph
from tangrad_fx.graph_module import GraphModule
from tangrad_fx.node import Node
from tangrad_fx.passes.tools_common import stable_topological_sort, topo_sort
from tangrad_fx.passes.utils.common import lift_subgraph_as_module

__all__ = [
    "erase_nodes",
    "fuse_as_graphmodule",
    "fuse_by_partitions",
    "insert_subgm",
    "topo_sort",
    "validate_partition",
]


def validate_partition(partition: Sequence[Node]) -> bool:
    """Return whether no path leaves the nodes and comes back."""
    own = set(partition)
    waiting = [user for node in partition for user in node.users if user not in own]
    seen: set[Node] = set()
    while waiting:
        node = waiting.pop()
        if node in own:
            return False
        if node not in seen:
            seen.add(node)
            waiting.extend(node.users)
    return True


def fuse_as_graphmodule(
    gm: GraphModule,
    nodes: Sequence[Node],
    module_name: str,
    partition_lookup_table: dict[Node, int | None] | None = None,
    *,
    always_return_tuple: bool = False,
) -> tuple[GraphModule, tuple[Node, ...], tuple[Node, ...]]:
    """Return nodes as a module of their own, with what it takes and gives.

    Args:
        gm: the module whose nodes they are; it is not changed.
        nodes: the nodes, in an order in which they can run.
        module_name: name of the new module's class.
        partition_lookup_table: accepted; it makes PyTorch's look-ups quicker.
        always_return_tuple: whether one value is returned as a tuple, too.

    Returns:
        The module, the nodes that it takes, and those that others use.

    Raises:
        RuntimeError: a node is not of this module, or paths leave the nodes and come back.
    """
    for node in nodes:
        if node.graph.owning_module is not gm:
            raise RuntimeError(f"node {node.name} is not of the module that was passed")
        if not node._next or node.op in ("placeholder", "output"):
            raise RuntimeError(f"node {node.name} ({node.op}) cannot be part of a module")
    if not validate_partition(nodes):
        raise RuntimeError("Invalid partition, found dependency cycles")
    own, graph = set(nodes), Graph()
    inside: dict[Node, Node] = {}
    taken: dict[Node, None] = {}

    def mapped(used: Node) -> Node:
        if used not in inside:
            inside[used] = graph.placeholder(used.name, used.type)
            inside[used].meta = dict(used.meta)
            taken[used] = None
        return inside[used]

    for node in nodes:
        for used in node.all_input_nodes:
            if used not in own:
                mapped(used)
    for node in nodes:
        inside[node] = graph.node_copy(node, mapped)
    given = tuple(node for node in nodes if any(user not in own for user in node.users))
    results = tuple(inside[node] for node in given)
    graph.output(results[0] if len(results) == 1 and not always_return_tuple else results)
    graph.lint()
    made, _ = lift_subgraph_as_module(gm, graph, comp_name="", class_name=module_name)
    return made, tuple(taken), given


def insert_subgm(
    gm: GraphModule, sub_gm: GraphModule, orig_inputs: Sequence[Node], orig_outputs: Sequence[Node]
) -> GraphModule:
    """Add a module and call it in place of the nodes whose values it gives."""
    name = sub_gm.__class__.__name__
    gm.add_submodule(name, sub_gm)
    last = gm.graph.output_node()
    with gm.graph.inserting_before(last):
        called = gm.graph.call_module(name, tuple(orig_inputs), {})
        result = sub_gm.graph.output_node().args[0]
        if isinstance(result, tuple):
            called.meta["val"] = tuple(node.meta.get("val") for node in orig_outputs)
            for place, node in enumerate(orig_outputs):
                item = gm.graph.call_function(operator.getitem, (called, place))
                item.meta = dict(node.meta)
                node.replace_all_uses_with(item, propagate_meta=False)
        else:
            called.meta = dict(orig_outputs[0].meta)
            orig_outputs[0].replace_all_uses_with(called, propagate_meta=False)
    return gm


def erase_nodes(gm: GraphModule, nodes: Sequence[Node]) -> None:
    """Remove nodes, the last first."""
    for node in reversed(nodes):
        gm.graph.erase_node(node)


def fuse_by_partitions(
    gm: GraphModule,
    partitions: Sequence[Any],
    prefix: str = "fused_",
    always_return_tuple: bool = False,
) -> GraphModule:
    """Replace each part by a call of a module, in place, and return the module.

    Args:
        gm: the module.
        partitions: lists of nodes, or {node: number} of each part.
        prefix: the modules are called by it and their number.
        always_return_tuple: whether one value is returned as a tuple, too.
    """
    for number, partition in enumerate(partitions):
        nodes = topo_sort(list(partition))
        made, taken, given = fuse_as_graphmodule(
            gm, nodes, f"{prefix}{number}", always_return_tuple=always_return_tuple
        )
        insert_subgm(gm, made, taken, given)
        erase_nodes(gm, nodes)
    stable_topological_sort(gm)
    gm.graph.lint()
    gm.recompile()
    return gm
