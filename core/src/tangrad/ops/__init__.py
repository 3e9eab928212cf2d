"""Op definitions by family; `tangrad.ops.NAME` is any op, whatever namespace shows it.

`tangrad.ops.NAMESPACE.NAME` is an op of a plugin, `NAMESPACE::NAME`, or of `tangrad.library`; or
NAMESPACE is a module that a plugin shows as `ops.NAMESPACE`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

__all__ = ["lookup"]

_MODULES = ("definition",)
# Gives what stands for an op of `ops.aten` that is not there; by default, that is an error.
stand_for_absent: Callable[[str], Any] | None = None


def lookup(name: str) -> Any:
    """Return the op called `name`, loading its family when needed.

    Raises:
        AttributeError: no definition has that name.
    """
    from tangrad.ops.definition.registry import find

    return find(name)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if name in _MODULES:
        raise AttributeError(name)
    from tangrad import _C
    from tangrad.ops.definition.registry import NAMESPACES, find, find_namespace

    if name in NAMESPACES:
        return NAMESPACES[name]
    try:
        globals()[name] = found = find(name)
        return found
    except AttributeError as error:
        unknown = error
    namespace = find_namespace(name)
    if namespace is not None:
        return namespace
    try:
        return _C.dtype_by_name(name)
    except TypeError:
        pass
    from tangrad.discovery import namespaces

    try:
        return namespaces.resolve("ops." + name)
    except AttributeError as error:
        if isinstance(error, RuntimeError):  # of a package that is not installed, or broken
            raise
        raise unknown from None


class _Ops(ModuleType):
    """Shows an op even where its family, which is imported as a part, has the same name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (isinstance(value, ModuleType) and _is_op(name)):
            super().__setattr__(name, value)


def _is_op(name: str) -> bool:
    from tangrad.ops.definition import registry

    try:
        return name in registry.OPS or name in registry.index()
    except ImportError:  # the index is being built
        return False


sys.modules[__name__].__class__ = _Ops
