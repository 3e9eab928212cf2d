"""Things that stand beside tensors and networks; `utils.data` is of a package of its own."""

from __future__ import annotations

import sys
from typing import Any

from tangrad.discovery.namespaces import attribute_of

_of_plugins = attribute_of(__name__)
_SUBMODULES = ("_pytree", "_python_dispatch", "checkpoint", "deterministic", "gradients", "hooks")


def _set_module(obj: Any, mod: str) -> None:
    """Say of which module a public object is told to be.

    Raises:
        TypeError: the module is not given by its name.
    """
    if not isinstance(mod, str):
        raise TypeError("The mod argument should be a string")
    obj.__module__ = mod


def __getattr__(name: str) -> Any:
    if name == "swap_tensors":
        from tangrad.utils.swap import swap_tensors

        return swap_tensors
    if name == "set_module":
        return _set_module
    if name not in _SUBMODULES:
        return _of_plugins(name)
    __import__(f"{__name__}.{name}")
    return sys.modules[f"{__name__}.{name}"]
