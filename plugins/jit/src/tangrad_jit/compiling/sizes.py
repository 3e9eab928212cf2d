"""Which sizes may differ from call to call: marked, asked for, or seen to.

A graph holds for the sizes that it was recorded with, exactly: whatever Python or the library
decides by a size is decided anew for each. What is dynamic about a dimension is that its sizes do
not count as recordings, and that the graphs of the sizes used last are kept.
"""

from __future__ import annotations

from typing import Any

from tangrad_jit._guards import Geometry, Pattern, is_same

__all__ = ["Sizes", "is_static", "mark", "size_changes"]

_MARKS = {True: "_dynamo_dynamic_indices", False: "_dynamo_static_indices"}

# (path of an argument, dimension)
Dimension = tuple[str, int]


def mark(tensor: Any, index: Any, dynamic: bool) -> None:
    """Mark dimensions of a tensor as such whose sizes differ, or do not.

    Args:
        tensor: an argument of calls to come.
        index: a dimension, a list or tuple of them, or None for all.
        dynamic: whether the sizes differ.

    Raises:
        IndexError: the tensor has no such dimension.
    """
    dims = range(tensor.ndim) if index is None else index
    for dim in dims if isinstance(dims, (list, tuple, range)) else (dims,):
        if not -tensor.ndim <= dim < tensor.ndim:
            raise IndexError(
                f"mark_{'dynamic' if dynamic else 'static'}: a tensor of shape "
                f"{tuple(tensor.shape)} has no dimension {dim}"
            )
        for kind, name in _MARKS.items():
            held = set(_marked(tensor, kind))
            (held.add if kind is dynamic else held.discard)(dim % tensor.ndim)
            setattr(tensor, name, held)


def _marked(tensor: Any, dynamic: bool) -> Any:
    # `getattr` would ask every package for a method of that name where there is no mark.
    return vars(tensor).get(_MARKS[dynamic], ())


def is_static(tensor: Any, dim: int) -> bool:
    """Return whether a dimension of a tensor is marked as such whose size does not differ."""
    return dim in _marked(tensor, False)


def size_changes(old: Pattern, new: Pattern) -> set[Dimension] | None:
    """Return the dimensions whose sizes differ; None where anything else of arguments does."""
    found: set[Dimension] = set()
    if len(old.leaves) != len(new.leaves):
        return None
    for (path, kind, was), (other, now_kind, now) in zip(old.leaves, new.leaves, strict=True):
        if path != other or isinstance(was, Geometry) != isinstance(now, Geometry):
            return None
        if not isinstance(was, Geometry):
            if kind != "number" and (kind != now_kind or not is_same(was, now)):
                return None
            continue
        if not was.kindred(now):
            return None
        found.update(
            (path, d) for d, (a, b) in enumerate(zip(was.shape, now.shape, strict=True)) if a != b
        )
    return found


class Sizes:
    """The dimensions of arguments that are dynamic for one function.

    Args:
        dynamic: True: all are. None: those that are marked, and those that have differed once.
            False: none is.
    """

    def __init__(self, dynamic: bool | None) -> None:
        self.dynamic = dynamic
        self._seen: set[Dimension] = set()

    def are_free(self, changes: list[set[Dimension]], tensors: dict[str, Any]) -> bool:
        """Return whether a call differs from another in dynamic dimensions alone.

        Args:
            changes: what differs from each of the other calls; remembered.
            tensors: path -> argument of the call.
        """
        free = any(
            all(self._is_free(path, dim, tensors[path]) for path, dim in changed)
            for changed in changes
        )
        self._seen.update(*changes)
        return free

    def _is_free(self, path: str, dim: int, tensor: Any) -> bool:
        if self.dynamic is False or is_static(tensor, dim):
            return False
        return bool(self.dynamic or dim in _marked(tensor, True) or (path, dim) in self._seen)

    def are_symbolic(self, changes: list[set[Dimension]]) -> bool:
        """Return whether what a call reads of sizes is to be symbolic.

        Args:
            changes: what differs from each of the other calls.
        """
        return self.dynamic is True or (self.dynamic is None and bool(changes))

    def clear(self) -> None:
        """Forget which have differed."""
        self._seen.clear()
