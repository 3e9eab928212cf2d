"""Which nodes of a graph share memory, and which must run before others as one writes it.

Where it is not known what a call does with memory, its result counts as sharing that of all inputs.
"""

from __future__ import annotations

import operator
from typing import Any

from tangrad_fx.effects import has_effect, is_declared, is_fresh, written
from tangrad_fx.graph import Graph
from tangrad_fx.node import Node

_CALLS = ("call_function", "call_method", "call_module")


class Memory:
    """Which nodes of a graph may share memory, and which of it the graph writes.

    The inputs of a graph may all be the same memory.

    Args:
        graph: the graph.
    """

    def __init__(self, graph: Graph) -> None:
        self._above: dict[Node, Node] = {}
        self._written: set[Node] = set()
        outside: dict[Any, Node] = {}
        for node in graph.nodes:
            if node.op == "output":
                continue
            if node.op in ("placeholder", "get_attr"):
                place = node.target if node.op == "get_attr" else None
                self._join(node, outside.setdefault(place, node))
            elif not is_fresh(node):
                for used in node.all_input_nodes:
                    self._join(node, used)
        for node in graph.nodes:
            for target in written(node):
                self._written.add(self.of(target))

    def of(self, node: Node) -> Node:
        """Return the node that stands for all that may share its memory."""
        above = self._above.get(node, node)
        while above is not node:
            node, above = above, self._above.get(above, above)
        return node

    def is_written(self, node: Node) -> bool:
        """Return whether the graph may write the memory of a node."""
        return self.of(node) in self._written

    def _join(self, a: Node, b: Node) -> None:
        self._above[self.of(a)] = self.of(b)


def order_of_writes(graph: Graph) -> dict[Node, set[Node]]:
    """Return for nodes the earlier ones that must run before, as one writes what another sees.

    What a node is given as an argument is not told of. Random numbers may be drawn in any order.

    Args:
        graph: the graph.
    """
    found: dict[Node, set[Node]] = {}
    if not any(has_effect(n, False) for n in graph.nodes if n.op in _CALLS):
        return found
    memory = Memory(graph)
    writer: dict[Any, Node] = {}
    readers: dict[Any, list[Node]] = {}
    barrier: Node | None = None  # the last call that changes how others run
    since: list[Node] = []
    for node in graph.nodes:
        if node.op not in _CALLS:
            continue
        before: set[Node] = set() if barrier is None else {barrier}
        writes: set[Any] = {memory.of(n) for n in written(node)}
        seen = {memory.of(n) for n in _read(node)}
        if node.op == "call_module" and has_effect(node, False):
            writes.add(node.target)  # its buffers
        for place in writes | seen:
            if place in writer:
                before.add(writer[place])
        for place in writes:
            before.update(readers.pop(place, ()))
            writer[place] = node
        for place in seen - writes:
            readers.setdefault(place, []).append(node)
        if node.op == "call_function" and is_declared(node.target) and not writes:
            before.update(since)
            barrier, since = node, []
        else:
            since.append(node)
        if before:
            found[node] = before
    return found


def _read(node: Node) -> list[Node]:
    """Return the nodes whose values a call looks at; a view looks at none."""
    if node.target is operator.getitem and isinstance(node.args[1], (int, str)):
        return []
    op = node.target if node.op == "call_function" else None
    if getattr(getattr(op, "definition", None), "geometry", None) is not None:
        return []
    return node.all_input_nodes
