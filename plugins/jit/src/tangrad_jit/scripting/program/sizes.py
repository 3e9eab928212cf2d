"""Which integers stay within 64 bits, so that arithmetic with them needs no check."""

from __future__ import annotations

from typing import Any

from tangrad_jit.scripting.tree import nodes as tree
from tangrad_jit.scripting.tree.nodes import Apply, Const, Convert, Expr, Local

__all__ = ["is_small", "small_variables"]

# Nobody counts to 2 ** 48, and no list is as long.
_COUNT = 48
_UNKNOWN = 64


def is_small(node: Expr, counters: set[str]) -> bool:
    """Return whether an integer is below 2 ** 63, given the variables that only count."""
    return _bits(node, counters) < _UNKNOWN


def _bits(node: Expr, counters: set[str]) -> int:
    """Return how many bits an integer has at most."""
    if isinstance(node, Const) and isinstance(node.value, int):
        return max(1, node.value.bit_length())
    if isinstance(node, Local):
        return _COUNT if node.name in counters else _UNKNOWN
    if isinstance(node, Convert) and node.kind == "refine":
        return _bits(node.value, counters)
    if not isinstance(node, Apply):
        return _UNKNOWN
    name = node.builtin.name
    if name in ("len", "size", "dim", "numel", "ord"):
        return _COUNT
    parts = [_bits(arg, counters) for arg in node.args]
    if name in ("add", "sub"):
        return min(_UNKNOWN, max(parts) + 1)
    if name == "mul":
        return min(_UNKNOWN, sum(parts))
    if name in ("neg", "abs"):
        return min(_UNKNOWN, parts[0] + 1) if parts[0] >= _UNKNOWN else parts[0]
    if name == "floordiv":
        known = isinstance(node.args[1], Const) and node.args[1].value > 0
        return parts[0] if parts[0] < _UNKNOWN or not known else _UNKNOWN - 1
    if name == "remainder":
        return parts[1] if parts[1] < _UNKNOWN else _UNKNOWN
    return _UNKNOWN


def small_variables(unit: Any) -> set[str]:
    """Return the variables of a function that only count, or hold what follows from counting.

    All are taken to, at first; those are dropped to which something larger is stored, until none
    is left to drop.
    """
    stores: dict[str, list[Expr | None]] = {p.name: [None] for p in unit.parameters}
    for node in tree.every(unit.body):
        if isinstance(node, tree.Assign) and isinstance(node.target, str):
            stores.setdefault(node.target, []).append(node.value)
        elif isinstance(node, (tree.Assign, tree.With)):
            for name in _names(node.target if isinstance(node, tree.Assign) else node.names):
                stores.setdefault(name, []).append(None)
        elif isinstance(node, (tree.For, tree.Comprehension)):
            counted = _counters(node)
            for name in _names(node.target):
                stores.setdefault(name, []).extend([] if name in counted else [None])
    small = set(stores)
    while True:
        dropped = {
            name
            for name in small
            if any(v is None or _bits(v, small) > _COUNT for v in stores[name])
        }
        if not dropped:
            return small
        small -= dropped


def _names(target: Any) -> list[str]:
    if isinstance(target, str):
        return [target]
    parts = target.targets if isinstance(target, tree.Unpack) else target or []
    return [name for part in parts for name in _names(part)]


def _counters(node: tree.For | tree.Comprehension) -> list[str]:
    """Return the variables of a loop that only count, and so stay far from 64 bits."""
    over, target = node.iteration, node.target
    if over.kind == "range" and isinstance(target, str):
        starts = [] if len(over.values) == 1 else [over.values[0], *over.values[2:]]
        if all(isinstance(s, tree.Const) and abs(s.value) < 1 << 30 for s in starts):
            return [target]
    if over.kind == "enumerate" and isinstance(target, tree.Unpack) and not over.values:
        return [target.targets[0]]
    return []
