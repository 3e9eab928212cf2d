"""Forms of the language that ask for types and attributes: annotations, `isinstance`, `getattr`."""

from __future__ import annotations

import ast
from typing import Any

from tangrad_jit.scripting.check.builtins import to_type
from tangrad_jit.scripting.check.operators import InstanceCheck
from tangrad_jit.scripting.check.values import Value
from tangrad_jit.scripting.source.places import Place, ScriptError
from tangrad_jit.scripting.tree.nodes import Const, Convert, IsInstance, Local
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.annotations import without_members
from tangrad_jit.scripting.types.kinds import (
    DictType,
    ListType,
    ModuleType,
    OptionalType,
    TupleType,
    Type,
    UnionType,
    is_subtype,
    union_of,
)

__all__ = [
    "annotate",
    "cast",
    "get_attribute",
    "has_attribute",
    "is_instance",
    "jit_is_instance",
    "super_of",
]


def annotate(check: Any, node: ast.Call, hint: Type | None, place: Place) -> Any:
    """Return a value that is of a type where that says so.

    Raises:
        ScriptError: it is not.
    """
    if len(node.args) != 2:
        raise ScriptError("annotate takes a type and a value", place)
    kind = check.annotation(node.args[0])
    value = check.expr(node.args[1], kind)
    found = to_type(value, kind)
    if found is None:
        if isinstance(node.args[1], (ast.List, ast.ListComp)):
            raise ScriptError(f"Expected an annotation of type List but got {kind}", place)
        raise ScriptError(
            f"expected an expression of type {kind} because of the annotate, but found "
            f"{value.type}",
            place,
        )
    # As in PyTorch: a value keeps its own type where that is one of those, but None does not.
    return Convert(place, kind, found, "refine") if found.type == kinds.NONE else found


def cast(check: Any, node: ast.Call, hint: Type | None, place: Place) -> Any:
    """Return a value as one of a type, unchecked."""
    kind = check.annotation(node.args[0])
    return Convert(place, kind, check.expr(node.args[1], kind), "cast")


_FAMILIES = {"list": ListType, "List": ListType, "dict": DictType, "Dict": DictType}
_FAMILIES.update({"tuple": TupleType, "Tuple": TupleType})


def is_instance(check: Any, node: ast.Call, hint: Type | None, place: Place) -> Any:
    """Return whether a value is of one of some types, and what is known of it then.

    Raises:
        ScriptError: a value, or a type, is none.
    """
    if len(node.args) != 2:
        raise ScriptError("isinstance takes a value and a type", place)
    value = check.value(node.args[0])
    if isinstance(value, Value) and not hasattr(value, "expr"):
        raise ScriptError(f"isinstance: {value} is no value", place)
    value = check.expr_of(value, place)
    second = node.args[1]
    nodes = _spread_types(second)
    members = _members(value.type)
    inside = [m for m in members if any(_is_of(check, m, n) for n in nodes)]
    named = [check.annotation(n) for n in nodes if ast.unparse(n) not in _FAMILIES]
    if value.type == kinds.ANY or (value.type == kinds.NUMBER and not inside):
        kind = union_of(named)
        return InstanceCheck(IsInstance(place, kinds.BOOL, value, named), kind, None)
    if len(inside) == len(members):
        return InstanceCheck(Const(place, kinds.BOOL, True), None, None)
    if not inside:
        return InstanceCheck(Const(place, kinds.BOOL, False), None, None)
    others = [m for m in members if m not in inside]
    condition = IsInstance(place, kinds.BOOL, value, inside)
    return InstanceCheck(condition, union_of(inside), union_of(others))


def jit_is_instance(check: Any, node: ast.Call, hint: Type | None, place: Place) -> Any:
    """Check types with members: without them, a name of containers is refused."""
    for each in node.args[1:]:
        for one in each.elts if isinstance(each, ast.Tuple) else [each]:
            name = ast.unparse(one).rpartition(".")[2]
            if name.title() in ("List", "Dict", "Tuple", "Optional"):
                raise ScriptError(str(without_members(name.title())), place)
    return is_instance(check, node, hint, place)


def _spread_types(node: ast.expr) -> list[ast.expr]:
    """Return the types of a tuple, and of those inside of it."""
    if not isinstance(node, ast.Tuple):
        return [node]
    return [one for each in node.elts for one in _spread_types(each)]


def _members(kind: Type) -> list[Type]:
    if isinstance(kind, OptionalType):
        return [*_members(kind.element), kinds.NONE]
    if isinstance(kind, UnionType):
        return list(kind.members)
    if kind == kinds.NUMBER:
        return list(kinds.NUMBERS)
    return [kind]


def _is_of(check: Any, kind: Type, node: ast.expr) -> bool:
    family = _FAMILIES.get(ast.unparse(node).rpartition(".")[2])
    if family is not None and not isinstance(node, ast.Subscript):
        return isinstance(kind, family)
    if ast.unparse(node) == "type(None)":
        return kind == kinds.NONE
    wanted = check.annotation(node)
    return is_subtype(kind, wanted)


def has_attribute(check: Any, node: ast.Call, hint: Type | None, place: Place) -> Any:
    """Return whether a value has an attribute: a constant."""
    owner = check.value(node.args[0])
    name = check.constant_of(check.value(node.args[1]), place, str)
    try:
        check.attribute_of(owner, name, place)
    except ScriptError:
        return Const(place, kinds.BOOL, False)
    return Const(place, kinds.BOOL, True)


def get_attribute(check: Any, node: ast.Call, hint: Type | None, place: Place) -> Any:
    """Return an attribute whose name is a constant, or what stands for it.

    Raises:
        ScriptError: there is none, or a default is given for that of a tuple without names.
    """
    owner = check.value(node.args[0])
    name = check.constant_of(check.value(node.args[1]), place, str)
    plain = isinstance(getattr(owner, "type", None), kinds.TupleType) and not owner.type.names
    if plain and len(node.args) == 3:
        raise ScriptError(
            "getattr's first argument must be a class, a module or a NamedTuple, but got a normal "
            f"Tuple: '{owner.type}'",
            place,
        )
    if len(node.args) == 3:
        try:
            return check.attribute_of(owner, name, place)
        except ScriptError:
            return check.value(node.args[2], hint)
    return check.attribute_of(owner, name, place)


def super_of(check: Any, node: ast.Call, hint: Type | None, place: Place) -> Any:
    """Return what `super()` means in a method.

    Raises:
        ScriptError: it stands outside of one.
    """
    owner = check.scope.find("self", place)
    if not isinstance(owner, (kinds.ClassType, ModuleType)):
        raise ScriptError("super() stands in methods only", place)
    return owner.unit.super_of(check, Local(place, owner, "self"), place)
