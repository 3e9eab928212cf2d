"""Errors of the expression language."""

from __future__ import annotations

from collections.abc import Iterable


class ExpressionError(ValueError):
    """Report source text that is not an expression of the language."""


class ExpressionTypeError(TypeError):
    """Report an expression that has no meaning for the given dtypes."""


class DerivativeError(RuntimeError):
    """Report a derivative that does not exist or is not defined, with the reason."""


def hint(name: str, known: Iterable[str]) -> str:
    """Return what an error of an unknown name adds: the nearest known name, or all of them."""
    from difflib import get_close_matches

    choices = sorted(known)
    near = get_close_matches(name, choices, 1)
    return f"; did you mean '{near[0]}'?" if near else f"; known: {', '.join(choices)}"
