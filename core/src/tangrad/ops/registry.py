"""The ops defined so far, by name, and the loading of families on first use."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tangrad import _C

OPS: dict[str, _C.Op] = {}
NAMESPACES: dict[str, Any] = {}  # of ops that `tangrad.library` defines
_index: dict[str, str] | None = None
_loaded: set[str] = set()


def add(made: _C.Op, definition: Any) -> None:
    """Register an op under its name and aliases.

    Raises:
        ValueError: the name is taken by another definition.
    """
    names = [made.name]
    suffix = (
        "_"
        if made.functional is not None
        or (made.name.endswith("_") and made.name[:-1] == definition.name)
        else ""
    )
    names += [alias + suffix for alias in definition.alias]
    for name in names:
        if name in OPS and OPS[name].definition is not definition:
            raise ValueError(
                f"op '{name}' is defined twice: in {OPS[name].definition.module} and in "
                f"{definition.module}"
            )
        OPS[name] = made


def get(name: str) -> _C.Op:
    """Return an op that its own family file has already defined."""
    return OPS[name]


def find(name: str) -> _C.Op:
    """Return the op of that name, loading its family when needed.

    Raises:
        AttributeError: no definition has that name.
    """
    found = OPS.get(name)
    if found is None:
        family = index().get(name)
        if family is not None:
            load(family)
        found = OPS.get(name)
    if found is None:
        found = _from_plugins(name)
    if found is None:
        raise AttributeError(f"no op named '{name}' is defined")
    return found


def _from_plugins(name: str) -> _C.Op | None:
    from tangrad.ops.extension import load_plugin_ops

    load_plugin_ops()
    return OPS.get(name)


def index() -> dict[str, str]:
    """Return {op name: family}, written when the package was built.

    Raises:
        ImportError: it was not.
    """
    global _index
    if _index is None:
        try:
            from tangrad.ops._index import INDEX
        except ImportError as error:
            raise ImportError(
                "the index of the op definitions is missing: run core/build_index.py"
            ) from error
        _index = INDEX
    return _index


def families() -> list[str]:
    """Return the names of the modules that define ops."""
    return sorted(set(index().values()))


def load(family: str) -> None:
    """Import one family of definitions."""
    if family not in _loaded:
        _loaded.add(family)
        import_module(f"tangrad.ops.{family}")


def load_all() -> dict[str, _C.Op]:
    """Import every family and return all ops by name."""
    for family in families():
        load(family)
    return OPS


def function(name: str) -> _C.Op:
    """Return the op reached as `tangrad.<name>`.

    Raises:
        AttributeError: there is none, or it lives in another namespace.
    """
    found = find(name)
    d = found.definition
    if not d.function or d.namespace is not None:
        raise AttributeError(f"'{name}' is no function of tangrad")
    return found


def method(name: str) -> _C.Op:
    """Return the op reached as `Tensor.<name>`.

    Raises:
        AttributeError: there is none.
    """
    found = find(name)
    d = found.definition
    if not d.is_method:
        raise AttributeError(f"'Tensor' object has no attribute '{name}'")
    return found


_C.set_op_source(find)
