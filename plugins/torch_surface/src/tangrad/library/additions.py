"""What is added to other libraries' modules when they are loaded; their files stay as they are."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

__all__ = ["add_to_modules"]


def add_to_modules(additions: dict[str, Callable[[ModuleType], None]]) -> None:
    """Have functions called with modules that are loaded from now on.

    Args:
        additions: by the modules' names; each is called once its module has run.
    """
    _Finder.additions.update(additions)
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Finds the modules that get an addition, where Python finds them."""

    additions: dict[str, Callable[[ModuleType], None]] = {}  # noqa: RUF012

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self.additions:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _AddingLoader(spec.loader, self.additions[fullname])
        return spec


class _AddingLoader(Loader):
    """Loads a module by its own loader, then adds to it."""

    def __init__(self, loader: Loader, add: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._add = add

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._add(module)
