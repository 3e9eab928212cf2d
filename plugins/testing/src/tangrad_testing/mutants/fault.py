"""The list of planted faults."""

from __future__ import annotations

from typing import TypeVar

Made = TypeVar("Made", bound=type)

PLANTED: dict[str, type] = {}


def fault(made: Made) -> Made:
    """Add a faulty device; its docstring says what is wrong with it."""
    PLANTED[made.__name__] = made
    return made
