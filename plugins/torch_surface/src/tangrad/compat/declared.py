"""Functions of the top level whose arguments are bound by a schema, as PyTorch binds them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any

from tangrad.library.binding import bind
from tangrad.library.schemas import parse
from tangrad.plugin import overridable

__all__ = ["declared"]


def declared(text: str) -> Callable[[Callable[..., Any]], Any]:
    """Bind calls of a function by a schema, and let others take them over.

    Args:
        text: the schema's arguments, in parentheses. What does not fit them is a TypeError.
    """

    def wrap(function: Callable[..., Any]) -> Any:
        name = function.__name__
        schema = cache(lambda: parse(name, f"{text} -> Tensor"))

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                values, named = bind(schema(), args, kwargs)
            except RuntimeError as error:
                raise TypeError(str(error)) from None
            return function(*values, **named)

        return overridable(call)

    return wrap
