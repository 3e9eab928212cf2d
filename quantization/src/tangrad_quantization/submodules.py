"""Modules below a package that are imported when they are first asked for, as PyTorch's are."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def of(package: str) -> Callable[[str], Any]:
    """Return a `__getattr__` for a package.

    Args:
        package: its `__name__`.
    """

    def attribute(name: str) -> Any:
        if not name.startswith("_") and find_spec(f"{package}.{name}") is not None:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module '{package}' has no attribute '{name}'")

    return attribute
