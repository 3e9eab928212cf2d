"""The table of forms: how ops that are no expressions are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["FORMS", "WHOLE", "form"]

# {op: form}. A form takes the graph, the call's arguments by name and its `Result` (a list of
# those for several), and returns the name of the result or names of several.
FORMS: dict[str, Callable[..., Any]] = {}
# Composite ops that are written as they are, and not by what they are made of.
WHOLE: set[str] = set()


def form(*names: str, whole: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the form of ops.

    Args:
        names: of the ops.
        whole: the op is composite, and its parts are not written.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            FORMS[name] = function
            if whole:
                WHOLE.add(name)
        return function

    return register
