"""Call the functions of a definition with the arguments that their parameters name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


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
