"""Types of tensors with sizes that may be unknown, for graphs that are checked step by step.

Gradual typing as of Siek and Taha, "Gradual Typing for Functional Languages", 2006: what is
unknown is consistent with everything.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Dyn", "TensorType", "is_consistent", "is_more_precise"]


class _DynType:
    """What is unknown."""

    def __init__(self) -> None:
        self.__name__ = "_DynType"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _DynType)

    def __hash__(self) -> int:
        return hash(_DynType)

    def __str__(self) -> str:
        return "Dyn"

    __repr__ = __str__


Dyn = _DynType()


class TensorType:
    """The type of a tensor with some sizes.

    Args:
        dim: the sizes, `Dyn` where one is unknown.
    """

    def __init__(self, dim: Any) -> None:
        self.__origin__, self.__args__ = TensorType, dim

    def __class_getitem__(cls, *args: Any) -> TensorType:
        first = args[0]
        return TensorType(first if isinstance(first, tuple) else args)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorType) and list(self.__args__) == list(other.__args__)

    def __hash__(self) -> int:
        return hash(tuple(self.__args__))

    def __repr__(self) -> str:
        return f"TensorType[{self.__args__}]"


def is_consistent(t1: Any, t2: Any) -> bool:
    """Return whether two types, or sizes, can be the same: what is unknown can be anything."""
    if t1 == t2 or Dyn in (t1, t2):
        return True
    if isinstance(t1, TensorType) and isinstance(t2, TensorType):
        return len(t1.__args__) == len(t2.__args__) and all(
            map(is_consistent, t1.__args__, t2.__args__)
        )
    return False


def is_more_precise(t1: Any, t2: Any) -> bool:
    """Return whether the first type, or size, says all that the second says."""
    if t1 == t2 or t2 == Dyn:
        return True
    if isinstance(t1, TensorType) and isinstance(t2, TensorType):
        return len(t1.__args__) == len(t2.__args__) and all(
            map(is_more_precise, t1.__args__, t2.__args__)
        )
    return False
