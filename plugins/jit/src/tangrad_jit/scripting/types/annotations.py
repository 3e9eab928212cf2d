"""From annotations to types: objects of Python, and syntax whose names are looked up."""

from __future__ import annotations

import ast
import enum
import typing
from collections.abc import Callable
from types import UnionType as PythonUnion
from typing import Any

import tangrad
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.kinds import (
    AwaitType,
    DictType,
    EnumType,
    FutureType,
    ListType,
    TupleType,
    Type,
    optional_of,
    union_of,
)

__all__ = [
    "AnnotationError",
    "described",
    "type_of_object",
    "type_of_syntax",
    "type_of_value",
    "without_members",
]


class AnnotationError(ValueError):
    """An annotation that names no type of the script language."""


_PLAIN: dict[Any, Type] = {
    int: kinds.INT,
    float: kinds.FLOAT,
    complex: kinds.COMPLEX,
    bool: kinds.BOOL,
    str: kinds.STR,
    None: kinds.NONE,
    type(None): kinds.NONE,
    Any: kinds.ANY,
    tangrad.Tensor: kinds.TENSOR,
    tangrad.nn.Parameter: kinds.TENSOR,
    tangrad.device: kinds.DEVICE,
    tangrad.dtype: kinds.DTYPE,
    tangrad.layout: kinds.LAYOUT,
    tangrad.memory_format: kinds.MEMORY_FORMAT,
    tangrad.qscheme: kinds.QSCHEME,
    tangrad.Generator: kinds.GENERATOR,
    tangrad.Size: ListType(kinds.INT),
}
_BARE: dict[Any, str] = {list: "List", dict: "Dict", tuple: "Tuple"}
_BARE |= {typing.List: "List", typing.Dict: "Dict"}  # noqa: UP006
_BARE[typing.Tuple] = "Tuple"  # noqa: UP006
_BARE[typing.Optional] = "Optional"

_LATER = {"Future": FutureType, "Await": AwaitType, "_Await": AwaitType}

# What a class means that is none of the above: set by the checker, which knows scripted classes.
ClassLookup = Callable[[Any], "Type | None"]


def described(annotation: Any) -> str:
    """Return an annotation as messages name it."""
    return str(getattr(annotation, "__qualname__", None) or annotation)


def type_of_object(annotation: Any, classes: ClassLookup, resolve: Any = None) -> Type:
    """Return the type that an annotation means.

    Args:
        annotation: an object of Python.
        classes: class -> its type, or None.
        resolve: text -> type, for forward references.

    Raises:
        AnnotationError: it means none.
    """
    if isinstance(annotation, Type):
        return annotation
    try:
        plain = _PLAIN.get(annotation)
    except TypeError:
        plain = None
    if plain is not None:
        return plain
    if isinstance(annotation, typing.ForwardRef):
        annotation = annotation.__forward_arg__
    if isinstance(annotation, str):
        if resolve is None:
            raise AnnotationError(f"Unknown type name '{annotation}'")
        found: Type = resolve(annotation)
        return found
    origin, members = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in _BARE and not members and annotation != tuple[()]:
        raise without_members(_BARE[origin])
    if origin is not None:
        return _generic(annotation, origin, members, lambda m: type_of_object(m, classes, resolve))
    if annotation in _BARE:
        raise without_members(_BARE[annotation])
    if getattr(annotation, "__name__", "") in _LATER:
        raise without_members("Future")
    if isinstance(annotation, type):
        return _of_class(annotation, classes)
    raise AnnotationError(f"Unknown type annotation: '{described(annotation)}'")


def without_members(name: str) -> AnnotationError:
    """Return the error of a container's name that says nothing of its members."""
    if name == "Dict":
        lacking = "contained types. Please add contained type, e.g. Dict[int, int]"
    else:
        lacking = f"a contained type. Please add a contained type, e.g. {name}[int]"
    return AnnotationError(f"Attempted to use {name} without {lacking}")


