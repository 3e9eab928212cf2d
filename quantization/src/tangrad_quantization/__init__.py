"""Quantization: dynamic, static and quantization-aware, with the same integers on every CPU.

Seen as `tangrad.quantization` and `tangrad.ao.quantization`; PyTorch's names and meaning. They are
in `names.py`, which is loaded with the first of them: every program that opens a device has this
package register its ops, and few quantize.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tangrad_quantization.names import *  # noqa: F403
    from tangrad_quantization.names import __all__ as __all__

API = 1


def _name(name: str) -> Any:
    names = import_module(f"{__name__}.names")
    if not hasattr(names, name):
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(names, name)


class _Package(ModuleType):
    """Show the functions where modules of the package have the same names, as PyTorch does."""

    quantize = property(lambda self: _name("quantize"), lambda self, module: None)
    fuse_modules = property(lambda self: _name("fuse_modules"), lambda self, module: None)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name.startswith("__") and name != "__all__":
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    if find_spec(f"{__name__}.{name}") is not None:
        return import_module(f"{__name__}.{name}")
    return _name(name)


def __dir__() -> list[str]:
    return [*globals(), *_name("__all__")]
