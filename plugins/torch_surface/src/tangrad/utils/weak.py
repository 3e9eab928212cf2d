"""Dictionaries and references that hold objects by identity, and weakly: `torch.utils.weak`."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, MutableMapping
from copy import deepcopy
from typing import Any

import tangrad

__all__ = ["TensorWeakRef", "WeakIdKeyDictionary", "WeakIdRef", "WeakTensorKeyDictionary"]


class WeakIdRef(weakref.ref):
    """A weak reference that is equal to another one of the same object, and to none else.

    Tensors compare element by element, so the usual references to them cannot be keys.
    """

    __slots__ = ("_id",)

    def __init__(self, key: Any, callback: Any = None) -> None:
        self._id = id(key)
        super().__init__(key, callback)  # type: ignore[call-arg]

    def __hash__(self) -> int:
        return self._id

    def __eq__(self, other: object) -> bool:
        a, b = self(), other() if isinstance(other, weakref.ref) else None
        # What died is equal to itself only: its address may be another object's by now.
        return self is other if a is None or b is None else a is b


class WeakIdKeyDictionary(MutableMapping[Any, Any]):
    """A dictionary whose keys are objects by identity; an entry goes when its key dies.

    Args:
        dict: what it holds at first.
        ref_type: the class of the references, `WeakIdRef` by default.
    """

    def __init__(self, dict: Any = None, ref_type: Any = WeakIdRef) -> None:
        self.data: Any = {}
        self.ref_type = ref_type
        own = weakref.ref(self)

        def forget(reference: Any) -> None:
            alive = own()
            if alive is not None:
                alive.data.pop(reference, None)

        self._forget = forget
        if dict is not None:
            self.update(dict)

    def __getitem__(self, key: Any) -> Any:
        return self.data[self.ref_type(key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.data[self.ref_type(key, self._forget)] = value

    def __delitem__(self, key: Any) -> None:
        del self.data[self.ref_type(key)]

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[Any]:
        # A copy: a key may die meanwhile.
        for reference in list(self.data):
            key = reference()
            if key is not None:
                yield key

    def __contains__(self, key: object) -> bool:
        try:
            return self.ref_type(key) in self.data
        except TypeError:  # there are no weak references to such objects
            return False

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MutableMapping):
            return NotImplemented
        mine, theirs = ({id(k): v for k, v in d.items()} for d in (self, other))
        return mine == theirs

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {id(self):#x}>"

    def keyrefs(self) -> list[Any]:
        """Return weak references to the keys."""
        return list(self.data)

    def copy(self) -> WeakIdKeyDictionary:
        """Return a dictionary of the same entries."""
        made = WeakIdKeyDictionary(ref_type=self.ref_type)
        made.update(self)
        return made

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> WeakIdKeyDictionary:
        """Return a dictionary of the same keys and copies of their values."""
        made = WeakIdKeyDictionary(ref_type=self.ref_type)
        made.update((key, deepcopy(value, memo)) for key, value in self.items())
        return made

    def update(self, other: Any = (), /, **named: Any) -> None:
        """Take the entries of a mapping or of pairs; all of them are read before one is taken."""
        given = other if hasattr(other, "items") else dict(other)
        super().update(given, **named)

    def __or__(self, other: Any) -> WeakIdKeyDictionary:
        made = self.copy()
        made.update(other)
        return made

    def __ror__(self, other: Any) -> WeakIdKeyDictionary:
        made = WeakIdKeyDictionary(other, ref_type=self.ref_type)
        made.update(self)
        return made

    def __ior__(self, other: Any) -> WeakIdKeyDictionary:
        self.update(other)
        return self


WeakTensorKeyDictionary = WeakIdKeyDictionary


class TensorWeakRef:
    """A weak reference to a tensor.

    Raises:
        TypeError: it is no tensor.
    """

    def __init__(self, tensor: Any) -> None:
        if not isinstance(tensor, tangrad.Tensor):
            raise TypeError(f"TensorWeakRef expects a tensor, got {type(tensor).__name__}")
        self.ref = weakref.ref(tensor)

    def __call__(self) -> Any:
        """Return the tensor, or None if it died."""
        return self.ref()
