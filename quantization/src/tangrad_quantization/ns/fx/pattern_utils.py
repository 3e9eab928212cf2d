"""Chains of nodes that are one node once a model is fused or quantized."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad import fx, nn
from tangrad.nn import functional as F
from tangrad_quantization.backend_config import get_native_backend_config
from tangrad_quantization.fx.matching import longest_first
from tangrad_quantization.ns.fx.ns_types import NSNodeTargetType
from tangrad_quantization.ns.fx.utils import called_module

# From the last call to the first.
Chain = tuple[Any, ...]


def get_type_a_related_to_b(
    base_name_to_sets_of_related_ops: dict[str, set[NSNodeTargetType]],
) -> set[tuple[NSNodeTargetType, NSNodeTargetType]]:
    """Return all pairs of forms of one op."""
    return {
        (one, other)
        for family in base_name_to_sets_of_related_ops.values()
        for one in family
        for other in family
    }


def _flat(pattern: Any) -> Chain | None:
    """Return a nested pattern as a chain; None where it branches."""
    if not isinstance(pattern, tuple):
        return (pattern,)
    if len(pattern) != 2:
        return None
    rest = _flat(pattern[1])
    return None if rest is None else (pattern[0], *rest)


def get_reversed_fusions() -> list[tuple[Chain, int]]:
    """Return chains, longest first, each with the place of its base counted from the first call."""
    configs = longest_first(get_native_backend_config().configs)
    chains = [chain for config in configs if (chain := _flat(config.nested_pattern())) is not None]
    norms = [(getattr(nn, f"BatchNorm{n}d"), getattr(nn, f"Conv{n}d")) for n in (1, 2, 3)]
    chains += [(nn.ReLU, *pair) for pair in norms] + norms
    found = [(chain, 0) for chain in chains if len(chain) > 1]
    # A linear layer in half precision: what makes numbers of its input and halves of its output
    # belongs to it.
    found.append(((("to", tangrad.float16), F.relu, F.linear, "dequantize"), 1))
    return sorted(found, key=lambda pair: -len(pair[0]))


def _fits(node: fx.Node, wanted: Any, gm: Any) -> bool:
    if node.op == "call_module":
        return isinstance(wanted, type) and isinstance(called_module(node, gm), wanted)
    if node.op == "call_method":
        if isinstance(wanted, tuple):
            return node.target == wanted[0] and node.args[1:2] == wanted[1:]
        return isinstance(wanted, str) and node.target == wanted
    return node.op == "call_function" and node.target is wanted


def chain_ending_at(
    end_node: fx.Node, reversed_fusion: Chain, gm: Any, seen_nodes: set[fx.Node]
) -> list[fx.Node] | None:
    """Return the nodes of a chain, the last first; None where it does not end at a node.

    Args:
        end_node: the node.
        reversed_fusion: the chain.
        gm: the model.
        seen_nodes: nodes that belong to other chains.
    """
    nodes: list[fx.Node] = []
    node: Any = end_node
    for wanted in reversed_fusion:
        if not isinstance(node, fx.Node) or node in seen_nodes or not _fits(node, wanted, gm):
            return None
        nodes.append(node)
        node = node.args[0] if node.args else None
    return nodes


def end_node_matches_reversed_fusion(
    end_node: fx.Node, reversed_fusion: Chain, gm: Any, seen_nodes: set[fx.Node]
) -> bool:
    """Return whether a chain ends at a node; arguments as of `chain_ending_at`."""
    return chain_ending_at(end_node, reversed_fusion, gm, seen_nodes) is not None
