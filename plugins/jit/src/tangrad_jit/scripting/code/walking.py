"""Questions about graphs of scripts as a whole: who uses a value, in which order, and copies."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

__all__ = ["Use", "copied", "uses_of"]


class Use:
    """A use of a value.

    Attributes:
        user: the node that takes it.
        offset: which of the node's inputs it is.
    """

    def __init__(self, user: Any, offset: int, place: int) -> None:
        self.user, self.offset, self._place = user, offset, place

    @property
    def position(self) -> tuple[int, int]:
        """Where it stands in the program: the number of its node, and the input."""
        return self._place, self.offset

    def isAfter(self, other: Use) -> bool:
        """Return whether the program comes to this use later than to another."""
        return self.position > other.position


def _in_order(block: Any) -> Iterator[Any]:
    """Yield all nodes in the order of the program, and for each block what returns from it."""
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from _in_order(inner)
    yield block.returnNode()


def uses_of(graph: Any, value: Any) -> list[Use]:
    """Return all uses of a value in the order of the program."""
    return [
        Use(node, offset, place)
        for place, node in enumerate(_in_order(graph))
        for offset, given in enumerate(node.inputs())
        if given is value
    ]


def copied(graph: Any) -> Any:
    """Return a graph with nodes and values of its own."""
    made = type(graph)()
    values: dict[int, Any] = {}

    def value_of(value: Any) -> Any:
        if id(value) not in values:
            values[id(value)] = copy.copy(value)
            values[id(value)].graph = made
        return values[id(value)]

    def node_of(node: Any) -> Any:
        other = copy.copy(node)
        other.attributes = dict(node.attributes)
        other._given = [value_of(value) for value in node.inputs()]
        other._made = [value_of(value) for value in node.outputs()]
        for value in other._made:
            value._producer = other
        other.inner = [fill(type(block)(), block) for block in node.inner]
        return other

    def fill(other: Any, block: Any) -> Any:
        other.given = [value_of(value) for value in block.given]
        other.held = [node_of(node) for node in block.held]
        other.returned = [value_of(value) for value in block.returned]
        return other

    return fill(made, graph)
