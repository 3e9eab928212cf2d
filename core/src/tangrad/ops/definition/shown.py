"""What a public namespace such as `tangrad.linalg` shows: ops, by shorter names.

The op behind `tangrad.linalg.norm` is named `linalg_norm`, since `norm` is another one; some names
show an op of the top level as it is (`tangrad.special.erf`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from tangrad.ops.definition import registry


def show(
    module: str, namespace: str, others: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and the `__dir__` of a module that shows the ops of a namespace.

    Args:
        module: the module's name.
        namespace: the `namespace` of the definitions; their names begin with it.
        others: {public name: name of an op} for ops that are not called so.
    """
    others = others or {}
    prefix = f"{namespace}_"

    def getattr_(name: str) -> Any:
        if name == "__all__":  # what a star takes, which asks for each
            own = vars(sys.modules[module])
            return sorted(public().union(n for n in own if isinstance(own[n], type)))
        wanted = others.get(name, prefix + name)
        if name.startswith("__") or not registry.is_known(wanted):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        found = registry.find(wanted)
        if wanted not in others.values() and not found.definition.function:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        setattr(sys.modules[module], name, found)
        return found

    def public() -> set[str]:
        own = {
            name.removeprefix(prefix)
            for name, op in registry.load_all().items()
            if op.definition.namespace == namespace and op.definition.function
        }
        return own | set(others)

    return getattr_, lambda: sorted(public() | set(vars(sys.modules[module])))
