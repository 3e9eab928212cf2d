"""Op definitions by family; `tangrad.ops.NAME` is any op, whatever namespace shows it.

`tangrad.ops.NAMESPACE.NAME` is an op that was defined by `tangrad.library`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["lookup"]

_MODULES = (
    "registry",
    "define",
    "definition",
    "definition_pointwise",
    "schema",
    "geometry",
    "extension",
    "describe",
    "samples",
    "aten",
)


def lookup(name: str) -> Any:
    """Return the op called `name`, loading its family when needed.

    Raises:
        AttributeError: no definition has that name.
    """
    from tangrad.ops.registry import find

    return find(name)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if name in _MODULES:
        if name == "aten":  # a namespace, which nobody imports first
            return import_module("tangrad.ops.aten")
        raise AttributeError(name)
    from tangrad import _C
    from tangrad.ops.registry import NAMESPACES, find

    if name in NAMESPACES:
        return NAMESPACES[name]
    try:
        found = find(name)
    except AttributeError:
        pass
    else:
        globals().setdefault(name, found)  # a family of that name, if loaded, stays a module
        return found
    try:
        return _C.dtype_by_name(name)
    except TypeError:
        raise AttributeError(f"no op named '{name}' is defined") from None
