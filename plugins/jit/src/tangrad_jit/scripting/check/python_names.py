"""Names of Python: a function's closure, its globals, and the builtins."""

from __future__ import annotations

import builtins
import contextlib
import sys
import typing
from typing import Any

import tangrad
from tangrad_jit.scripting.source.places import Place
from tangrad_jit.scripting.types.annotations import AnnotationError
from tangrad_jit.scripting.types.kinds import NUMBER

__all__ = ["PythonNames"]

_MISSING = object()
# What annotations may say without importing it.
_TYPES: dict[str, Any] = {
    **{name: getattr(typing, name) for name in ("List", "Dict", "Tuple", "Optional", "Union")},
    "Any": Any,
    "Final": typing.Final,
    "Tensor": tangrad.Tensor,
    "NoneType": type(None),
    "Device": tangrad.device,
    "Generator": tangrad.Generator,
    "number": NUMBER,
}


class PythonNames:
    """Find what names mean in a function.

    Args:
        function: a function of Python, or None.
        namespace: further names: of a class's module.
        more: names that are looked up after those.
    """

    def __init__(self, function: Any = None, namespace: Any = None, more: Any = None) -> None:
        self._globals = namespace if function is None else function.__globals__
        self._more = more or {}
        self._cells: dict[str, Any] = {}
        if function is not None and function.__closure__:
            self._cells = dict(
                zip(function.__code__.co_freevars, function.__closure__, strict=True)
            )

    def find(self, name: str) -> Any:
        """Return the object of a name; `_MISSING` where there is none."""
        if name in self._cells:
            with contextlib.suppress(ValueError):  # a class is not there yet while it is made
                return self._cells[name].cell_contents
        if name in (self._globals or {}):
            return self._globals[name]
        if name in self._more:
            return self._more[name]
        return getattr(builtins, name, _MISSING)

    def meaning(self, check: Any, name: str, place: Place) -> Any:
        """Return what a name means in the language, or None."""
        found = self.find(name)
        if name in ("inf", "nan") and isinstance(found, float):
            return check.constant(found, place)
        return None if found is _MISSING else check.meaning(found, place, name)

    def annotation(self, name: str) -> Any:
        """Return the object of a dotted name in an annotation.

        Raises:
            AnnotationError: there is none.
        """
        first, *rest = name.split(".")
        found = self.find(first)
        if found is _MISSING and not rest:
            found = _TYPES.get(first, _MISSING)
        if found is _MISSING and first in sys.modules and first == "torch":
            found = sys.modules[first]
        for part in rest:
            found = getattr(found, part, _MISSING)
        if found is _MISSING:
            raise AnnotationError(f"Unknown type name '{name}'")
        return found
