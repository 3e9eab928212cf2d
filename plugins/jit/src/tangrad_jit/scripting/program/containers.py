"""Lists and dicts that Python and scripts share: `jit.script` of a list or a dict.

Other lists and dicts are copied on their way into a script, as in PyTorch. What is stored in
these is checked, so that a script finds the types that it was compiled for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, SupportsIndex

from tangrad_jit.scripting.types.kinds import DictType, ListType, Type

__all__ = ["ScriptDict", "ScriptList", "shared"]

# Set by `values`, which knows how a value becomes one of a type: (value, type) -> value.
Fit = Callable[[Any, Type], Any]


class ScriptList(list[Any]):
    """A list whose elements are of one type.

    Args:
        kind: its type.
        items: its elements.
        fit: (value, type) -> the value as one of the type; raises TypeError.
    """

    def __init__(self, kind: ListType, items: Iterable[Any], fit: Fit) -> None:
        self.kind, self._fit = kind, fit
        super().__init__(self._checked(item) for item in items)

    def _checked(self, item: Any) -> Any:
        try:
            return self._fit(item, self.kind.element)
        except TypeError:
            raise TypeError(
                f"a list of {self.kind.element} takes no {type(item).__name__}"
            ) from None

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, slice):
            super().__setitem__(index, [self._checked(item) for item in value])
        else:
            super().__setitem__(index, self._checked(value))

    def __contains__(self, item: object) -> bool:
        return super().__contains__(self._checked(item))

    def __iadd__(self, items: Iterable[Any]) -> ScriptList:  # type: ignore[misc]
        self.extend(items)
        return self

    def __reduce__(self) -> Any:
        return list, (list(self),)

    def append(self, item: Any) -> None:
        """Append an element.

        Raises:
            TypeError: it is of another type.
        """
        super().append(self._checked(item))

    def extend(self, items: Iterable[Any]) -> None:
        """Append elements.

        Raises:
            TypeError: one is of another type.
        """
        super().extend([self._checked(item) for item in items])

    def insert(self, index: SupportsIndex, item: Any) -> None:
        """Insert an element.

        Raises:
            TypeError: it is of another type.
        """
        super().insert(index, self._checked(item))

    def count(self, item: Any) -> int:
        """Count an element.

        Raises:
            TypeError: it is of another type.
        """
        return super().count(self._checked(item))

    def remove(self, item: Any) -> None:
        """Remove the first element that equals another.

        Raises:
            TypeError: it is of another type.
            ValueError: there is none.
        """
        super().remove(self._checked(item))


class ScriptDict(dict[Any, Any]):
    """A dict whose keys are of one type, and its values.

    Args:
        kind: its type.
        items: its entries.
        fit: (value, type) -> the value as one of the type; raises TypeError.
    """

    def __init__(self, kind: DictType, items: dict[Any, Any], fit: Fit) -> None:
        self.kind, self._fit = kind, fit
        super().__init__()
        for key, value in items.items():
            self[key] = value

    def _checked(self, item: Any, kind: Type) -> Any:
        try:
            return self._fit(item, kind)
        except TypeError:
            raise TypeError(f"a {self.kind} takes no {type(item).__name__}") from None

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(
            self._checked(key, self.kind.key), self._checked(value, self.kind.value)
        )

    def __delitem__(self, key: Any) -> None:
        super().__delitem__(self._checked(key, self.kind.key))

    def __contains__(self, key: object) -> bool:
        try:
            return super().__contains__(self._checked(key, self.kind.key))
        except TypeError as error:
            raise KeyError(key) from error

    def __reduce__(self) -> Any:
        return dict, (dict(self),)

    def update(self, *given: Any, **named: Any) -> None:
        """Take the entries of another dict.

        Raises:
            TypeError: a key or a value is of another type.
        """
        for key, value in dict(*given, **named).items():
            self[key] = value

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """Return the value of a key, which it gets where there is none.

        Raises:
            TypeError: the key or the value is of another type.
        """
        if key not in self:
            self[key] = default
        return self[key]


def shared(value: Any, kind: Type) -> bool:
    """Return whether a value is a list or dict that a script takes as it is."""
    return isinstance(value, (ScriptList, ScriptDict)) and value.kind == kind
