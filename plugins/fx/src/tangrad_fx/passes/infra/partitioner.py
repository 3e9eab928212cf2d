"""Find parts of a graph that a device or a compiler can run, and make modules of them."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence

from tangrad_fx.graph_module import GraphModule
from tangrad_fx.node import Node
from tangrad_fx.passes.operator_support import OperatorSupportBase
from tangrad_fx.passes.utils.fuser_utils import fuse_by_partitions, later_nodes

__all__ = ["CapabilityBasedPartitioner", "Partition"]

_OUTSIDE = ("placeholder", "output", "get_attr")


class Partition:
    """A set of nodes that may run as one.

    Args:
        id: its number.
        nodes: the nodes.
    """

    def __init__(self, id: int | None = None, nodes: Iterable[Node] | None = None) -> None:
        self.id = id
        self.nodes: dict[Node, None] = dict.fromkeys(nodes or ())

    def __repr__(self) -> str:
        return str(self.nodes)

    def add_node(self, node: Node) -> None:
        """Add a node."""
        self.nodes[node] = None

    def remove_node(self, node: Node) -> None:
        """Remove a node."""
        del self.nodes[node]

    def size(self) -> int:
        """Return the number of nodes."""
        return len(self.nodes)


class CapabilityBasedPartitioner:
    """Put supported nodes into as few parts as can each run as one.

    A part can if no path leaves it and comes back. Nodes are looked at from the last to the first,
    each joins the parts of its users where that makes no circle.

    Args:
        graph_module: the module.
        operator_support: tells which nodes are supported.
        allows_single_node_partition: whether a part may hold one computing node alone.
        non_compute_ops: names of functions that compute nothing by themselves.
        allowed_single_node_partition_ops: names of those that may be alone nevertheless.
    """

    def __init__(
        self,
        graph_module: GraphModule,
        operator_support: OperatorSupportBase,
        allows_single_node_partition: bool = False,
        non_compute_ops: Sequence[str] | None = None,
        allowed_single_node_partition_ops: Sequence[str] | None = None,
    ) -> None:
        self.graph_module = graph_module
        self.operator_support = operator_support
        self.allows_single_node_partition = allows_single_node_partition
        self.non_compute_ops = tuple(non_compute_ops or ())
        self.allowed_single_node_partition_ops = tuple(allowed_single_node_partition_ops or ())

    def propose_partitions(self) -> list[Partition]:
        """Return the parts, in the order of the graph."""
        modules = dict(self.graph_module.named_modules())
        nodes = list(self.graph_module.graph.nodes)
        supported = {
            node
            for node in nodes
            if node.op not in _OUTSIDE and self.operator_support.is_node_supported(modules, node)
        }
        parts: dict[int, set[Node]] = {}
        part_of: dict[Node, int] = {}
        later = later_nodes(self.graph_module.graph)
        reached = _reached_from(nodes, later)
        for number, node in enumerate(reversed(nodes)):
            if node not in supported:
                continue
            parts[number], part_of[node] = {node}, number
            for other in [p for p in reversed(parts) if p != number]:
                joined = parts[number] | parts[other]
                if not _leaves_and_returns(joined, reached, later) and not _is_in_a_circle(
                    joined, later, parts, part_of
                ):
                    parts[number] = joined
                    del parts[other]
                    part_of |= dict.fromkeys(joined, number)
        _follow_tuples(nodes, part_of)
        found: dict[int, list[Node]] = {}
        for node in nodes:
            if node in part_of:
                found.setdefault(part_of[node], []).append(node)
        whole = []
        for part in found.values():
            # Items that have left, or come, may stand between the others.
            broken = _leaves_and_returns(set(part), reached, later)
            whole += [Partition(None, piece) for piece in (_apart(part) if broken else [part])]
        kept = [p for p in whole if self._is_worth_it(p)]
        for number, partition in enumerate(kept):
            partition.id = number
        return kept

    def _is_worth_it(self, partition: Partition) -> bool:
        if self.allows_single_node_partition:
            return True
        computing = [n for n in partition.nodes if self._name(n) not in self.non_compute_ops]
        computing = [n for n in computing if n.target is not operator.getitem]
        if len(computing) > 1:
            return True
        return any(self._name(n) in self.allowed_single_node_partition_ops for n in computing)

    @staticmethod
    def _name(node: Node) -> str:
        if node.op != "call_function":
            return str(node.target)
        return node._pretty_print_target(node.target)

    def fuse_partitions(self, partitions: list[Partition], prefix: str = "fused_") -> GraphModule:
        """Replace each part by a call of a module, in place, and return the module."""
        return fuse_by_partitions(self.graph_module, [list(p.nodes) for p in partitions], prefix)

    def remove_bookend_non_compute_ops(self, partitions: list[Partition]) -> None:
        """Take nodes that compute nothing off the beginnings and ends of parts."""
        for partition in partitions:
            for inwards in ("all_input_nodes", "users"):
                changed = True
                while changed:
                    loose = [
                        node
                        for node in partition.nodes
                        if self._name(node) in self.non_compute_ops
                        and not any(other in partition.nodes for other in getattr(node, inwards))
                    ]
                    changed = bool(loose)
                    for node in loose:
                        partition.remove_node(node)

    def partition_and_fuse(self, prefix: str = "fused_") -> GraphModule:
        """Find the parts and replace each by a call of a module, in place."""
        return self.fuse_partitions(self.propose_partitions(), prefix)


def _reached_from(nodes: list[Node], later: dict[Node, set[Node]]) -> dict[Node, set[Node]]:
    """Return for each node all that come behind it."""
    reached: dict[Node, set[Node]] = {}
    for node in reversed(nodes):
        reached[node] = later[node].union(*(reached[user] for user in later[node]))
    return reached


def _follow_tuples(nodes: list[Node], part_of: dict[Node, int]) -> None:
    """Put the items of tuples where the tuples are made: no tuple leaves or enters a part."""
    for node in nodes:
        if node.op != "placeholder" and all(map(_may_be_item, node.users)):
            for user in node.users:
                part_of.pop(user, None)
                if node in part_of:
                    part_of[user] = part_of[node]


def _may_be_item(node: Node) -> bool:
    return node.target is operator.getitem and isinstance(node.args[1], int)


def _apart(part: list[Node]) -> list[list[Node]]:
    """Return the nodes of a part one by one, but for items with what they are taken of."""
    found: dict[Node, list[Node]] = {}
    for node in part:
        of = node.args[0] if _may_be_item(node) else None
        if isinstance(of, Node) and of in found:
            found[of].append(node)
        else:
            found[node] = [node]
    return list(found.values())


def _leaves_and_returns(
    part: set[Node], reached: dict[Node, set[Node]], later: dict[Node, set[Node]]
) -> bool:
    """Return whether a node outside comes behind the part and the part behind it."""
    behind = {user for node in part for user in later[node] if user not in part}
    return any(not reached[node].isdisjoint(part) for node in behind)


def _is_in_a_circle(
    part: set[Node],
    later: dict[Node, set[Node]],
    parts: dict[int, set[Node]],
    part_of: dict[Node, int],
) -> bool:
    """Return whether a part comes behind itself, where all of every part runs at once."""
    waiting = [user for node in part for user in later[node] if user not in part]
    seen: set[Node] = set()
    while waiting:
        node = waiting.pop()
        if node in part:
            return True
        if node not in seen:
            together = parts[part_of[node]] if node in part_of else {node}
            seen |= together
            waiting += [user for n in together for user in later[n] if user not in together]
    return False
