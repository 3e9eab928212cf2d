"""After which statements variables are needed no more: what they hold is let go there.

A function of Python keeps its variables to its end. A long program of ops, such as a trace, would
hold all tensors that it has made.
"""

from __future__ import annotations

from typing import Any

from tangrad_jit.scripting.tree import nodes as tree
from tangrad_jit.scripting.types import kinds

__all__ = ["last_uses"]

_SMALL = {kinds.INT, kinds.FLOAT, kinds.COMPLEX, kinds.BOOL, kinds.STR, kinds.NONE, kinds.DEVICE}
_SHORT = 16
_LEAVING = (tree.Return, tree.Raise, tree.Break, tree.Continue)


def last_uses(unit: Any) -> dict[int, list[str]]:
    """Return ids of statements -> variables that nobody reads after them, if these may be large.

    Short programs have none: what they hold is soon gone.
    """
    if len(unit.body) < _SHORT:
        return {}
    held = {
        node.target
        for node in tree.every(unit.body)
        if isinstance(node, tree.Assign)
        and isinstance(node.target, str)
        and node.value.type not in _SMALL
    }
    for node in tree.every(unit.body):
        if isinstance(node, tree.Assign) and isinstance(node.target, tree.Unpack):
            held |= tree.assigned([node])
    held -= {parameter.name for parameter in unit.parameters}
    found: dict[int, list[str]] = {}
    if held:
        _follow(unit.body, set(), held, found)
    return found


def _follow(
    nodes: list[tree.Node], after: set[str], held: set[str], found: dict[int, list[str]]
) -> None:
    """Note last uses in statements that run one after another, at most once.

    Args:
        nodes: the statements.
        after: what is read later.
        held: the variables in question.
        found: where they are noted.
    """
    live = set(after)
    for node in reversed(nodes):
        named = tree.assigned([node])
        named |= {part.name for part in tree.every(node) if isinstance(part, tree.Local)}
        gone = (named & held) - live
        if isinstance(node, (tree.With, tree.If)):
            _follow(node.body, live, held, found)
            _follow(getattr(node, "orelse", []), live, held, found)
        if gone and not isinstance(node, _LEAVING) and node is not nodes[-1]:
            found[id(node)] = sorted(gone)
        live |= named
