"""Statements of recordings that compute what nobody uses."""

from __future__ import annotations

from tangrad_jit.scripting.tree.nodes import (
    Assign,
    Call,
    Expr,
    Invoke,
    Local,
    Node,
    OpCall,
    Unpack,
    every,
)

__all__ = ["without_dead"]


def without_dead(body: list[Node], result: Expr) -> list[Node]:
    """Return statements without those that compute what nobody uses and do nothing else."""
    used = {node.name for node in every(result) if isinstance(node, Local)}
    kept: list[Node] = []
    for node in reversed(body):
        if isinstance(node, Assign) and _is_pure(node.value):
            names = node.target.targets if isinstance(node.target, Unpack) else [node.target]
            if used.isdisjoint(names):
                continue
        kept.append(node)
        used.update(part.name for part in every(node) if isinstance(part, Local))
    return kept[::-1]


def _is_pure(value: Expr) -> bool:
    for node in every(value):
        if isinstance(node, OpCall):
            definition = getattr(node.callee, "definition", None)
            random = definition is None and not isinstance(node.callee, str)
            if node.name.endswith("_") or random or getattr(definition, "random", False):
                return False
        if isinstance(node, (Call, Invoke)):
            return False
        builtin = getattr(node, "builtin", None)
        if builtin is not None and (builtin.writes or builtin.name.endswith("_")):
            return False
    return True
