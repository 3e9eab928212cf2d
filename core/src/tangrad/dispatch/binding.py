"""Arguments by name: for the functions of a definition, and as a person writes a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tangrad import _C


def call_by_name(function: Callable[..., Any], named: Mapping[str, Any]) -> Any:
    """Call a function with those of the named values that it asks for."""
    code = function.__code__
    if code.co_flags & 0x04:  # *args: everything, in order
        return function(*named.values())
    return function(
        *[named[name] for name in code.co_varnames[: code.co_argcount]],
        **{
            name: named[name]
            for name in code.co_varnames[
                code.co_argcount : code.co_argcount + code.co_kwonlyargcount
            ]
        },
    )


def call_form(op: _C.Op, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return (args, kwargs) of a bound call, defaults left out, as a person would write it."""
    params = op.definition.schema.params
    positional: list[Any] = []
    kwargs: dict[str, Any] = {}
    skipped = False
    for p, value in zip(params, args, strict=True):
        default = p.default is value or (
            type(value) in (bool, int, float, str, tuple)
            and p.default == value
            and type(p.default) is type(value)
        )
        if default:
            skipped = True
            continue
        if p.keyword_only or skipped:
            kwargs[p.name] = value
        else:
            positional.append(value)
    return tuple(positional), kwargs


def call_bound(op: _C.Op, args: tuple[Any, ...]) -> Any:
    """Call an op with all its arguments in schema order."""
    return _C.dispatch(op, op, args, None)
