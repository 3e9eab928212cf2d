"""The arguments of a call by name."""

from __future__ import annotations

import inspect
from typing import Any

from tangrad.nn import Module

__all__ = ["by_name"]


def by_name(mod: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments by name, in the order of the call."""
    bound = inspect.signature(mod.forward).bind(*args, **kwargs)
    named: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            named.update({f"{name}_{i}": part for i, part in enumerate(value)})
        elif kind is inspect.Parameter.VAR_KEYWORD:
            named.update(value)
        else:
            named[name] = value
    # `bind` orders by the signature; the leaves of a call are its positional ones, then keywords.
    by_position = [name for name in named if name not in kwargs]
    return {name: named[name] for name in (*by_position, *kwargs)}
