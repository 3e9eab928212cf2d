"""What passes ask of a graph: which memory is written, what leaves, what may be renamed."""

from __future__ import annotations

from collections import Counter

from tangrad_jit.graph.ir import Graph, Node, Value, values_in
from tangrad_jit.graph.types import TensorType

__all__ = ["Facts", "is_pure", "is_whole", "same_type"]


class Facts:
    """Answers about one state of a graph.

    Attributes:
        given: the values of inputs.
        returned: roots of what leaves the graph.
        writes: root -> positions of the nodes that write it.
        position: node -> its place.
        last: root -> place of the last node that reads, writes or shows it.
        constants: values of inputs that are constants -> their tensors.
    """

    def __init__(self, graph: Graph) -> None:
        self.given = {entry.value for entry in graph.inputs}
        self.constants = {e.value: e.tensor for e in graph.inputs if e.kind == "constant"}
        self.returned = {value.root for value in graph.returned()}
        self.writes: dict[Value, list[int]] = {}
        self.position = {node: k for k, node in enumerate(graph.nodes)}
        self.last: dict[Value, int] = {}
        for k, node in enumerate(graph.nodes):
            for value in node.inputs:
                self.last[value if value.view_of is None else value.root] = k
            for value in node.results:
                self.last[value if value.view_of is None else value.root] = k
            for value in node.written:
                self.writes.setdefault(value.root, []).append(k)
        self._graph = graph
        self._uses: Counter[Value] | None = None

    def uses(self, value: Value) -> int:
        """Return how often nodes, and what leaves the graph, take a value."""
        if self._uses is None:
            taken = [value for node in self._graph.nodes for value in node.inputs]
            self._uses = Counter([*taken, *values_in(self._graph.outputs)])
        return self._uses[value]

    def is_written(self, value: Value, after: int = -1) -> bool:
        """Return whether a value's memory is written at or after a place."""
        return any(place >= after for place in self.writes.get(value.root, ()))

    def may_alias(self, new: Value, old: Value, place: int) -> bool:
        """Return whether `new`, a copy made at a place, may be `old` itself.

        Either the place is the last that knows of `old`; or neither is written later, and not both
        of their memories leave the graph: whoever gets them could write one and find the other
        changed.
        """
        inside = old.root not in self.given and old.root not in self.returned
        if inside and self.last.get(old.root, -1) <= place:
            return True
        if self.is_written(new, place) or self.is_written(old, place):
            return False
        if new.root in self.returned:
            return old.root not in self.returned and old.root not in self.given
        return True


def is_pure(node: Node) -> bool:
    """Return whether a node does nothing but make its results, each time the same."""
    return node.form == "call" and not node.effects


def is_whole(value: Value) -> bool:
    """Return whether a value shows all of its root's memory, as the root does."""
    return value.offset == 0 and value.type == value.root.type


def same_type(a: Value, b: Value) -> bool:
    """Return whether two values are tensors of one type, strides of single elements aside."""
    if not isinstance(a.type, TensorType) or not isinstance(b.type, TensorType):
        return False
    if a.type == b.type:
        return True
    return (
        (a.type.dtype, a.type.shape, a.type.device) == (b.type.dtype, b.type.shape, b.type.device)
        and a.type.contiguous
        and b.type.contiguous
    )
