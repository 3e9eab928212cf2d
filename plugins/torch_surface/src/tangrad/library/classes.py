"""`tangrad.classes.<namespace>.<name>`: classes that packages bring for scripts.

PyTorch's are of C++; here they are of Python. A package registers a class once; the one that
scripts hold is a subclass of it and of `ScriptObject`, as extensions have a class for Python and
one for scripts.
"""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

import tangrad
from tangrad.compat.script_object import ScriptObject

__all__ = ["classes", "find_class", "loaded_libraries", "register_class"]

_PREFIX = "__torch__.torch.classes."
_registered: dict[tuple[str, str], type] = {}
#: The files of extensions that have been loaded.
loaded_libraries: set[str] = set()


def register_class(name: str, cls: type) -> type:
    """Let scripts hold objects of a class, as `tangrad.classes.<namespace>.<name>`.

    Args:
        name: "namespace::name".
        cls: the class; its methods are annotated.

    Returns:
        The class for scripts: a subclass of it.

    Raises:
        RuntimeError: another class has the name, or the name has no namespace.
    """
    namespace, separator, last = name.partition("::")
    if not separator or not namespace.isidentifier() or not last.isidentifier():
        raise RuntimeError(f"register_class: {name!r} is no name; write 'namespace::Name'")
    known = _registered.get((namespace, last))
    if known is not None:
        if known.__mro__[1] is cls:
            return known
        raise RuntimeError(f"register_class: {name} is the name of {known.__mro__[1]!r} already")
    members = {"__module__": f"{_PREFIX}{namespace}", "__doc__": cls.__doc__, "__slots__": ()}
    if hasattr(cls, "__dict__"):
        del members["__slots__"]
    made = type(last, (cls, ScriptObject), members)
    _registered[namespace, last] = made
    return made


def find_class(qualified: str) -> type | None:
    """Return the class that archives call `__torch__.torch.classes.<namespace>.<name>`, or None."""
    namespace, _, last = qualified.removeprefix(_PREFIX).partition(".")
    return _registered.get((namespace, last)) if qualified.startswith(_PREFIX) else None


class _Namespace(ModuleType):
    """The classes of one namespace."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        namespace = self.__name__.rpartition(".")[2]
        found = _registered.get((namespace, name))
        if found is None:
            raise RuntimeError(
                f"Tried to instantiate class '{namespace}.{name}', but it does not exist! Ensure "
                "that the package that brings it is imported: its library is loaded by "
                "tangrad.classes.load_library, and classes of your own are registered by "
                "tangrad.library.register_class"
            )
        return found

    def __dir__(self) -> list[str]:
        namespace = self.__name__.rpartition(".")[2]
        return sorted(name for space, name in _registered if space == namespace)


class _Classes(ModuleType):
    """All namespaces."""

    def __getattr__(self, name: str) -> _Namespace:
        if name.startswith("__"):
            raise AttributeError(name)
        made = _Namespace(f"{self.__name__}.{name}")
        setattr(self, name, made)
        return made

    @property
    def loaded_libraries(self) -> set[str]:
        """The files of extensions that have been loaded."""
        return loaded_libraries

    def load_library(self, path: str | os.PathLike[str]) -> None:
        """Make the classes and ops of an extension known that was compiled for PyTorch.

        Raises:
            OSError: it is not there, or none of those that are known.
        """
        tangrad.ops.load_library(path)


classes: Any = _Classes("tangrad.classes", "Classes that packages bring for scripts.")
