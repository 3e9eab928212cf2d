"""Conditions that are known when a program is scripted."""

from __future__ import annotations

import operator

from tangrad_jit.scripting.tree.nodes import And, Apply, Const, Convert, Expr, Not, Or
from tangrad_jit.scripting.types.kinds import BOOL, FLOAT, INT, STR

_COMPARED = {name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
_SIMPLE = (INT, FLOAT, STR, BOOL)

__all__ = ["constant_condition", "is_always_none"]


def constant_condition(condition: Expr) -> bool | None:
    """Return what a condition is where that is known, or None.

    One that is no constant still has to be evaluated, for what its parts do.
    """
    if isinstance(condition, Const) and condition.type == BOOL:
        return bool(condition.value)
    if isinstance(condition, Apply) and condition.builtin.name in _COMPARED:
        args = [a.value for a in condition.args if isinstance(a, Const) and a.type in _SIMPLE]
        return bool(_COMPARED[condition.builtin.name](*args)) if len(args) == 2 else None
    if isinstance(condition, Not):
        inner = constant_condition(condition.value)
        return None if inner is None else not inner
    if isinstance(condition, (And, Or)):
        decides = isinstance(condition, Or)
        parts = (constant_condition(condition.left), constant_condition(condition.right))
        return decides if decides in parts else None
    return None


def is_always_none(value: Expr) -> bool:
    """Return whether a value is the constant None, also one that is annotated."""
    while isinstance(value, Convert) and value.kind == "refine":
        value = value.value
    return isinstance(value, Const) and value.value is None
