"""Replace parts of a graph by calls of modules."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tangrad_fx.graph import Graph
from tangrad_fx.graph_module import GraphModule
from tangrad_fx.memory import order_of_writes
from tangrad_fx.node import Node
from tangrad_fx.passes.tools_common import stable_topological_sort, topo_sort
from tangrad_fx.passes.utils.common import lift_subgraph_as_module

__all__ = [
    "erase_nodes",
    "fuse_as_graphmodule",
    "fuse_by_partitions",
    "insert_subgm",
    "later_nodes",
    "topo_sort",
    "validate_partition",
]


def validate_partition(partition: Sequence[Node]) -> bool:
    """Return whether no path leaves the nodes and comes back, by what is used or written."""
    return not partition or _may_run_as_one(partition, later_nodes(partition[0].graph).__getitem__)


def later_nodes(graph: Graph) -> dict[Node, set[Node]]:
    """Return for each node those that come behind it: users, and where one of them writes."""
    later = {node: set(node.users) for node in graph.nodes}
    for node, before in order_of_writes(graph).items():
        for earlier in before:
            later[earlier].add(node)
    return later


def _may_run_as_one(nodes: Sequence[Node], later: Callable[[Node], Iterable[Node]]) -> bool:
    own = set(nodes)
    waiting = [user for node in nodes for user in later(node) if user not in own]
    seen: set[Node] = set()
    while waiting:
        node = waiting.pop()
        if node in own:
            return False
        if node not in seen:
            seen.add(node)
            waiting.extend(later(node))
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
    return _as_module(gm, nodes, module_name, always_return_tuple)


def _as_module(
    gm: GraphModule, nodes: Sequence[Node], module_name: str, always_return_tuple: bool
) -> tuple[GraphModule, tuple[Node, ...], tuple[Node, ...]]:
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
    _insert_call(gm, sub_gm, orig_inputs, orig_outputs)
    return gm


def _insert_call(
    gm: GraphModule, sub_gm: GraphModule, orig_inputs: Sequence[Node], orig_outputs: Sequence[Node]
) -> Node:
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
    return called


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
    before = order_of_writes(gm.graph)
    place = {node: i for i, node in enumerate(gm.graph.nodes)}
    calls: dict[Node, Node] = {}  # of nodes that are in a module by now
    behind: dict[Node, set[Node]] = {}  # {node: those behind it where one of them writes}
    for node, earlier in before.items():
        for other in earlier:
            behind.setdefault(other, set()).add(node)

    def later(node: Node) -> Iterator[Node]:
        yield from node.users
        yield from (calls.get(n, n) for n in behind.get(node, ()))

    for number, partition in enumerate(partitions):
        nodes = topo_sort(sorted(partition, key=place.__getitem__), before)
        if not _may_run_as_one(nodes, later):
            raise RuntimeError("Invalid partition, found dependency cycles")
        made, taken, given = _as_module(gm, nodes, f"{prefix}{number}", always_return_tuple)
        call = _insert_call(gm, made, taken, given)
        calls |= dict.fromkeys(nodes, call)
        behind[call] = {n for node in nodes for n in behind.get(node, ())} - set(nodes)
        erase_nodes(gm, nodes)
    between: dict[Node, set[Node]] = {}
    for node, earlier in before.items():
        own = calls.get(node, node)
        between.setdefault(own, set()).update({calls.get(n, n) for n in earlier} - {own})
    stable_topological_sort(gm, between)
    gm.graph.lint()
    gm.recompile()
    return gm
