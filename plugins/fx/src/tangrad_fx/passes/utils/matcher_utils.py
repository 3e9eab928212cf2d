"""Find the places where a graph does what a pattern does."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import tangrad
from tangrad_fx.graph import Graph
from tangrad_fx.node import Node

__all__ = ["InternalMatch", "SubgraphMatcher"]


@dataclass
class InternalMatch:
    """A place where a pattern was found.

    Attributes:
        anchors: nodes of the graph that the pattern's last nodes match.
        nodes_map: {node of the pattern: node of the graph}.
        placeholder_nodes: what stands for the pattern's inputs, in order.
        returning_nodes: nodes of the graph that stand for what the pattern returns.
        name_node_map: {name: node} where the pattern returns names in a dict.
    """

    anchors: list[Node]
    nodes_map: dict[Node, Node] = field(default_factory=dict)
    placeholder_nodes: list[Any] = field(default_factory=list)
    returning_nodes: list[Node] = field(default_factory=list)
    name_node_map: dict[str, Node] = field(default_factory=dict)

    def __copy__(self) -> InternalMatch:
        return InternalMatch(
            anchors=self.anchors,
            nodes_map=dict(self.nodes_map),
            placeholder_nodes=list(self.placeholder_nodes),
            returning_nodes=list(self.returning_nodes),
        )


class SubgraphMatcher:
    """Find a pattern.

    Args:
        pattern: its graph.
        match_output: whether the pattern's output must be the graph's.
        match_placeholder: whether its inputs match inputs only.
        remove_overlapping_matches: whether a node belongs to one match at most.
        ignore_literals: whether numbers and strings match any other.
    """

    def __init__(
        self,
        pattern: Graph,
        match_output: bool = False,
        match_placeholder: bool = False,
        remove_overlapping_matches: bool = True,
        ignore_literals: bool = False,
    ) -> None:
        self.pattern = pattern
        self.match_output, self.match_placeholder = match_output, match_placeholder
        self.remove_overlapping_matches = remove_overlapping_matches
        self.ignore_literals = ignore_literals
        if not len(pattern.nodes):
            raise ValueError("SubgraphMatcher cannot be initialized with an empty pattern")
        for node in pattern.nodes:
            if node.op not in ("output", "placeholder") and not node.users:
                raise AssertionError(
                    "SubgraphMatcher cannot be initialized with a pattern that "
                    f"has dead code: {node}"
                )
        self.pattern_placeholder_nodes = [n for n in pattern.nodes if n.op == "placeholder"]
        output = next(iter(reversed(pattern.nodes)))
        self.pattern_returning_nodes = output.all_input_nodes
        if match_output:
            self.pattern_anchors = [output]
        else:
            self.pattern_anchors = [n for n in output.all_input_nodes if len(n.users) == 1]

    def match(self, graph: Graph, node_name_match: str = "") -> list[InternalMatch]:
        """Return the places in a graph, in the order in which they run.

        Args:
            graph: the graph.
            node_name_match: only places that end in a node with this in its name.
        """
        candidates = {
            anchor: [
                n
                for n in graph.nodes
                if self._same_call(anchor, n) and (not node_name_match or node_name_match in n.name)
            ]
            for anchor in self.pattern_anchors
        }
        matches = self._combinations(list(candidates.items()), InternalMatch(anchors=[]))
        found = [m for m in map(self._finished, matches) if m is not None]
        if not self.remove_overlapping_matches:
            return found
        kept: list[InternalMatch] = []
        taken: set[Node] = set()
        for match in found:
            own = {g for p, g in match.nodes_map.items() if p.op not in ("placeholder", "output")}
            if not own & taken:
                kept.append(match)
                taken |= own
        return kept

    def _combinations(self, remaining: Any, match: InternalMatch) -> list[InternalMatch]:
        """Return what a match can become by matching the remaining last nodes of the pattern."""
        if not remaining:
            return [match]
        (anchor, nodes), *rest = remaining
        found = []
        for node in nodes:
            trial = match.__copy__()
            trial.anchors = [*match.anchors, node]
            if self._match_nodes(anchor, node, trial):
                found += self._combinations(rest, trial)
        return found

    def _finished(self, match: InternalMatch) -> InternalMatch | None:
        """Fill a match in; None if others use what is inside of it, or an input has no value."""
        if any(p not in match.nodes_map for p in self.pattern_placeholder_nodes if p.users):
            return None
        for p in self.pattern_placeholder_nodes:
            match.placeholder_nodes.append(match.nodes_map.get(p))
        match.returning_nodes = [match.nodes_map[p] for p in self.pattern_returning_nodes]
        inside = {g for p, g in match.nodes_map.items() if p.op != "placeholder"}
        returned = set(match.returning_nodes)
        for p, g in match.nodes_map.items():
            if p.op in ("placeholder", "output") or g in returned or not isinstance(g, Node):
                continue
            if any(user not in inside for user in g.users):
                return None
        return match

    def _same_call(self, pn: Node, gn: Node) -> bool:
        """Return whether two nodes call the same thing, whatever their arguments."""
        if pn.op == "placeholder":
            return not self.match_placeholder or gn.op == "placeholder"
        if pn.op != gn.op:
            return False
        if pn.op == "output":
            return True
        if pn.op == "get_attr":
            return self._same_attribute(pn, gn)
        if pn.op == "call_module":
            ours, theirs = _module(pn), _module(gn)
            if ours is not None and theirs is not None:
                return type(ours) is type(theirs)
        return bool(pn.target == gn.target)

    @staticmethod
    def _same_attribute(pn: Node, gn: Node) -> bool:
        ours, theirs = _attribute(pn), _attribute(gn)
        if isinstance(ours, tangrad.Tensor):
            return isinstance(theirs, tangrad.Tensor)
        return pn.target == gn.target

    def _match_nodes(self, pn: Node, gn: Any, match: InternalMatch) -> bool:
        if not isinstance(gn, Node):
            return False
        if pn in match.nodes_map:
            return match.nodes_map[pn] is gn
        if any(g is gn for g in match.nodes_map.values()):
            return False  # one node stands for one of the pattern's, as with PyTorch
        if not self._same_call(pn, gn):
            return False
        before = dict(match.nodes_map)
        match.nodes_map[pn] = gn
        if pn.op == "placeholder" or self._match_arguments(pn, gn, match):
            return True
        match.nodes_map.clear()
        match.nodes_map.update(before)
        return False

    def _match_arguments(self, pn: Node, gn: Node, match: InternalMatch) -> bool:
        ours, theirs = _arguments(pn, gn)
        return len(ours) == len(theirs) and all(
            self._match_values(a, b, match) for a, b in zip(ours, theirs, strict=True)
        )

    def _match_values(self, a: Any, b: Any, match: InternalMatch) -> bool:
        if isinstance(a, Node):
            if a.op == "placeholder" and not isinstance(b, Node):
                if a in match.nodes_map:
                    return bool(match.nodes_map[a] == b)
                match.nodes_map[a] = b  # a literal may stand for an input
                return not self.match_placeholder
            return self._match_nodes(a, b, match)
        if isinstance(a, (list, tuple)):
            return (
                isinstance(b, (list, tuple))
                and len(a) == len(b)
                and all(self._match_values(x, y, match) for x, y in zip(a, b, strict=True))
            )
        if isinstance(a, dict):
            return (
                isinstance(b, dict)
                and list(a) == list(b)
                and all(self._match_values(a[k], b[k], match) for k in a)
            )
        if isinstance(a, slice):
            return isinstance(b, slice) and all(
                self._match_values(x, y, match)
                for x, y in ((a.start, b.start), (a.stop, b.stop), (a.step, b.step))
            )
        if isinstance(b, Node):
            return False
        return self.ignore_literals or (type(a) is type(b) and bool(a == b))


def _arguments(pn: Node, gn: Node) -> tuple[list[Any], list[Any]]:
    """Return the arguments of two calls of one thing in one order, as far as it is known."""
    if pn.kwargs.keys() == gn.kwargs.keys() and len(pn.args) == len(gn.args):
        return (
            [*pn.args, *pn.kwargs.values()],
            [*gn.args, *(gn.kwargs[k] for k in pn.kwargs)],
        )
    ours = pn.normalized_arguments(pn.graph.owning_module, normalize_to_only_use_kwargs=True)
    theirs = gn.normalized_arguments(gn.graph.owning_module, normalize_to_only_use_kwargs=True)
    if ours is None or theirs is None or ours.kwargs.keys() != theirs.kwargs.keys():
        return [None], []
    return list(ours.kwargs.values()), [theirs.kwargs[k] for k in ours.kwargs]


def _module(node: Node) -> Any:
    owner = node.graph.owning_module
    try:
        return None if owner is None else owner.get_submodule(str(node.target))
    except AttributeError:
        return None


def _attribute(node: Node) -> Any:
    found = node.graph.owning_module
    for name in str(node.target).split("."):
        found = getattr(found, name, None)
    return found