def _of_class(cls: type, classes: ClassLookup) -> Type:
    found = classes(cls)
    if found is not None:
        return found
    if issubclass(cls, tangrad.Tensor):
        return kinds.TENSOR
    raise AnnotationError(
        f"Unknown type annotation: '{described(cls)}'; decorate the class with @jit.script, or "
        "call a function that is decorated with @jit.ignore"
    )


def named_tuple_type(cls: Any, name: str, convert: Callable[[Any], Type]) -> TupleType:
    """Return the type of a class of named tuples; fields without annotation are tensors."""
    declared = typing.get_type_hints(cls) if _are_evaluable(cls) else cls.__annotations__
    members = [convert(declared.get(field, tangrad.Tensor)) for field in cls._fields]
    if any(isinstance(value, tangrad.Tensor) for value in cls._field_defaults.values()):
        raise AnnotationError(
            "Tensors are not supported as default NamedTuple fields: they may be changed, and "
            "would be for all tuples"
        )
    return TupleType(members, name, cls._fields, cls, dict(cls._field_defaults))


def _are_evaluable(cls: Any) -> bool:
    try:
        typing.get_type_hints(cls)
    except (NameError, TypeError):
        return False
    return True


def enum_type(cls: Any, name: str) -> EnumType:
    """Return the type of an enum, whose values are all of one type.

    Raises:
        AnnotationError: they are not, or of a type that is no int, float or str.
    """
    values = [type_of_value(member.value) for member in cls]
    if not values or any(value != values[0] for value in values) or values[0] is None:
        raise AnnotationError(f"Could not unify type list of the values of enum '{name}'")
    if values[0] not in (kinds.INT, kinds.FLOAT, kinds.STR):
        raise AnnotationError(
            f"Cannot create Enum with value type '{values[0]}', only int, float and string are "
            "supported"
        )
    return EnumType(name, cls, values[0])


def _generic(
    annotation: Any, origin: Any, members: tuple[Any, ...], convert: Callable[[Any], Type]
) -> Type:
    if origin in (typing.Union, PythonUnion):
        converted = [convert(member) for member in members]
        if len(converted) == 2 and kinds.NONE in converted:
            return optional_of(next(t for t in converted if t != kinds.NONE))
        if {*converted} - {kinds.NONE} == {*kinds.NUMBERS}:
            return optional_of(kinds.NUMBER) if kinds.NONE in converted else kinds.NUMBER
        return union_of(converted)
    if origin is list:
        return ListType(convert(members[0]))
    if origin is dict:
        key = convert(members[0])
        _check_key(key)
        return DictType(key, convert(members[1]))
    if origin is tuple:
        if members == ((),):
            members = ()
        if Ellipsis in members:
            raise AnnotationError(
                "Tuples of any length are not supported: write each member's type"
            )
        return TupleType([convert(member) for member in members])
    if origin in (typing.Final, typing.Annotated, typing.ClassVar):
        return convert(members[0])
    later = _LATER.get(getattr(origin, "__name__", ""))
    if later is not None:
        return later(convert(members[0]))
    raise AnnotationError(f"Unknown type constructor {described(origin)}")


def _check_key(key: Type) -> None:
    allowed = (kinds.INT, kinds.FLOAT, kinds.COMPLEX, kinds.BOOL, kinds.STR, kinds.DEVICE)
    if key not in (*allowed, kinds.TENSOR) and not isinstance(key, EnumType):
        raise AnnotationError(
            f"Cannot create dict for key type '{key}', only int, float, complex, Tensor, device "
            "and string keys are supported"
        )


