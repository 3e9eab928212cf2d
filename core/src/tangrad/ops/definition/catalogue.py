"""Show ops to those who extend tangrad or prove it: one by name, or all of them."""

from __future__ import annotations

from typing import Any

from tangrad.ops.definition import registry
from tangrad.ops.definition.extension import load_plugin_ops


def all_ops() -> dict[str, Any]:
    """Return every op that the core or a plugin defines, by name; imports all of them."""
    load_plugin_ops()
    return dict(registry.load_all())


def plain_ops() -> dict[str, Any]:
    """Return the ops whose names are of no package, by name; imports all of them."""
    return registry.load_plain()


def find_op(name: str) -> Any:
    """Return the op of a name, with its `definition`, `kind` and `kernels()`.

    Raises:
        AttributeError: no definition has that name.
    """
    return registry.find(name)


def has_op(name: str) -> bool:
    """Tell whether the core or a package has an op of that name, without loading its definition."""
    return registry.is_known(name)
