"""Conditions that are known when a program is scripted."""

from __future__ import annotations

from tangrad_jit.scripting.tree.nodes import Const, Expr
from tangrad_jit.scripting.types.kinds import BOOL

__all__ = ["constant_condition"]


def constant_condition(condition: Expr) -> bool | None:
    """Return what a condition is where that is known, or None."""
    if isinstance(condition, Const) and condition.type == BOOL:
        return bool(condition.value)
    return None