def type_of_syntax(
    node: ast.AST, name_of: Callable[[str], Any], classes: ClassLookup, depth: int = 0
) -> Type:
    """Return the type that an annotation's syntax means.

    Args:
        node: an expression.
        name_of: dotted name -> object or type; raises `AnnotationError` where there is none.
        classes: class -> its type, or None.

    Raises:
        AnnotationError: it means none.
    """
    if depth > 64:
        raise AnnotationError("the annotation is nested too deeply")

    def inner(member: ast.AST) -> Type:
        return type_of_syntax(member, name_of, classes, depth + 1)

    def of_text(text: str) -> Type:
        try:
            return inner(ast.parse(text.strip(), mode="eval").body)
        except SyntaxError:
            raise AnnotationError(f"Unknown type name '{text}'") from None

    if isinstance(node, ast.Constant):
        if node.value is None:
            return kinds.NONE
        if isinstance(node.value, str):
            return of_text(node.value)
    if isinstance(node, (ast.Name, ast.Attribute)):
        return type_of_object(name_of(ast.unparse(node)), classes, of_text)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _generic(None, PythonUnion, (node.left, node.right), inner)
    if isinstance(node, ast.Subscript):
        members = tuple(node.slice.elts) if isinstance(node.slice, ast.Tuple) else (node.slice,)
        return _subscripted(node, members, name_of, inner)
    if isinstance(node, ast.BinOp):
        operator = ast.unparse(node).removeprefix(ast.unparse(node.left))
        sign = operator.removesuffix(ast.unparse(node.right)).strip()
        raise AnnotationError(f"Expression of type {sign} cannot be used in a type expression")
    raise AnnotationError(f"Unknown type annotation: '{ast.unparse(node)}'")


def _subscripted(
    node: ast.Subscript,
    members: tuple[Any, ...],
    name_of: Callable[[str], Any],
    inner: Callable[[Any], Type],
) -> Type:
    base = ast.unparse(node.value)
    if not isinstance(node.value, (ast.Name, ast.Attribute)):
        raise AnnotationError(f"Subscripted type must be a type identifier, not {base}")
    short = base.rpartition(".")[2]
    if short.startswith("BroadcastingList"):
        count = short.removeprefix("BroadcastingList")
        if count and not (count.isdigit() and int(count)):
            raise AnnotationError(
                f"What follows BroadcastingList must be a positive integer: {short}"
            )
        return ListType(inner(members[0]), int(count) if count.isdigit() else 1)
    if short in _LATER:
        return _LATER[short](inner(members[0]))
    found = name_of(base)
    if found is typing.Optional:
        return optional_of(inner(members[0]))
    if found is typing.Annotated:
        return inner(members[0])
    origin = found if found in (typing.Union, typing.Final) else typing.get_origin(found) or found
    wanted = {dict: 2, list: 1}.get(origin)
    if wanted is not None and len(members) != wanted:
        raise AnnotationError(f"{short} takes {wanted} types of members, not {len(members)}")
    if origin is tuple:
        if len(members) == 1 and ast.unparse(members[0]) == "()":
            return TupleType([])
        if any(isinstance(m, ast.Constant) and m.value is Ellipsis for m in members):
            members = (*members, Ellipsis)
    return _generic(None, origin, members, inner)


def type_of_value(value: Any, classes: ClassLookup = lambda cls: None) -> Type | None:
    """Return the type of an object of Python, or None where the language has none for it."""
    kind = type(value)
    plain = _PLAIN.get(kind)
    if plain is not None:
        return plain
    if isinstance(value, tangrad.Tensor):
        return kinds.TENSOR
    if isinstance(value, float):  # such as NumPy's float64
        return kinds.FLOAT
    if kind is list:
        return _container(value, ListType, classes)
    if kind is dict:
        key = _container(list(value), ListType, classes)
        held = _container(list(value.values()), ListType, classes)
        if not isinstance(key, ListType) or not isinstance(held, ListType):
            return None
        return DictType(key.element, held.element)
    if isinstance(value, tuple):
        if hasattr(value, "_fields"):
            return classes(kind)
        members = [type_of_value(item, classes) for item in value]
        return None if None in members else TupleType([m for m in members if m is not None])
    if isinstance(value, enum.Enum):
        return classes(kind)
    return classes(kind)


def _container(items: list[Any], make: Any, classes: ClassLookup) -> Type | None:
    found: Type | None = None
    for item in items:
        kind = type_of_value(item, classes)
        if kind is None:
            return None
        both = kind if found is None else kinds.unify(found, kind)
        if both is None:
            return None
        found = both
    return None if found is None else make(found)
