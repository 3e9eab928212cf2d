"""Graphs inside of a graph: the functions of a `cond` or `while_loop` that a program calls.

Each is the target of a `get_attr` node, with its graph in `meta["graph"]`, and takes the same
inputs as the others of its call. Names of nodes are unique over all graphs of a program.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tangrad
from tangrad.nn import Module
from tangrad_fx.graph import Graph
from tangrad_fx.graph_module import GraphModule
from tangrad_fx.higher_order.while_loop import while_loop_op
from tangrad_fx.node import Node

CALLS: tuple[Any, ...] = (tangrad.cond, while_loop_op)
ROLES: dict[Any, tuple[str, str]] = {
    tangrad.cond: ("true", "false"),
    while_loop_op: ("cond", "body"),
}


class Functions:
    """The functions of one call, as graphs.

    Args:
        outer: the graph of the call.

    Attributes:
        graphs: of the functions.
        operands: nodes of the outer graph, one for each input.
    """

    def __init__(self, outer: Graph) -> None:
        self.outer = outer
        self.graphs: list[Graph] = []
        self.operands: list[Any] = []
        self._inputs: dict[Graph, list[Node]] = {}
        self._captured: dict[Node, int] = {}

    def graph(self) -> Graph:
        """Return the graph of a further function, with the inputs that the others have."""
        made = Graph()
        made._graph_namespace = self.outer._graph_namespace
        self.graphs.append(made)
        self._inputs[made] = [self._input(made, i) for i in range(len(self.operands))]
        return made

    def add(self, operand: Any) -> int:
        """Give all functions an input more and return its position."""
        self.operands.append(operand)
        place = len(self.operands) - 1
        for graph in self.graphs:
            self._inputs[graph].append(self._input(graph, place))
        return place

    def capture(self, graph: Graph, node: Node) -> Node:
        """Return the input of a function that stands for a value from outside of it."""
        if node not in self._captured:
            self._captured[node] = self.add(node)
        return self._inputs[graph][self._captured[node]]

    def inputs(self, graph: Graph) -> list[Node]:
        """Return the inputs of a function."""
        return self._inputs[graph]

    def call(self, target: Any, *leading: Any, carried: int = 0, **meta: Any) -> Node:
        """Add the call to the outer graph.

        Args:
            target: `tangrad.cond` or `while_loop_op`.
            leading: arguments before the functions.
            carried: how many operands, the first ones, a loop carries.
            meta: of the nodes.
        """
        parts = []
        for role, graph in zip(ROLES[target], self.graphs, strict=True):
            part = self.outer.create_node("get_attr", f"{role}_graph_0", (), {})
            part.target = part.name
            part.meta = {**meta, "graph": graph}
            parts.append(part)
        operands = tuple(self.operands)
        groups = (operands,) if target is tangrad.cond else (operands[:carried], operands[carried:])
        node = self.outer.call_function(target, (*leading, *parts, *groups))
        node.meta.update(meta)
        return node

    def _input(self, graph: Graph, place: int) -> Node:
        node = _further_input(graph, f"arg{place}_1")
        operand = self.operands[place]
        if isinstance(operand, Node) and "val" in operand.meta:
            node.meta["val"] = operand.meta["val"]
        return node


def nested_graphs(graph: Graph) -> Iterator[tuple[Node, Graph]]:
    """Yield the functions of a graph's calls and the nodes that name them."""
    for node in graph.nodes:
        if node.op == "get_attr" and "graph" in node.meta:
            yield node, node.meta["graph"]


def every_node(graph: Graph) -> Iterator[Node]:
    """Yield the nodes of a graph, and those of the graphs inside of it."""
    for node in graph.nodes:
        yield node
        if node.op == "get_attr" and "graph" in node.meta:
            yield from every_node(node.meta["graph"])


def handed_in(named: Node, operand: Any) -> list[tuple[Node, Any]]:
    """Give the functions of a call an operand more.

    Args:
        named: the node that names one of them.
        operand: a node of the graph of the call, or a number.

    Returns:
        For each function the node that names it and its new input.
    """
    (call,) = named.users
    *before, last = call.args
    call.args = (*before, (*last, operand))  # type: ignore[misc]
    parts = [a for a in call.args if isinstance(a, Node) and "graph" in a.meta]
    return [(part, _further_input(part.meta["graph"], "size")) for part in parts]


def _further_input(graph: Graph, name: str) -> Node:
    """Add an input behind the others; its name is made unique."""
    first = next((n for n in graph.nodes if n.op != "placeholder"), graph._root)
    with graph.inserting_before(first):
        made = graph.placeholder(name)
    made.target = made.name
    return made


def attached(root: Module, graph: Graph) -> Module:
    """Give a module the graphs inside of a graph as modules, and return it."""
    for node, inner in nested_graphs(graph):
        copy = Graph()
        result = copy.graph_copy(inner, {}, return_output_node=False)
        copy.output(result)
        name = str(node.target)
        root.add_module(name, GraphModule(attached(Module(), copy), copy, name))
    return root


def without_unused(graph: Graph) -> None:
    """Erase the functions that no call is left of."""
    for node, _ in list(nested_graphs(graph)):
        if not node.users:
            graph.erase_node(node)
