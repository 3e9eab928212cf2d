"""Split a graph into modules of their own, called one after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tangrad.nn import Module
from tangrad_fx.graph import Graph
from tangrad_fx.graph_module import GraphModule, _assign_attr, _get_attr
from tangrad_fx.memory import order_of_writes
from tangrad_fx.node import Node, map_arg

__all__ = ["Partition", "split_module"]


@dataclass
class Partition:
    """The part of a graph that becomes a module.

    Attributes:
        name: what the split function called it.
        nodes: its nodes.
        inputs: nodes of other parts that it uses, or inputs of the graph, in order.
        outputs: its nodes that others use.
        behind: names of parts that write before it what it uses, or use what it writes.
    """

    name: str
    nodes: list[Node] = field(default_factory=list)
    inputs: dict[Node, None] = field(default_factory=dict)
    outputs: dict[Node, None] = field(default_factory=dict)
    behind: set[str] = field(default_factory=set)

    @property
    def submod_name(self) -> str:
        """The name of the module."""
        return f"submod_{self.name}"


def split_module(
    m: GraphModule,
    root_m: Module,
    split_callback: Callable[[Node], Any],
    qualname_map: dict[str, str] | None = None,
    keep_original_order: bool | None = False,
    keep_original_node_name: bool | None = False,
    keep_original_input_name: bool = True,
    *,
    partition_affix: str | None = None,
    tuple_return: bool = False,
) -> GraphModule:
    """Return a module that calls a submodule for each part of a graph.

    Args:
        m: the module whose graph is split.
        root_m: the module that has the attributes the graph uses.
        split_callback: gives for each node the part it belongs to, a number or name.
        qualname_map: filled with {path of a module in the result: path in `m`}.
        keep_original_order: accepted: parts come in the order in which they can run.
        keep_original_node_name, keep_original_input_name: accepted: names are kept.
        partition_affix: put into the names of the parts.
        tuple_return: whether parts return tuples where they return one value.

    Raises:
        RuntimeError: parts need each other in a circle.
    """
    parts: dict[Node, Partition] = {}
    partitions: dict[str, Partition] = {}
    for node in m.graph.nodes:
        if node.op in ("placeholder", "output", "get_attr"):
            continue
        name = str(split_callback(node))
        if partition_affix is not None:
            name = f"{partition_affix}_{name}"
        part = partitions.setdefault(name, Partition(name))
        part.nodes.append(node)
        parts[node] = part
    _connect(m.graph, parts)
    graph = Graph()
    env: dict[Node, Any] = {}
    attributes: dict[str, Any] = {}
    for node in m.graph.nodes:
        if node.op == "placeholder":
            env[node] = graph.node_copy(node)
    for part in _ordered(partitions, parts):
        sub = _module_of(part, root_m, qualname_map, tuple_return)
        attributes[part.submod_name] = sub
        given = tuple(_value(n, env, graph, attributes, m) for n in part.inputs)
        called = graph.call_module(part.submod_name, given)
        outputs = list(part.outputs)
        if len(outputs) == 1 and not tuple_return:
            env[outputs[0]] = called
        else:
            import operator

            for k, node in enumerate(outputs):
                env[node] = graph.call_function(operator.getitem, (called, k))
    output = m.graph.output_node()
    made = graph.output(
        map_arg(output.args[0], lambda n: _value(n, env, graph, attributes, m)), output.type
    )
    made.meta = dict(output.meta)
    return GraphModule(attributes, graph)


def _connect(graph: Graph, parts: dict[Node, Partition]) -> None:
    for node in graph.nodes:
        own = parts.get(node)
        for used in node.all_input_nodes:
            source = parts.get(used)
            if source is own:
                continue
            if own is not None and used.op != "get_attr":
                own.inputs[used] = None
            if source is not None:
                source.outputs[used] = None
    for node, before in order_of_writes(graph).items():
        parts[node].behind |= {parts[n].name for n in before} - {parts[node].name}


def _ordered(partitions: dict[str, Partition], parts: dict[Node, Partition]) -> list[Partition]:
    waiting, done = list(partitions.values()), []
    while waiting:
        for part in waiting:
            needed = {parts[n].name for n in part.inputs if n in parts} | part.behind
            if needed <= {p.name for p in done}:
                break
        else:
            raise RuntimeError(f"cycle exists between partitions: {[p.name for p in waiting]}")
        waiting = [p for p in waiting if p is not part]
        done.append(part)
    return done


def _value(
    node: Node, env: dict[Node, Any], graph: Graph, attributes: dict[str, Any], m: GraphModule
) -> Any:
    if node not in env and node.op == "get_attr":
        env[node] = graph.node_copy(node)
        attributes[str(node.target)] = _get_attr(m, str(node.target))
    return env[node]


def _module_of(
    part: Partition, root: Module, qualname_map: dict[str, str] | None, tuple_return: bool
) -> GraphModule:
    graph = Graph()
    env = {n: graph.placeholder(n.name, n.type) for n in part.inputs}
    holder = Module()

    def inside(used: Node) -> Node:
        if used not in env:  # an attribute, read where it is used
            env[used] = graph.get_attr(str(used.target))
            _assign_attr(_get_attr(root, str(used.target)), holder, str(used.target))
        return env[used]

    for node in part.nodes:
        if node.op == "call_module":
            target = str(node.target)
            flat = target.replace(".", "_")
            _assign_attr(_get_attr(root, target), holder, flat)
            copied = graph.call_module(
                flat, map_arg(node.args, inside), dict(map_arg(dict(node.kwargs), inside))
            )
            copied.meta = dict(node.meta)
            copied._rename(node.name)
            if qualname_map is not None:
                qualname_map[f"{part.submod_name}.{flat}"] = target
        else:
            copied = graph.node_copy(node, inside)
        env[node] = copied
    outputs = tuple(env[n] for n in part.outputs)
    graph.output(outputs[0] if len(outputs) == 1 and not tuple_return else outputs)
    return GraphModule(holder, graph)
