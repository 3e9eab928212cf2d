"""Errors of the expression language."""

from __future__ import annotations


class ExpressionError(ValueError):
    """Report source text that is not an expression of the language."""


class ExpressionTypeError(TypeError):
    """Report an expression that has no meaning for the given dtypes."""


class DerivativeError(RuntimeError):
    """Report a derivative that does not exist or is not defined, with the reason."""
