"""Which integers stay within 64 bits, so that arithmetic with them needs no check."""

from __future__ import annotations

from tangrad_jit.scripting.tree.nodes import Apply, Const, Convert, Expr, Local

__all__ = ["is_small"]

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
        return parts[1]
    return _UNKNOWN
