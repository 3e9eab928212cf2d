"""Answer for extensions that were compiled for PyTorch: `tangrad.ops.load_library`.

They are not opened, as they call PyTorch's C++ library. What one of them would register is known
from `discovery/neutral.json`: the schemas of its ops, the package of ours that computes them, and
the modules that the extension is imported as.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, ClassVar

from tangrad.library import operator
from tangrad.library.classes import loaded_libraries
from tangrad.library.registration import Library
from tangrad.plugin import MissingPluginError, foreign_library, missing

__all__ = ["load_library", "loaded_libraries"]

_declared: dict[str, Library] = {}


def load_library(path: str | os.PathLike[str]) -> None:
    """Make the ops of an extension known that was compiled for PyTorch.

    Args:
        path: its file, such as `torchvision/_C.so`.

    Raises:
        OSError: it is not there, or none of those whose ops are known.
    """
    text = os.fspath(path)
    if text in loaded_libraries:
        return
    if not os.path.exists(text):
        raise OSError(f"Could not load this library: {text}: no such file")
    found = foreign_library(text)
    if found is None:
        raise OSError(
            f"Could not load this library: {text}: it is compiled for PyTorch's C++ library, which "
            "tangrad does not have, and no package says what its ops are"
        )
    namespace, row = found
    if namespace not in _declared:
        _declare(namespace, row)
        _Modules.serve(row.get("modules", {}))
    loaded_libraries.add(text)


def _declare(namespace: str, row: dict[str, Any]) -> None:
    """Define the ops of a namespace; calls of those that nothing computes say so."""
    library = _declared[namespace] = Library(namespace, "FRAGMENT")
    names = [library.define(schema) for schema in row["operators"]]
    package = row["computed_by"]
    refusal: Callable[[str], Exception] = lambda name: missing(f"{package}.{name}")  # noqa: E731
    with suppress(MissingPluginError):
        import_module(f"tangrad.{package}")
        refusal = lambda name: NotImplementedError(  # noqa: E731
            f"{namespace}::{name}: tangrad.{package} declares it and does not compute it here"
        )
    for name in names:
        kernels = operator.find(f"{namespace}::{name}").kernels
        if operator.EVERY_DEVICE not in kernels:
            answers = row.get("answers", {})
            kernels[operator.EVERY_DEVICE] = (
                _answer(answers[name]) if name in answers else _refusing(refusal, name)
            )


class _Modules:
    """Find the modules that an extension is imported as: they are ours."""

    served: ClassVar[dict[str, str]] = {}

    @classmethod
    def serve(cls, modules: dict[str, str]) -> None:
        """Have imports of some modules give modules of ours; before their files are found."""
        cls.served.update(modules)
        if modules and not any(isinstance(finder, cls) for finder in sys.meta_path):
            sys.meta_path.insert(0, cls())

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """Return how to load a module, or None where it is none of an extension's."""
        found = self.served.get(fullname)
        return None if found is None else ModuleSpec(fullname, _Given(found))  # type: ignore[arg-type]


class _Given:
    """Fill a module with the names of one of ours."""

    def __init__(self, name: str) -> None:
        self._name = name

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        ours = import_module(f"tangrad.{self._name}")
        vars(module).update({name: getattr(ours, name) for name in ours.__all__})


def _refusing(error: Callable[[str], Exception], name: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise error(name)

    return refuse


def _answer(value: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: value
