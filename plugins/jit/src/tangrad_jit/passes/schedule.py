"""An order of nodes that needs less memory at its peak.

Rule: a node may move wherever its inputs are made and the order of what reads and writes one memory
stays. Of the nodes that may be next, the one goes that frees most and makes least (the list
scheduling of Sarkar, with memory in the place of time); the new order is kept only if its peak is
lower.
"""

from __future__ import annotations

from tangrad_jit.graph.ir import Graph, Node, Value
from tangrad_jit.graph.types import TensorType

__all__ = ["peak_of", "reorder"]


def reorder(graph: Graph) -> int:
    """Put nodes into an order with a lower peak; return the bytes saved."""
    if len(graph.nodes) > 2000:
        return 0
    before = peak_of(graph, graph.nodes)
    order = _greedy(graph)
    after = peak_of(graph, order)
    if after >= before:
        return 0
    graph.nodes = order
    return before - after


def peak_of(graph: Graph, nodes: list[Node]) -> int:
    """Return the most bytes that are alive at once among the values that a graph makes."""
    last = _last_uses(graph, nodes)
    alive = peak = 0
    for place, node in enumerate(nodes):
        alive += sum(_bytes(v) for v in node.results if v.root is v)
        peak = max(peak, alive)
        alive -= sum(_bytes(root) for root, end in last.get(place, ()) if end == place)
    return peak


def _last_uses(graph: Graph, nodes: list[Node]) -> dict[int, list[tuple[Value, int]]]:
    given = {entry.value for entry in graph.inputs}
    kept = {value.root for value in graph.returned()}
    last: dict[Value, int] = {}
    for place, node in enumerate(nodes):
        for value in (*node.inputs, *node.results):
            last[value.root] = place
    found: dict[int, list[tuple[Value, int]]] = {}
    for root, place in last.items():
        if root not in given and root not in kept:
            found.setdefault(place, []).append((root, place))
    return found


def _bytes(value: Value) -> int:
    from tangrad_jit.run.layout import ITEMSIZE

    type = value.type
    if not isinstance(type, TensorType) or not isinstance(type.numel, int):
        return 0
    return type.numel * ITEMSIZE.get(type.dtype, 8)


def _dependencies(graph: Graph) -> dict[Node, set[Node]]:
    """Return what each node must come after."""
    needs: dict[Node, set[Node]] = {}
    writer: dict[Value, Node] = {}
    readers: dict[Value, list[Node]] = {}
    ordered: Node | None = None
    for node in graph.nodes:
        mine: set[Node] = set()
        written = {value.root for value in node.written}
        for value in node.inputs:
            if value.producer is not None:
                mine.add(value.producer)
            if value.root in writer:
                mine.add(writer[value.root])
            readers.setdefault(value.root, []).append(node)
        for root in written:
            mine.update(readers.get(root, ()))
            writer[root] = node
            readers[root] = []
        if "random" in node.effects or "communicate" in node.effects:
            if ordered is not None:
                mine.add(ordered)
            ordered = node
        mine.discard(node)
        needs[node] = mine
    return needs


def _greedy(graph: Graph) -> list[Node]:
    needs = _dependencies(graph)
    waiting = {node: len(before) for node, before in needs.items()}
    after: dict[Node, list[Node]] = {}
    for node, before in needs.items():
        for other in before:
            after.setdefault(other, []).append(node)
    uses: dict[Value, int] = {}
    for node in graph.nodes:
        for root in {value.root for value in (*node.inputs, *node.results)}:
            uses[root] = uses.get(root, 0) + 1
    kept = {value.root for value in graph.returned()} | {e.value for e in graph.inputs}
    place = {node: k for k, node in enumerate(graph.nodes)}
    ready = [node for node, count in waiting.items() if count == 0]
    order: list[Node] = []

    def growth(node: Node) -> tuple[int, int]:
        made = sum(_bytes(v) for v in node.results if v.root is v)
        roots = {value.root for value in (*node.inputs, *node.results)}
        freed = sum(_bytes(r) for r in roots if uses[r] == 1 and r not in kept)
        return made - freed, place[node]

    while ready:
        node = min(ready, key=growth)
        ready.remove(node)
        order.append(node)
        for root in {value.root for value in (*node.inputs, *node.results)}:
            uses[root] -= 1
        for other in after.get(node, ()):
            waiting[other] -= 1
            if waiting[other] == 0:
                ready.append(other)
    return order
