"""The arguments of a call by name."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from tangrad.nn import Module

__all__ = ["by_name", "shapes_by_name"]


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


def shapes_by_name(
    mod: Module, args: tuple[Any, ...], kwargs: dict[str, Any], shapes: Any
) -> dict[str, Any]:
    """Return the shapes of arguments, those of `*args` and `**kwargs` under their own names.

    Args:
        mod: the module.
        args, kwargs: of the call.
        shapes: by the names of parameters or arguments, or one for each in their order.

    Raises:
        ValueError: there are more than arguments, or others than `*args` has; or no shapes at all.
    """
    if not isinstance(shapes, (Mapping, Sequence)) or isinstance(shapes, str):
        raise ValueError(
            "dynamic_shapes: expected a dict by the names of arguments, or a tuple with one for "
            f"each, got {shapes!r}"
        )
    bound = inspect.signature(mod.forward).bind(*args, **kwargs)
    named = by_name(mod, args, kwargs)
    parameters = bound.signature.parameters
    several = {
        name: f"{name}_" if parameters[name].kind is inspect.Parameter.VAR_POSITIONAL else ""
        for name in bound.arguments
        if parameters[name].kind
        in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    }
    if not isinstance(shapes, Mapping):
        grouped = len(shapes) <= len(bound.arguments) and any(
            name in several and _is_group(one)
            for name, one in zip(bound.arguments, shapes, strict=False)
        )
        names = list(bound.arguments) if grouped else list(named)
        if len(shapes) > len(names):
            raise ValueError(f"dynamic_shapes: {len(shapes)} given for the arguments {names}")
        shapes = dict(zip(names, shapes, strict=False))
    found: dict[str, Any] = {}
    for name, one in shapes.items():
        if name not in several or name in named or one is None:
            found.update({} if name in several and name not in named else {name: one})
            continue
        given = bound.arguments[name]
        members = one if isinstance(one, Mapping) else dict(enumerate(one))
        if len(members) != len(given):
            raise ValueError(
                f"dynamic_shapes: {len(members)} given for the {len(given)} arguments of {name!r}"
            )
        found.update({f"{several[name]}{key}": shape for key, shape in members.items()})
    return found


def _is_group(shapes: Any) -> bool:
    """Return whether shapes are of several arguments, and not of the dimensions of one."""
    if isinstance(shapes, Mapping):
        return all(isinstance(key, str) for key in shapes)
    return isinstance(shapes, Sequence) and all(
        one is None or isinstance(one, (Mapping, Sequence)) for one in shapes
    )
