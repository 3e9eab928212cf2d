"""An order of nodes that needs less memory at its peak.

Rule: a node may move wherever its inputs are made and the order of what reads and writes one memory
stays; what comes after a check stays there, as it does not run where that fails. Of the nodes that
may be next, the one goes that frees most and makes least (the list scheduling of Sarkar, with
memory in the place of time), or the first that frees more than it makes, and else the next as
recorded; of these orders and the recorded one that with the lowest peak is kept. Where a program
needs much, what counts is the arena after all other passes that save memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tangrad_jit.graph.ir import Graph, Node, Value
from tangrad_jit.graph.types import TensorType
from tangrad_jit.passes.in_place_reuse import WRITE_INTO_FIRST, partners
from tangrad_jit.passes.memory_plan import Life, lodge, place

__all__ = ["LARGE", "arena_of", "bytes_of", "peak_of", "reorder", "reused"]

#: From so many bytes on, orders are compared by what is needed in the end.
LARGE = 1 << 20


def reorder(graph: Graph) -> int:
    """Put nodes into an order with a lower peak; return the bytes saved."""
    if len(graph.nodes) > 2000:
        return 0
    before = peak_of(graph, graph.nodes)
    if before < LARGE and before <= _least_peak(graph):
        return 0
    needs = _dependencies(graph)
    orders = [graph.nodes, *(_ordered(graph, needs, key) for key in (_greedily, _as_recorded))]
    if before < LARGE:
        peaks = [before, *(peak_of(graph, order) for order in orders[1:])]
    else:
        peaks = [_arena_after_all(graph, order) for order in orders]
    best = peaks.index(min(peaks))
    graph.nodes = orders[best]
    return peaks[0] - peaks[best]


def _least_peak(graph: Graph) -> int:
    """Return what no order needs less than: what leaves is all there in the end."""
    given = {entry.value for entry in graph.inputs}
    return sum(bytes_of(root) for root in {v.root for v in graph.returned()} - given)


def _arena_after_all(graph: Graph, order: list[Node]) -> int:
    """Return the bytes that a graph needs in an order, when values have been made again."""
    from tangrad_jit.passes.rematerialization import rematerialize

    recorded = graph.nodes
    graph.nodes = order
    tried = graph.copy()
    graph.nodes = recorded
    rematerialize(tried)
    return arena_of(tried)


def arena_of(graph: Graph) -> int:
    """Return the bytes of the values that a graph makes: the arena, and what it returns."""
    given = {entry.value for entry in graph.inputs}
    returned = {value.root for value in graph.returned()}
    first: dict[Value, int] = {}
    last: dict[Value, int] = {}
    for at, node in enumerate(graph.nodes):
        for value in (*node.inputs, *node.results):
            first.setdefault(value.root, at)
            last[value.root] = at
    movable = {root for root in first if root not in given and root not in returned}
    movable = {root for root in movable if isinstance(root.type, TensorType)}
    shared = partners(graph, movable, last)
    for root in reversed(shared):
        last[shared[root]] = max(last[shared[root]], last[root])
    lives = [
        Life(root, bytes_of(root), first[root], last[root])
        for root in movable
        if root not in shared
    ]
    leaving = {root for root in returned - given if root in first}
    hosts = [Life(root, bytes_of(root), first[root], first[root]) for root in leaving]
    lodged = lodge(hosts, lives)
    rest = place(life for life in lives if life.key not in lodged)[1]
    return rest + sum(bytes_of(root) for root in leaving)


def peak_of(graph: Graph, nodes: list[Node]) -> int:
    """Return the most bytes that are alive at once among the values that a graph makes."""
    last = _last_uses(graph, nodes)
    alive = peak = 0
    for at, node in enumerate(nodes):
        dying = last.get(at, ())
        for value in node.results:
            if value.view_of is None:
                alive += bytes_of(value)
        if alive > peak:
            peak = max(peak, alive - reused(node, dying))
        for root in dying:
            alive -= bytes_of(root)
    return peak


def reused(node: Node, dying: Iterable[Value]) -> int:
    """Return the bytes of a node's result that may lie where an operand dies."""
    if len(node.results) != 1 or not (node.op.kind == "pointwise" or node.name in WRITE_INTO_FIRST):
        return 0
    size = bytes_of(node.results[0])
    made = node.results[0].root
    return size if any(v is not made and bytes_of(v) == size for v in dying) else 0


