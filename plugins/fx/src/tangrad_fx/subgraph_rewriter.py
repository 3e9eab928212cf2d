"""Find a pattern in a graph and put something else in its place."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from tangrad.nn import Module
from tangrad_fx._symbolic_trace import symbolic_trace
from tangrad_fx.graph import Graph
from tangrad_fx.graph_module import GraphModule
from tangrad_fx.node import Node, map_arg
from tangrad_fx.passes.tools_common import stable_topological_sort
from tangrad_fx.passes.utils.matcher_utils import InternalMatch, SubgraphMatcher

__all__ = ["Match", "ReplacedPatterns", "replace_pattern", "replace_pattern_with_filters"]


class Match(NamedTuple):
    """A place where a pattern was found.

    Attributes:
        anchor: the last node of it.
        nodes_map: {node of the pattern: node of the graph}.
    """

    anchor: Node
    nodes_map: dict[Node, Node]


@dataclass
class ReplacedPatterns:
    """A place where a pattern was replaced.

    Attributes:
        anchor: the last node of it.
        nodes_map: {node of the pattern: node of the graph}.
        replacements: the nodes that were put there.
    """

    anchor: Node
    nodes_map: dict[Node, Node]
    replacements: list[Node]


def replace_pattern(
    gm: GraphModule,
    pattern: Callable[..., Any] | GraphModule,
    replacement: Callable[..., Any] | GraphModule,
) -> list[Match]:
    """Replace every place where a graph does what a pattern does; overlapping ones once.

    Args:
        gm: the module, changed in place.
        pattern: function or module whose graph is looked for; its inputs match anything.
        replacement: function or module with the same inputs and outputs.

    Returns:
        The places.
    """
    found = replace_pattern_with_filters(gm, pattern, replacement)
    return [Match(m.anchor, m.nodes_map) for m in found]


def replace_pattern_with_filters(
    gm: GraphModule,
    pattern: Callable[..., Any] | Graph | GraphModule,
    replacement: Callable[..., Any] | Graph | GraphModule | None = None,
    match_filters: list[Callable[[InternalMatch, Graph, Graph], bool]] | None = None,
    ignore_literals: bool = False,
    replacement_callback: Callable[[InternalMatch, Graph, Graph], Graph] | None = None,
    node_name_match: str = "",
) -> list[ReplacedPatterns]:
    """Replace places where a graph does what a pattern does.

    Args:
        gm: the module, changed in place.
        pattern: what is looked for.
        replacement: what comes there.
        match_filters: (match, graph, pattern's graph) -> whether to replace it; all must agree.
        ignore_literals: whether numbers and strings in the pattern match any other.
        replacement_callback: gives the replacement's graph for a match, in place of `replacement`.
        node_name_match: match only the node whose name has this in it.

    Raises:
        AssertionError: neither a replacement nor a callback was given.
    """
    graph = gm.graph
    pattern_graph = _graph_of(pattern)
    matcher = SubgraphMatcher(
        pattern_graph,
        match_output=False,
        match_placeholder=False,
        remove_overlapping_matches=True,
        ignore_literals=ignore_literals,
    )
    matches = matcher.match(graph, node_name_match=node_name_match)
    matches = [m for m in matches if all(f(m, graph, pattern_graph) for f in match_filters or ())]
    common = None if replacement is None else _graph_of(replacement)
    if common is None and replacement_callback is None:
        raise AssertionError("Must provide either replacement GraphModule or replacement callback")
    changed: dict[Node, Node] = {}
    replaced = []
    for match in matches:
        new = (
            common
            if replacement_callback is None
            else replacement_callback(match, graph, pattern_graph)
        )
        assert new is not None
        replaced.append(_replace(graph, pattern_graph, new, match, changed))
    if not _is_ordered(graph):  # a result was used before all that the pattern takes was there
        stable_topological_sort(gm)
    gm.recompile()
    if isinstance(replacement, Module):
        _replace_attributes(gm, replacement)
    return replaced


def _graph_of(source: Any) -> Graph:
    if isinstance(source, GraphModule):
        return source.graph
    if isinstance(source, Graph):
        return source
    return symbolic_trace(source).graph


def _replace(
    graph: Graph, pattern: Graph, new: Graph, match: InternalMatch, changed: dict[Node, Node]
) -> ReplacedPatterns:
    """Put one replacement in.

    Args:
        graph, pattern, new: the graph, and those of pattern and replacement.
        match: the place.
        changed: {node that an earlier replacement took out: what came for it}, also filled.
    """
    inputs = [n for n in new.nodes if n.op == "placeholder"]
    if len(inputs) != len(match.placeholder_nodes):
        raise AssertionError(
            f"the pattern has {len(match.placeholder_nodes)} inputs and its replacement "
            f"{len(inputs)}"
        )
    val_map: dict[Node, Any] = {}
    for place, wanted in enumerate(inputs):
        # What stands for an input may be a list of nodes, of which others took the place since.
        found = map_arg(match.placeholder_nodes[place], lambda n: _now(n, changed))
        val_map[wanted] = match.placeholder_nodes[place] = found
    for p, placeholder in zip(_placeholders(pattern), match.placeholder_nodes, strict=True):
        if p in match.nodes_map:
            match.nodes_map[p] = placeholder
    with _place(graph, pattern, match):
        result = graph.graph_copy(new, val_map)
    copied = [val_map[n] for n in new.nodes if n.op not in ("placeholder", "output")]
    results: list[Node] = []
    map_arg(result, results.append)
    if isinstance(result, Node):
        results = [result]
    if len(results) != len(match.returning_nodes):
        raise AssertionError(
            f"the pattern returns {len(match.returning_nodes)} values and its replacement "
            f"{len(results)}"
        )
    for old, came in zip(match.returning_nodes, results, strict=True):
        old.replace_all_uses_with(came)
        changed[old] = came
    for node in reversed(pattern.nodes):
        if node.op not in ("placeholder", "output"):
            gone = match.nodes_map[node]
            if not gone.users:
                graph.erase_node(gone)
    return ReplacedPatterns(match.anchors[0], match.nodes_map, copied)


def _placeholders(graph: Graph) -> list[Node]:
    return [n for n in graph.nodes if n.op == "placeholder"]


def _now(node: Node, changed: dict[Node, Node]) -> Node:
    """Return what stands in a node's place by now."""
    while node in changed:
        node = changed[node]
    return node


def _place(graph: Graph, pattern: Graph, match: InternalMatch) -> Any:
    """Return the place for a replacement: in front of the first user, if nothing acts before.

    What acts is a call that writes, or has other effects: it stays behind what was matched.
    """
    order = list(graph.nodes)
    place = {node: i for i, node in enumerate(order)}
    inputs: list[Node] = []
    map_arg(match.placeholder_nodes, inputs.append)
    own = [match.nodes_map[n] for n in pattern.nodes if n.op not in ("placeholder", "output")]
    behind = max((place[n] for n in (*inputs, *own)), default=-1) + 1
    while order[behind].op == "placeholder":
        behind += 1
    users = {u for n in match.returning_nodes for u in n.users}
    first = min((place[u] for u in users), default=behind)
    given = all(place[n] < first for n in inputs) and order[first].op != "placeholder"
    between = order[min(first, behind) : max(first, behind)]
    acts = any(n.is_impure(False) for n in between if n not in own)
    return graph.inserting_before(order[first if given and not acts else behind])


def _is_ordered(graph: Graph) -> bool:
    seen: set[Node] = set()
    for node in graph.nodes:
        if not seen.issuperset(node.all_input_nodes):
            return False
        seen.add(node)
    return True


def _replace_attributes(gm: GraphModule, replacement: Module) -> None:
    """Take over the attributes that replacement nodes use, and drop modules that nothing uses."""
    gm.delete_all_unused_submodules()

    def find(module: Module, path: str) -> Any:
        found: Any = module
        for name in path.split("."):
            found = getattr(found, name, None)
        return found

    for node in gm.graph.nodes:
        if node.op in ("call_module", "get_attr"):
            target = str(node.target)
            if find(gm, target) is not None:
                continue
            brought = find(replacement, target)
            if brought is None:
                raise RuntimeError(
                    f'Attempted to create a "{node.op}" node during subgraph rewriting with '
                    f"target {target}, but the referenced attribute does not exist in the "
                    "replacement GraphModule"
                )
            if node.op == "call_module":
                gm.add_submodule(target, copy.deepcopy(brought))
            else:
                from tangrad_fx.graph_module import _assign_attr

                _assign_attr(copy.deepcopy(brought), gm, target)
    gm.graph.lint()
