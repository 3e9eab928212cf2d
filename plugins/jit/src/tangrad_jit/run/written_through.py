"""Which values a plan has computed in the memory that they are copied to in the end.

Rule: the copy is one of bytes into a tensor that the graph is given, the value is made by a fused
group or by a loop, and from there on to the copy nobody but them reads or writes that tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tangrad_jit.graph.ir import Graph, Node, Value

__all__ = ["written_through"]


def written_through(
    graph: Graph, groups: list[Any], lowered: Mapping[Node, Any]
) -> dict[Value, Value]:
    """Return value -> the input in whose memory it is computed.

    Args:
        graph: the graph. groups: its fused groups. lowered: the nodes whose kernels are called.
    """
    copies = [
        (k, node)
        for k, node in enumerate(graph.nodes)
        if node.name == "copy_" and node in lowered and isinstance(node.args[1], Value)
    ]
    if not copies:
        return {}
    given = {entry.value for entry in graph.inputs}
    returned = {value.root for value in graph.returned()}
    times = _Times(graph, groups)
    found: dict[Value, Value] = {}
    for place, node in copies:
        target, value = node.args[0], node.args[1]
        if target not in given or value.root is not value or value.type != target.type:
            continue
        if value in given or value in returned or value in found or target in found.values():
            continue
        if value.producer in lowered:
            if value.producer.op.kind != "pointwise" or not _reads_as_it_is(value, target):
                continue
        elif value not in times.made:
            continue
        if times.is_left_alone(target, value, place):
            found[value] = target
    return found


def _reads_as_it_is(value: Value, target: Value) -> bool:
    """Return whether the op that makes a value sees of the target just what is written."""
    node = value.producer
    assert node is not None
    seen = [v for v in node.inputs if v.root is target]
    return node.form == "call" and len(node.results) == 1 and all(v is target for v in seen)


class _Times:
    """When each memory is read or written: groups run where their last nodes are."""

    def __init__(self, graph: Graph, groups: list[Any]) -> None:
        position = {node: k for k, node in enumerate(graph.nodes)}
        segment: dict[Node, Any] = {}
        end: dict[Node, int] = {}
        self.made: set[Value] = set()
        for group in groups:
            last = max(position[node] for node in group.nodes)
            for member in getattr(group, "members", [group]):
                self.made.update(member.outputs)
                segment.update(dict.fromkeys(member.nodes, member))
                end.update(dict.fromkeys(member.nodes, last))
        self._touched: dict[Value, list[tuple[int, Any]]] = {}
        self._making: dict[Value, tuple[int, Any]] = {}
        for node in graph.nodes:
            when = (end.get(node, position[node]), segment.get(node, node))
            for value in node.results:
                self._making[value] = when
            for value in node.inputs:
                self._touched.setdefault(value.root, []).append(when)

    def is_left_alone(self, target: Value, value: Value, place: int) -> bool:
        """Return whether nobody else touches the target from the making of a value to its copy."""
        time, maker = self._making[value]
        return all(
            when < time or (when == time and who is maker) or when == place
            for when, who in self._touched.get(target, ())
        )