def _last_uses(graph: Graph, nodes: list[Node]) -> dict[int, list[Value]]:
    """Return, by place, the roots that nobody uses after it."""
    given = {entry.value for entry in graph.inputs}
    kept = {value.root for value in graph.returned()}
    last: dict[Value, int] = {}
    for at, node in enumerate(nodes):
        for root in roots_of(node):
            last[root] = at
    found: dict[int, list[Value]] = {}
    for root, at in last.items():
        if root not in given and root not in kept:
            found.setdefault(at, []).append(root)
    return found


def roots_of(node: Node) -> dict[Value, None]:
    """Return the memory that a node reads, writes, shows or makes, each once, in order."""
    found: dict[Value, None] = {}
    for value in node.inputs:
        found[value if value.view_of is None else value.root] = None
    for value in node.results:
        found[value if value.view_of is None else value.root] = None
    return found


def bytes_of(value: Value) -> int:
    """Return the bytes of a tensor's elements."""
    size: int = value.type.nbytes
    return size


def _dependencies(graph: Graph) -> dict[Node, set[Node]]:
    """Return what each node must come after."""
    needs: dict[Node, set[Node]] = {}
    writer: dict[Value, Node] = {}
    readers: dict[Value, list[Node]] = {}
    ordered: Node | None = None
    check: Node | None = None
    for node in graph.nodes:
        mine: set[Node] = set() if check is None else {check}
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
        if "check" in node.effects:
            check = node
        mine.discard(node)
        needs[node] = mine
    return needs


def _greedily(growth: int, place: int) -> tuple[int, int]:
    return growth, place


def _as_recorded(growth: int, place: int) -> tuple[int, int]:
    return int(growth >= 0), place


def _ordered(
    graph: Graph, needs: dict[Node, set[Node]], key: Callable[[int, int], tuple[int, int]]
) -> list[Node]:
    """Return an order in which of the nodes that may be next the one with the least key goes.

    Args:
        graph: the graph.
        needs: what each node must come after.
        key: of the bytes by which a node has more alive, and its place.
    """
    waiting = {node: len(before) for node, before in needs.items()}
    after: dict[Node, list[Node]] = {}
    for node, before in needs.items():
        for other in before:
            after.setdefault(other, []).append(node)
    touched = {node: roots_of(node) for node in graph.nodes}
    users: dict[Value, set[Node]] = {}
    for node, roots in touched.items():
        for root in roots:
            users.setdefault(root, set()).add(node)
    kept = {value.root for value in graph.returned()} | {e.value for e in graph.inputs}
    place = {node: k for k, node in enumerate(graph.nodes)}
    made = {
        node: sum(bytes_of(value) for value in node.results if value.view_of is None)
        for node in graph.nodes
    }

    def rank(node: Node) -> tuple[int, int]:
        freed = sum(bytes_of(r) for r in touched[node] if len(users[r]) == 1 and r not in kept)
        return key(made[node] - freed, place[node])

    ready = {node: rank(node) for node, count in waiting.items() if count == 0}
    order: list[Node] = []
    while ready:
        node = min(ready, key=ready.__getitem__)
        del ready[node]
        order.append(node)
        for root in touched[node]:
            left = users[root]
            left.discard(node)
            if len(left) == 1:  # the one that is left would free it
                (other,) = left
                if other in ready:
                    ready[other] = rank(other)
        for other in after.get(node, ()):
            waiting[other] -= 1
            if waiting[other] == 0:
                ready[other] = rank(other)
    return order
