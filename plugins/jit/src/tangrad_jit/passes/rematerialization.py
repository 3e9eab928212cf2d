"""Rematerialization: values that are cheap to make again do not live through the peak of memory.

Rule: a value that is alive at the peak, and not used there, is made again before its next use, if
it is a pointwise op's, a layer norm's or a copy, and what it was made of is there anyway. So what
forward has for backward is kept once where several ops have saved a stage of the same (Chen et al.,
arXiv:1604.06174). The bits are the same; the cost is some loops.
"""

from __future__ import annotations

from typing import Any

from tangrad_jit.graph.ir import Graph, Node, Value, map_values
from tangrad_jit.graph.types import TensorType
from tangrad_jit.passes.needed_bytes import LARGE, bytes_of, reused

__all__ = ["rematerialize"]

#: Ops beside pointwise ones that cost about as much as reading their operands.
_CHEAP = ("clone", "native_layer_norm")
_MOST_NODES = 2000


def rematerialize(graph: Graph) -> int:
    """Make values again behind the peak; return the bytes by which it is lower."""
    if len(graph.nodes) > _MOST_NODES:
        return 0
    if sum(bytes_of(value) for node in graph.nodes for value in node.results) < LARGE:
        return 0
    state = _State(graph)
    before = state.peak
    if before < LARGE:
        return 0
    nodes, undone = list(graph.nodes), []
    for _ in range(len(nodes) // 4):
        chosen = state.candidate()
        if chosen is None:
            break
        undone.append(_make_again(graph, *chosen))
        state = _State(graph)
    if state.peak < before:
        return before - state.peak
    for changed in reversed(undone):
        for node, args, shown in changed:
            node.args = args
            for view, base in shown:
                view.view_of = base
    graph.nodes = nodes
    return 0


class _State:
    """Who lives when, in the present order.

    Attributes:
        peak, place: the most bytes alive, and where that is.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.given = {entry.value for entry in graph.inputs}
        self.returned = {value.root for value in graph.returned()}
        self.writes: dict[Value, list[int]] = {}
        self.position = {node: k for k, node in enumerate(graph.nodes)}
        self.uses: dict[Value, list[int]] = {}
        made: dict[Value, int] = {}
        for k, node in enumerate(graph.nodes):
            for root in dict.fromkeys(value.root for value in node.inputs):
                self.uses.setdefault(root, []).append(k)
            for value in node.written:
                self.writes.setdefault(value.root, []).append(k)
            for value in node.results:
                if value.root is value:
                    made[value] = k
        change = [0] * (len(graph.nodes) + 1)
        dying: dict[int, list[Value]] = {}
        for value, k in made.items():
            if isinstance(value.type, TensorType):
                change[k] += bytes_of(value)
                if value not in self.returned:
                    end = self.uses.get(value, [k])[-1]
                    change[end + 1] -= bytes_of(value)
                    dying.setdefault(end, []).append(value)
        total, self.peak, self.place = 0, 0, 0
        for k, step in enumerate(change[:-1]):
            total += step
            there = total - reused(graph.nodes[k], dying.get(k, ()))
            if there > self.peak:
                self.peak, self.place = there, k
        self.made = made

    def candidate(self) -> tuple[Value, int] | None:
        """Return the largest value that may be made again, and the place of its next use."""
        best: tuple[int, Value, int] | None = None
        for value, k in self.made.items():
            uses = self.uses.get(value, [])
            if k >= self.place or not uses or uses[-1] <= self.place or self.place in uses:
                continue
            if value in self.returned or value in self.writes:
                continue
            size = bytes_of(value)
            again = next(use for use in uses if use > self.place)
            if (best is None or size > best[0]) and self._may(value, again):
                best = size, value, again
        return None if best is None else best[1:]

    def _may(self, value: Value, again: int) -> bool:
        node = value.producer
        assert node is not None
        if node.form != "call" or node.effects or len(node.results) > 3:
            return False
        if node.op.kind != "pointwise" and node.name not in _CHEAP:
            return False
        for source in node.inputs:
            if not isinstance(source.type, TensorType):
                continue
            root = source.root
            if any(self.position[node] < k < again for k in self.writes.get(root, ())) or not (
                root in self.given or root in self.returned or self.uses[root][-1] >= again
            ):
                return False
        # What shows a part of it must have been asked for behind the peak.
        return all(
            shown is value or self.position[shown.producer] > self.place  # type: ignore[index]
            for use in self.uses[value]
            if use > self.place
            for shown in self.graph.nodes[use].inputs
            if shown.root is value
        )


def _make_again(
    graph: Graph, value: Value, again: int
) -> list[tuple[Node, Any, list[tuple[Value, Any]]]]:
    """Make a value once more before a place, for all uses from there on; return the changes."""
    old = value.producer
    assert old is not None
    node = Node(old.op, old.args, old.form, old.outs, old.module, old.where)
    node.results = [Value(result.type, node) for result in old.results]
    new = node.results[old.results.index(value)]
    changed = []
    for user in graph.nodes[again:]:
        shown = [(result, value) for result in user.results if result.view_of is value]
        if not shown and not any(item is value for item in user.inputs):
            continue
        changed.append((user, user.args, shown))
        user.args = map_values(lambda item: new if item is value else item, user.args)
        for view, _ in shown:
            view.view_of = new
    graph.nodes.insert(again, node)
    return changed
