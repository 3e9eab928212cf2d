"""Values of attributes as expressions, and expressions of constants as values."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator
from typing import Any

import tangrad
from tangrad_jit.scripting.check.functions import Unit
from tangrad_jit.scripting.program.emit import Emitter
from tangrad_jit.scripting.recording.unit import RecordedUnit
from tangrad_jit.scripting.source.places import Place
from tangrad_jit.scripting.tree import nodes as tree
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.annotations import type_of_value
from tangrad_jit.scripting.types.kinds import DictType, ListType, OptionalType, TupleType, Type

__all__ = ["children_of", "evaluated", "is_constant", "literal", "rebuilt"]

#: Lists and dicts of more members stay attributes: they would be made anew in each call.
_LARGEST = 64
_CODES = (tangrad.dtype, tangrad.layout, tangrad.memory_format, tangrad.device)
_PLAIN = (bool, int, float, complex, str, type(None))
# Builtins that give the same for the same arguments, and do nothing else.
_PURE = frozenset(
    """
    add sub mul div floordiv remainder pow fmod neg abs round divmod gcd eq ne lt le gt ge
    __lshift__ __rshift__ __and__ __or__ __xor__ __not__ __is__ __isnot__ __contains__ __getitem__
    slice len min max Int Float Bool Complex str ord chr sum any all format copy index count get
    sqrt floor ceil exp log sin cos tan keys values items size dim numel dtype device join lower
    upper startswith endswith split strip replace
    """.split()
)


class _NoLiteral(Exception):
    """A value that no expression of constants gives."""


def literal(value: Any, kind: Type, place: Place, held: dict[int, Any]) -> tree.Expr | None:
    """Return the expression that gives a value, or None where there is none.

    Args:
        value: of an attribute.
        kind: its type.
        place: of the expression.
        held: id of a tensor -> it and the constant that it is in all expressions.
    """
    try:
        return _literal(value, kind, place, held)
    except _NoLiteral:
        return None


def _literal(value: Any, kind: Type, place: Place, held: dict[int, Any]) -> tree.Expr:
    if type(value) in _PLAIN or isinstance(value, _CODES):
        return tree.Const(place, kind, value)
    if isinstance(value, enum.Enum) and isinstance(kind, kinds.EnumType):
        return tree.Const(place, kind, value)
    if isinstance(value, tangrad.Tensor):
        if id(value) not in held:
            held[id(value)] = value, value.detach()
        return tree.Const(place, kind, held[id(value)][1])
    if isinstance(kind, OptionalType):
        return _literal(value, kind.element, place, held)
    if isinstance(value, (list, dict)) and len(value) > _LARGEST:
        raise _NoLiteral
    if type(value) is list and isinstance(kind, ListType):
        return tree.MakeList(place, kind, [_literal(v, kind.element, place, held) for v in value])
    if isinstance(value, tuple) and isinstance(kind, TupleType):
        parts = zip(value, kind.elements, strict=True)
        return tree.MakeTuple(place, kind, [_literal(v, k, place, held) for v, k in parts])
    if type(value) is dict and isinstance(kind, DictType):
        keys = [_literal(v, kind.key, place, held) for v in value]
        members = [_literal(v, kind.value, place, held) for v in value.values()]
        return tree.MakeDict(place, kind, keys, members)
    raise _NoLiteral


def is_constant(node: Any) -> bool:
    """Return whether an expression consists of constants, and of containers made of them."""
    if isinstance(node, (tree.MakeList, tree.MakeTuple)):
        return all(map(is_constant, node.elements))
    if isinstance(node, tree.MakeDict):
        return all(map(is_constant, [*node.keys, *node.values]))
    if isinstance(node, tree.Convert) and node.kind == "cast":
        return is_constant(node.value)
    return isinstance(node, tree.Const) and not (
        node.value is None and not kinds.is_subtype(kinds.NONE, node.type)
    )


def evaluated(node: tree.Expr, world: Any) -> tree.Expr:
    """Return a constant in the place of an expression of constants, where it is one."""
    if not _is_foldable(node):
        return node
    try:
        value = value_of(node, world)
    except Exception:  # it is raised where the program comes to it
        return node
    kind = type_of_value(value)
    if isinstance(value, tangrad.Tensor) or kind is None:
        return node
    if isinstance(value, float) and not math.isfinite(value):
        return node
    if kind != node.type and not (value is None or isinstance(node.type, kinds.Primitive)):
        return node
    return literal(value, node.type, node.place, {}) or node


def value_of(node: tree.Expr, world: Any) -> Any:
    """Return what an expression of constants gives."""
    made = RecordedUnit(
        world,
        "constant",
        "constant",
        node.place.source,
        [],
        [tree.Return(node.place, node)],
        node.type,
    )
    with tangrad.no_grad():
        return Emitter(made).function()()


def _is_foldable(node: tree.Expr) -> bool:
    if isinstance(node, (tree.MakeList, tree.MakeTuple, tree.MakeDict, tree.Const)):
        return False
    if isinstance(node, tree.Apply):
        known = node.builtin.name in _PURE and not node.builtin.writes
    elif isinstance(node, tree.GetAttr):
        known = node.owner.type == kinds.TENSOR or isinstance(node.owner.type, kinds.EnumType)
        known = known and node.name in ("shape", "ndim", "dtype", "device", "name", "value")
    elif isinstance(node, tree.Convert):
        known = node.kind not in ("cast", "refine", "unwrap")
    else:
        known = isinstance(node, (tree.Not, tree.IsInstance, tree.TupleItem))
    return known and all(map(is_constant, children_of(node)))


def children_of(node: Any) -> Iterator[tree.Expr]:
    """Yield the expressions right inside of one."""
    for name in node.__dataclass_fields__:
        held = getattr(node, name)
        several = held.values() if isinstance(held, dict) else held
        for item in several if isinstance(several, (list, type({}.values()))) else (held,):
            if isinstance(item, tree.Expr):
                yield item


def rebuilt(unit: Unit, name: str, body: list[tree.Node], parameters: Any, owner: Any) -> Any:
    """Return a method of the same signature with another body."""
    return RecordedUnit(
        unit.world,
        name,
        f"{owner.unit.qualified}.{name}",
        unit.source,
        parameters,
        body,
        unit.returned,
        owner,
    )
