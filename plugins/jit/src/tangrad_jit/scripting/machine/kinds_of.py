"""From the types of scripts to how the machine keeps their values."""

from __future__ import annotations

from tangrad_jit.scripting.machine._machine import Kind
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.kinds import (
    DictType,
    ListType,
    OptionalType,
    TupleType,
    Type,
    UnionType,
)

__all__ = ["Unsupported", "has_containers", "holds_python", "is_plain", "kind_of", "kind_tag"]

_PLAIN: dict[Type, str] = {
    kinds.INT: "int",
    kinds.BOOL: "bool",
    kinds.FLOAT: "float",
    kinds.NONE: "none",
}
_KEYS = (kinds.INT, kinds.BOOL, kinds.FLOAT, kinds.STR)


class Unsupported(Exception):
    """A function stays Python code."""


def is_plain(kind: Type) -> bool:
    """Return whether values of a type are words without references."""
    return kind in _PLAIN


def has_containers(kind: Type) -> bool:
    """Return whether values of a type are, or hold, lists or dicts."""
    if isinstance(kind, (ListType, DictType)):
        return True
    if isinstance(kind, TupleType):
        return any(map(has_containers, kind.elements))
    if isinstance(kind, OptionalType):
        return has_containers(kind.element)
    if isinstance(kind, UnionType):
        return any(map(has_containers, kind.members))
    return False


def kind_of(kind: Type) -> Kind:
    """Return how values of a type are kept.

    Raises:
        Unsupported: the machine has no such values.
    """
    if kind in _PLAIN:
        return Kind(_PLAIN[kind])
    if kind == kinds.STR:
        return Kind("python", cls=str)
    if isinstance(kind, ListType):
        return Kind("list", (kind_of(kind.element),))
    if isinstance(kind, DictType):
        if kind.key not in _KEYS:
            raise Unsupported(f"keys of type {kind.key}")
        return Kind("dict", (kind_of(kind.key), kind_of(kind.value)))
    if isinstance(kind, TupleType):
        return Kind("tuple", tuple(map(kind_of, kind.elements)), cls=kind.python_class)
    if isinstance(kind, OptionalType):
        inner = kind_of(kind.element)
        if inner.tag in ("list", "dict", "tuple"):
            return Kind(inner.tag, inner.parts, True, inner.cls)
        if inner.tag == "python":
            return Kind("python")
        if inner.tag == "none":
            raise Unsupported("an optional None")
        return Kind("box", (inner,))
    if has_containers(kind):
        raise Unsupported(f"values of type {kind}")
    return Kind("python")


def kind_tag(kind: Type) -> str:
    """Return which kind values of a type are of; "" where the machine has no such values."""
    if kind == kinds.STR:
        return "text"
    try:
        return kind_of(kind).tag
    except Unsupported:
        return ""


def holds_python(kind: Kind) -> bool:
    """Return whether words of a kind are, or hold, objects of Python."""
    return kind.tag == "python" or any(map(holds_python, kind.parts))
