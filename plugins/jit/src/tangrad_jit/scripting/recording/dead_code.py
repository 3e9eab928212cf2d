"""Statements of recordings that compute what nobody uses."""

from __future__ import annotations

import re
from typing import Any

from tangrad.plugin import find_op
from tangrad_jit.scripting.check.op_calls import is_op
from tangrad_jit.scripting.tree.nodes import (
    Assign,
    Call,
    Const,
    Expr,
    Invoke,
    Local,
    Node,
    OpCall,
    Unpack,
    every,
)

__all__ = ["is_pure", "without_dead"]

# Ops that are made of others which draw say so by their names alone.
_DRAWING = re.compile(
    "rand|bernoulli|normal|dropout|multinomial|binomial|poisson|gumbel|rrelu|gamma|dirichlet"
)


def without_dead(body: list[Node], result: Expr) -> list[Node]:
    """Return statements without those that compute what nobody uses and do nothing else."""
    used = {node.name for node in every(result) if isinstance(node, Local)}
    kept: list[Node] = []
    for node in reversed(body):
        if isinstance(node, Assign) and is_pure(node.value):
            names = node.target.targets if isinstance(node.target, Unpack) else [node.target]
            if used.isdisjoint(names):
                continue
        kept.append(node)
        used.update(part.name for part in every(node) if isinstance(part, Local))
    return kept[::-1]


def is_pure(value: Expr) -> bool:
    """Return whether an expression does nothing but compute its value."""
    return not any(map(_does_more, every(value)))


def _does_more(node: Any) -> bool:
    """Return whether a node does more than compute a value, or may do so."""
    if isinstance(node, (Call, Invoke)):
        return True
    if isinstance(node, OpCall):
        callee = node.callee
        if isinstance(callee, str):
            callee = find_op(callee) if is_op(callee) else None
        definition = getattr(callee, "definition", None)
        given = [*node.args, *node.kwargs.values()]
        return (
            node.name.endswith("_")
            or definition is None
            or bool(definition.random)
            or _DRAWING.search(node.name) is not None
            or "out" in node.kwargs
            # It may write what it is given, as `inplace` and `training` say.
            or any(isinstance(arg, Const) and arg.value is True for arg in given)
        )
    builtin = getattr(node, "builtin", None)
    return builtin is not None and (builtin.writes or builtin.name.endswith("_"))
