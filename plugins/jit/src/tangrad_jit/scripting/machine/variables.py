"""Which registers hold the variables of a function."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from tangrad_jit.scripting.machine.kinds_of import Unsupported, is_plain
from tangrad_jit.scripting.tree import nodes as tree
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.kinds import (
    ListType,
    OptionalType,
    TupleType,
    Type,
    is_subtype,
    unify,
)

__all__ = ["element_types", "types_of_variables"]


def element_types(target: Any, kind: Type) -> list[tuple[str, Type]]:
    """Return the variables of a target with the types that they get from a value of a type.

    Raises:
        Unsupported: the machine does not unpack it.
    """
    if isinstance(target, str):
        return [(target, kind)]
    if target.star >= 0:
        raise Unsupported("a starred target")
    if isinstance(kind, TupleType):
        parts = kind.elements
    elif isinstance(kind, ListType):
        parts = (kind.element,) * len(target.targets)
    elif kind == kinds.TENSOR:
        parts = (kinds.TENSOR,) * len(target.targets)
    else:
        raise Unsupported(f"a value of type {kind} for several names")
    return [
        pair
        for part, inner in zip(target.targets, parts, strict=True)
        for pair in element_types(part, inner)
    ]


def types_of_variables(unit: Any) -> dict[str, dict[str, Type]]:
    """Return for each variable the types that it is used as: text -> type that its register has.

    A variable that is an `int` here and an `Optional[int]` there has one register for both; where
    no type holds all, it has several, as its uses are apart.

    Raises:
        Unsupported: the machine does not unpack a target.
    """
    found: dict[str, dict[str, Type]] = defaultdict(dict)

    def note(name: str, kind: Type) -> None:
        found[name][str(kind)] = kind

    for parameter in unit.parameters:
        note(parameter.name, parameter.type)
    for node in tree.every(unit.body):
        if isinstance(node, tree.Local):
            note(node.name, node.type)
        elif isinstance(node, tree.Assign):
            for name, kind in element_types(node.target, node.value.type):
                note(name, kind)
        elif isinstance(node, (tree.For, tree.Comprehension)):
            for name, kind in element_types(node.target, node.iteration.element):
                note(name, kind)
    return {name: _registers(types) for name, types in found.items()}


def _registers(types: dict[str, Type]) -> dict[str, Type]:
    whole: Type | None = None
    for kind in types.values():
        whole = kind if whole is None else unify(whole, kind)
        if whole is None:
            return dict(types)
    assert whole is not None
    if all(is_subtype(kind, whole) and _fits(kind, whole) for kind in types.values()):
        return dict.fromkeys(types, whole)
    return dict(types)


def _fits(kind: Type, whole: Type) -> bool:
    """Return whether a register of a type holds values of another, with a conversion."""
    if kind == whole or kind == kinds.NONE:
        return True
    if isinstance(whole, OptionalType) and kind == whole.element:
        return True
    return not is_plain(kind) and not isinstance(whole, (OptionalType, TupleType, ListType))
