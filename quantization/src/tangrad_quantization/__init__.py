"""Quantization: dynamic, static and quantization-aware, with the same integers on every CPU.

Seen as `tangrad.quantization` and `tangrad.ao.quantization`; PyTorch's names and meaning.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tangrad_quantization.names import *  # noqa: F403  (for type checkers)

API = 1

# Functions that PyTorch has by the names of the modules in which they are.
_FUNCTIONS = frozenset({"fuse_modules", "quantize"})


class _Package(ModuleType):
    """A package in which importing a module does not hide the function of its name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _FUNCTIONS or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    # The first op of a program loads `registration` beside this; modules and workflow can wait.
    from importlib import import_module
    from importlib.util import find_spec

    if name.startswith("__") and name != "__all__":
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    if name not in _FUNCTIONS and find_spec(f"{__name__}.{name}") is not None:
        return import_module(f"{__name__}.{name}")
    found = globals()[name] = getattr(import_module(f"{__name__}.names"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
