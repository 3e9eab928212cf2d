"""Patterns of calls in a graph.

A pattern stands in the nested form: the last call first, then what its arguments are to be,
`(nn.ReLU, (nn.BatchNorm2d, nn.Conv2d))`. A call is a type of module, a function, the name of a
method, or `MatchAllNode`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tangrad import fx
from tangrad.nn.utils.parametrize import type_before_parametrizations
from tangrad_quantization.backend_config import BackendConfig, BackendPatternConfig
from tangrad_quantization.fuser_method_mappings import MatchAllNode


@dataclass
class Match:
    """Nodes that fit a pattern.

    Attributes:
        config: what the backend says of the pattern.
        nodes: the nodes, nested as the pattern is; ends at `MatchAllNode` are among them.
        last: the node whose value goes on.
        root: the first node, which takes the input.
    """

    config: BackendPatternConfig
    nodes: Any
    last: fx.Node
    root: fx.Node

    def own_nodes(self) -> list[fx.Node]:
        """Return the nodes of the pattern, without those that may be anything."""
        return list(_own(self.nodes, self.config.nested_pattern()))


def _own(nodes: Any, pattern: Any) -> Iterator[fx.Node]:
    if isinstance(pattern, tuple):
        for node, part in zip(nodes, pattern, strict=True):
            yield from _own(node, part)
    elif pattern is not MatchAllNode:
        yield nodes


def parts_of(pattern: Any) -> int:
    """Return how many calls a pattern is of."""
    return sum(map(parts_of, pattern)) if isinstance(pattern, tuple) else 1


def longest_first(configs: Iterable[BackendPatternConfig]) -> list[BackendPatternConfig]:
    """Return configurations by the length of their patterns; of equals the earlier first."""
    return sorted(configs, key=lambda config: -parts_of(config.nested_pattern()))


def fits(node: Any, pattern: Any, modules: dict[str, Any]) -> bool:
    """Return whether a node calls what one part of a pattern says."""
    if pattern is MatchAllNode:
        return True
    if not isinstance(node, fx.Node):
        return False
    if isinstance(pattern, type):
        if node.op != "call_module" or node.target not in modules:
            return False
        return type_before_parametrizations(modules[str(node.target)]) is pattern
    if isinstance(pattern, str):
        return node.op == "call_method" and node.target == pattern
    return node.op == "call_function" and node.target is pattern


def nodes_of(node: Any, pattern: Any, modules: dict[str, Any], uses: float = float("inf")) -> Any:
    """Return nodes nested as a pattern that ends at a node, or None where it does not fit.

    Inner nodes must have one use: their values are gone once the pattern is one call.
    """
    if pattern is MatchAllNode:
        return node
    if not isinstance(node, fx.Node) or len(node.users) > uses:
        return None
    first, *rest = pattern if isinstance(pattern, tuple) else (pattern,)
    if not fits(node, first, modules):
        return None
    if not isinstance(pattern, tuple):
        return node
    arguments = [argument for argument in node.args if isinstance(argument, fx.Node)]
    if len(arguments) < len(rest) or (len(rest) > 1 and len(node.args) != len(rest)):
        return None
    found = [nodes_of(a, part, modules, 1) for a, part in zip(arguments, rest, strict=False)]
    return None if any(part is None for part in found) else (node, *found)


def _first(nodes: Any) -> fx.Node:
    while isinstance(nodes, tuple):
        nodes = nodes[-1]
    return nodes


def find_matches(
    graph: fx.Graph, modules: dict[str, Any], configs: list[BackendPatternConfig]
) -> dict[fx.Node, Match]:
    """Return, for each node, the pattern that it belongs to; later nodes choose first."""
    found: dict[fx.Node, Match] = {}
    by_head: dict[Any, list[BackendPatternConfig]] = {}
    for config in configs:
        pattern = config.nested_pattern()
        head = pattern[0] if isinstance(pattern, tuple) else pattern
        by_head.setdefault(head, []).append(config)
    for node in reversed(graph.nodes):
        if node in found:
            continue
        for config in by_head.get(called_by(node, modules), ()):
            nodes = nodes_of(node, config.nested_pattern(), modules)
            if nodes is None:
                continue
            getter = config._root_node_getter
            root = getter(nodes) if getter is not None else _first(nodes)
            match = Match(config, nodes, node, root)
            if not any(own in found for own in match.own_nodes()):
                found.update(dict.fromkeys(match.own_nodes(), match))
                break
    return found


def called_by(node: fx.Node, modules: dict[str, Any]) -> Any:
    """Return what a node calls, as patterns name it; None where it calls nothing."""
    if node.op == "call_module":
        module = modules.get(str(node.target))
        return None if module is None else type_before_parametrizations(module)
    return node.target if node.op in ("call_function", "call_method") else None


def fusions(backend: BackendConfig) -> list[BackendPatternConfig]:
    """Return what a backend fuses."""
    return longest_first(config for config in backend.configs if config.fuser_method is not None)


def quantizations(backend: BackendConfig) -> list[BackendPatternConfig]:
    """Return what a backend quantizes."""
    return longest_first(backend.configs)
