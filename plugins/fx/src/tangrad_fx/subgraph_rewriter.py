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
    val_map: dict[Node, Node] = {}
    for wanted, given in zip(inputs, match.placeholder_nodes, strict=True):
        found = changed.get(given, given) if isinstance(given, Node) else given
        val_map[wanted] = found
    users = {u for n in match.returning_nodes for u in n.users}
    first = next((n for n in graph.nodes if n in users), None)
    if users and len(match.returning_nodes) == 1:
        first = next(n for n in graph.nodes if n in match.returning_nodes[0].users)
    elif first is None:
        first = next(n for n in graph.nodes if n.op == "output")
    last_input = _last(graph, [v for v in val_map.values() if isinstance(v, Node)])
    with graph.inserting_before(first) if first is not None else graph.inserting_after(last_input):
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


def _last(graph: Graph, nodes: list[Node]) -> Node | None:
    return next((n for n in reversed(graph.nodes) if n in nodes), None)


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
