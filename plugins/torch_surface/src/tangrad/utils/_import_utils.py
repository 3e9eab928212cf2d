"""Whether packages are installed, as libraries for PyTorch ask: `torch.utils._import_utils`."""

from __future__ import annotations

import importlib.util
from types import ModuleType

__all__ = ["check_module_exists", "dill_available", "import_dill"]


def check_module_exists(name: str) -> bool:
    """Return whether a module can be imported, without importing it."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def dill_available() -> bool:
    """Return whether pipes pickle by dill: they never do."""
    return False


def import_dill() -> ModuleType | None:
    """Return nothing: see `dill_available`."""
    return None
