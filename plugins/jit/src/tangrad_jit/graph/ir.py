"""Graphs: inputs, nodes in order, outputs. `nodes.py` has what they are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tangrad_jit.graph.nodes import (
    DRAW,
    Input,
    Node,
    Value,
    Where,
    line_at,
    map_values,
    values_in,
)
from tangrad_jit.graph.types import ValueType

__all__ = [
    "DRAW",
    "Graph",
    "Input",
    "Node",
    "Value",
    "Where",
    "line_at",
    "map_values",
    "values_in",
]


class Graph:
    """Inputs, nodes in order, outputs.

    Attributes:
        inputs: what the graph is given.
        nodes: its calls, in an order in which they may run.
        outputs: values (and constants) that it returns, in order.
        name: for people.
    """

    def __init__(self, name: str = "graph") -> None:
        self.inputs: list[Input] = []
        self.nodes: list[Node] = []
        self.outputs: list[Any] = []
        self.name = name

    def add_input(self, type: ValueType, kind: str, name: str, tensor: Any = None) -> Value:
        """Add a value that the graph is given."""
        value = Value(type)
        self.inputs.append(Input(value, kind, name, tensor))
        return value

    def append(self, node: Node, types: list[ValueType]) -> list[Value]:
        """Add a node at the end, with results of these types."""
        node.results = [Value(type, node) for type in types]
        self.nodes.append(node)
        return node.results

    def users(self) -> dict[Value, list[Node]]:
        """Return the nodes that take each value, once per node."""
        found: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for value in dict.fromkeys(node.inputs):
                found.setdefault(value, []).append(node)
        return found

    def replace(self, replacements: dict[Value, Any]) -> None:
        """Put other values (or constants) in the place of some, everywhere."""
        if not replacements:
            return
        moved: dict[Value, int] = {}

        def new(value: Value) -> Any:
            while isinstance(value, Value) and value in replacements:
                value = replacements[value]
            return value

        for node in self.nodes:
            if any(value in replacements for value in node.inputs):
                node.args = map_values(new, node.args)
                node.outs = tuple(new(value) for value in node.outs)
            for result in node.results:
                _move(result, new, replacements, moved)
        self.outputs = map_values(new, self.outputs)

    def returned(self) -> set[Value]:
        """Return the values that leave the graph."""
        return set(values_in(self.outputs))

    def fresh_constants(self) -> list[Input]:
        """Return the constants of which each run needs a copy: written, or seen by who called."""
        changed = {value.root for node in self.nodes for value in node.written}
        changed |= {value.root for value in self.returned()}
        return [
            entry for entry in self.inputs if entry.kind == "constant" and entry.value in changed
        ]

    def copy(self) -> Graph:
        """Return a graph of its own with the same inputs, ops and constants."""
        made = Graph(self.name)
        known: dict[Value, Value] = {}

        def twin(value: Value, producer: Node | None = None) -> Value:
            new = Value(value.type, producer)
            new.example, new.offset = value.example, value.offset
            known[value] = new
            if value.view_of is not None:
                new.view_of = known[value.view_of]
            return new

        for given in self.inputs:
            value = twin(given.value)
            made.inputs.append(Input(value, given.kind, given.name, given.tensor, given.counted))
        for node in self.nodes:
            args = map_values(known.__getitem__, node.args)
            outs = tuple(known[value] for value in node.outs)
            new = Node(node.op, args, node.form, outs, node.module, node.where)
            new.results = [twin(value, new) for value in node.results]
            made.nodes.append(new)
        made.outputs = map_values(known.__getitem__, self.outputs)
        return made

    def __str__(self) -> str:
        from tangrad_jit.graph.printer import text_of

        return text_of(self)

    def _repr_svg_(self) -> str:
        from tangrad_jit.graph.drawing import svg_of

        return svg_of(self)


def _move(
    view: Value,
    new: Callable[[Value], Any],
    replacements: dict[Value, Any],
    moved: dict[Value, int],
) -> None:
    """Have a view show the value in the place of what it showed, wherever that lies in its root.

    Args:
        moved: views -> bytes by which their offsets have grown, in the order of the graph.
    """
    base = view.view_of
    if base is None:
        return
    by = moved.get(base, 0)
    if base in replacements:
        view.view_of = new(base)
        by = view.view_of.offset - base.offset
    if by:
        view.offset += by
        moved[view] = by
