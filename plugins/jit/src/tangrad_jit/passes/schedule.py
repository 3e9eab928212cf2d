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
from heapq import heapify, heappop, heappush

from tangrad_jit.graph.ir import Graph, Node, Value
from tangrad_jit.graph.types import TensorType
from tangrad_jit.passes.in_place_reuse import partners
from tangrad_jit.passes.memory_plan import Life, lodge, place
from tangrad_jit.passes.needed_bytes import LARGE, bytes_of, reused
from tangrad_jit.passes.rematerialization import rematerialize

__all__ = ["arena_of", "peak_of", "reorder"]


def reorder(graph: Graph) -> int:
    """Put nodes into an order with a lower peak; return the bytes saved."""
    if len(graph.nodes) > 2000:
        return 0
    uses = _Uses(graph)
    before = uses.peak_of(range(len(graph.nodes)))
    if before < LARGE and before <= uses.least:
        return 0
    orders = [list(range(len(graph.nodes)))]
    needs = _dependencies(graph)
    orders += [uses.ordered(needs, key) for key in (_greedily, _as_recorded)]
    nodes = [[graph.nodes[k] for k in order] for order in orders]
    if before < LARGE:
        peaks = [before, *map(uses.peak_of, orders[1:])]
    else:
        peaks = [_arena_after_all(graph, order) for order in nodes]
    best = peaks.index(min(peaks))
    graph.nodes = nodes[best]
    return peaks[0] - peaks[best]


def _arena_after_all(graph: Graph, order: list[Node]) -> int:
    """Return the bytes that a graph needs in an order, when values have been made again."""
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


def peak_of(graph: Graph) -> int:
    """Return the most bytes that are alive at once among the values that a graph makes."""
    return _Uses(graph).peak_of(range(len(graph.nodes)))


def roots_of(node: Node) -> dict[Value, None]:
    """Return the memory that a node reads, writes, shows or makes, each once, in order."""
    found: dict[Value, None] = {}
    for value in node.inputs:
        found[value if value.view_of is None else value.root] = None
    for value in node.results:
        found[value if value.view_of is None else value.root] = None
    return found


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
        effects = node.effects
        if "random" in effects or "communicate" in effects:
            if ordered is not None:
                mine.add(ordered)
            ordered = node
        if "check" in effects:
            check = node
        mine.discard(node)
        needs[node] = mine
    return needs


def _greedily(growth: int, place: int) -> tuple[int, int]:
    return growth, place


def _as_recorded(growth: int, place: int) -> tuple[int, int]:
    return int(growth >= 0), place


class _Uses:
    """The memory that each node touches, by the nodes' places in the graph.

    Attributes:
        least: bytes that no order needs less than: some node's operands and results, or all that
            leaves the graph.
    """

    def __init__(self, graph: Graph) -> None:
        self.nodes = graph.nodes
        given = {entry.value for entry in graph.inputs}
        returned = {value.root for value in graph.returned()}
        self.kept = returned | given
        self.touched = [roots_of(node) for node in graph.nodes]
        # How many nodes use a root, and the sum of their places: of one that is left, its place.
        self.users: dict[Value, tuple[int, int]] = {}
        for at, roots in enumerate(self.touched):
            for root in roots:
                count, places = self.users.get(root, (0, 0))
                self.users[root] = count + 1, places + at
        self.made = [
            sum([bytes_of(value) for value in node.results if value.view_of is None])
            for node in graph.nodes
        ]
        self.least = sum(map(bytes_of, returned - given))
        for node, roots in zip(graph.nodes, self.touched, strict=True):
            inside = [root for root in roots if root not in given]
            least = sum(map(bytes_of, inside)) - reused(node, inside)
            self.least = max(self.least, least)

    def peak_of(self, order: Iterable[int]) -> int:
        """Return the most bytes that are alive at once."""
        left = {root: count for root, (count, _) in self.users.items()}
        alive = peak = 0
        for at in order:
            dying = []
            for root in self.touched[at]:
                left[root] -= 1
                if not left[root] and root not in self.kept:
                    dying.append(root)
            alive += self.made[at]
            if alive > peak:
                peak = max(peak, alive - reused(self.nodes[at], dying))
            for root in dying:
                alive -= bytes_of(root)
        return peak

    def ordered(
        self, needs: dict[Node, set[Node]], key: Callable[[int, int], tuple[int, int]]
    ) -> list[int]:
        """Return an order in which of the nodes that may be next the one with the least key goes.

        Args:
            needs: what each node must come after.
            key: of the bytes by which a node has more alive, and its place.
        """
        place_of = {node: at for at, node in enumerate(self.nodes)}
        waiting = [len(needs[node]) for node in self.nodes]
        after: list[list[int]] = [[] for _ in self.nodes]
        for at, node in enumerate(self.nodes):
            for before in needs[node]:
                after[place_of[before]].append(at)
        users = dict(self.users)
        freed = [0] * len(self.nodes)
        for root, (count, places) in users.items():
            if count == 1 and root not in self.kept:
                freed[places] += bytes_of(root)
        ready = [
            (*key(self.made[k] - freed[k], k), k) for k, count in enumerate(waiting) if not count
        ]
        heapify(ready)
        done = [False] * len(self.nodes)
        order: list[int] = []
        while ready:
            at = heappop(ready)[-1]
            if done[at]:
                continue  # it was there once more, with the key that it had before
            done[at] = True
            order.append(at)
            for root in self.touched[at]:
                count, places = users[root]
                users[root] = count, places = count - 1, places - at
                if count == 1 and root not in self.kept:
                    freed[places] += bytes_of(root)
                    if not waiting[places]:
                        heappush(ready, (*key(self.made[places] - freed[places], places), places))
            for other in after[at]:
                waiting[other] -= 1
                if not waiting[other]:
                    heappush(ready, (*key(self.made[other] - freed[other], other), other))
        return order
