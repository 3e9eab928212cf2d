"""Choose among the builtins of a name by the types of the arguments."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from tangrad_jit.scripting.check.builtin_table import TABLE
from tangrad_jit.scripting.check.tensor_table import TENSOR_TABLE
from tangrad_jit.scripting.source.places import Place
from tangrad_jit.scripting.tree.nodes import (
    Apply,
    Builtin,
    Const,
    Convert,
    Expr,
    Invoke,
    Local,
    MakeList,
    MakeTuple,
    TupleItem,
)
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.kinds import (
    AwaitType,
    DictType,
    EnumType,
    ListType,
    OptionalType,
    TupleType,
    Type,
    is_subtype,
    optional_of,
)

__all__ = ["Signature", "choose_builtin", "is_builtin", "refusals", "to_type"]


@dataclass(slots=True)
class Parameter:
    """A parameter of a builtin; a default is kept as a constant."""

    kind: str
    name: str
    default: Any
    required: bool
    keyword_only: bool
    rest: bool


@dataclass(slots=True)
class Signature:
    """A builtin with the types that it takes and gives."""

    builtin: Builtin
    parameters: list[Parameter]
    result: str

    def __str__(self) -> str:
        shown = ", ".join(
            f"{_SHOWN.get(p.kind, p.kind)} {p.name}" + ("" if p.required else f"={p.default!r}")
            for p in self.parameters
        )
        return f"aten::{self.builtin.name}({shown}) -> {_SHOWN.get(self.result, self.result)}"


_SHOWN = {"num": "float", "scalar": "Scalar", "any": "t", "code": "int", "enum": "AnyEnumType"}
_LINE = re.compile(r"(!?)(\w+)\((.*)\) -> (.*?) :: (.*)")
_PRIMITIVES = {
    "int": kinds.INT,
    "float": kinds.FLOAT,
    "complex": kinds.COMPLEX,
    "bool": kinds.BOOL,
    "str": kinds.STR,
    "Tensor": kinds.TENSOR,
    "Device": kinds.DEVICE,
    "Generator": kinds.GENERATOR,
    "None": kinds.NONE,
    "Scalar": kinds.NUMBER,
    "memory_format": kinds.MEMORY_FORMAT,
}


@cache
def _table() -> dict[str, list[Signature]]:
    found: dict[str, list[Signature]] = {}
    for line in (TABLE + TENSOR_TABLE).split("\n"):
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        writes, name, inside, result, template = match.groups()
        parameters = _parameters(inside)
        named = tuple(p.name for p in parameters if p.keyword_only)
        builtin = Builtin(name, template, named=named, writes=bool(writes))
        found.setdefault(name, []).append(Signature(builtin, parameters, result))
    return found


def _parameters(text: str) -> list[Parameter]:
    found, keyword_only = [], False
    for part in re.split(r", (?![^()']*\))", text) if text else ():
        if part == "*":
            keyword_only = True
            continue
        declared, equals, default = part.partition("=")
        kind, _, name = declared.rpartition(" ")
        value = ast.literal_eval(default) if equals else None
        rest = kind.endswith("...")
        found.append(
            Parameter(kind.removesuffix("..."), name, value, not equals, keyword_only, rest)
        )
    return found


def is_builtin(name: str) -> bool:
    """Return whether a name is one of a builtin."""
    return name in _table()


def signatures_of(name: str) -> list[Signature]:
    """Return the builtins of a name."""
    return _table().get(name, [])


def choose_builtin(
    name: str,
    args: Sequence[Expr],
    kwargs: dict[str, Expr],
    place: Place,
    convert: bool = True,
) -> Apply | None:
    """Return a call of the first builtin of a name that takes some arguments, or None.

    Args:
        name: of the builtins.
        args, kwargs: what it is called with.
        place: of the call.
        convert: whether a tensor may become the number that is asked for.
    """
    of_numbers = None if kwargs else _of_numbers(name, args, place)
    if of_numbers is not None:
        return of_numbers
    for converts in (False, True) if convert else (False,):
        for signature in signatures_of(name):
            found = _matched(signature, args, kwargs, converts, place)
            if not isinstance(found, str):
                given, bound = found
                result = _result(signature.result, bound, given)
                return Apply(place, result, signature.builtin, given)
    return None


# Operators on `Scalar`s: of ints they give an int, else what floats or complex numbers give.
_OF_SCALARS = frozenset("add sub mul div floordiv remainder pow min max neg abs".split())


def _of_numbers(name: str, args: Sequence[Expr], place: Place) -> Apply | None:
    """Return an operator on numbers whose kind is known when the program runs, or None."""
    if name not in _OF_SCALARS or all(arg.type != kinds.NUMBER for arg in args):
        return None
    if any(arg.type not in (kinds.NUMBER, *kinds.NUMBERS, kinds.BOOL) for arg in args):
        return None
    given = ", ".join(f"_{k}" for k in range(len(args)))
    kind = kinds.FLOAT if name == "div" else kinds.NUMBER
    return Apply(place, kind, Builtin(name, f"rt_scalar_{name}({given})"), list(args))


def refusals(name: str, args: Sequence[Expr], kwargs: dict[str, Expr], place: Place) -> list[str]:
    """Return, for each builtin of a name, why it does not take some arguments."""
    return [f"{s}:\n  {_matched(s, args, kwargs, True, place)}" for s in signatures_of(name)]


def _matched(
    signature: Signature,
    args: Sequence[Expr],
    kwargs: dict[str, Expr],
    converts: bool,
    place: Place,
) -> tuple[list[Expr], dict[str, Type]] | str:
    """Return the arguments of a call and what its types stand for, or why it is none."""
    bound: dict[str, Type] = {}
    given: list[Expr] = []
    rest = list(args)
    named = dict(kwargs)
    for parameter in signature.parameters:
        if parameter.rest:
            given.extend(rest)
            return f"Unknown keyword argument '{next(iter(named))}'." if named else (given, bound)
        if rest and not parameter.keyword_only:
            value = rest.pop(0)
        elif parameter.name in named:
            value = named.pop(parameter.name)
        elif parameter.required:
            return f"Argument {parameter.name} not provided."
        else:
            kind = parameter.kind
            given.append(Const(place, _constant_type(parameter.default, kind), parameter.default))
            continue
        fitted = _fitted(value, parameter.kind, bound, converts)
        if fitted is None:
            kind = parameter.kind
            variable = next((v for v in re.findall(r"\b[tkv]\b", kind) if v in bound), None)
            is_list = isinstance(value.type, ListType) and kind == "t[]"
            if variable is not None and (kind == variable or is_list):
                inner = value.type.element if is_list else value.type  # type: ignore[attr-defined]
                return (
                    f"Could not match type {value.type} to {kind} in argument '{parameter.name}': "
                    f"Type variable '{variable}' previously matched to type {bound[variable]} is "
                    f"matched to type {inner}."
                )
            shown = bound.get(parameter.kind, _SHOWN.get(parameter.kind, parameter.kind))
            return (
                f"Expected a value of type '{shown}' for argument '{parameter.name}' but instead "
                f"found type '{value.type}'."
            )
        given.append(fitted)
    if rest:
        return (
            f"Expected at most {len(signature.parameters)} arguments but found {len(args)} "
            "positional arguments."
        )
    return f"Unknown keyword argument '{next(iter(named))}'." if named else (given, bound)


def _constant_type(value: Any, kind: str) -> Type:
    return kinds.NONE if value is None else _PRIMITIVES[kind.rstrip("?")]


def _fitted(value: Expr, kind: str, bound: dict[str, Type], converts: bool) -> Expr | None:
    have = value.type
    if _matches(have, kind, bound):
        return value
    if kind in ("t", "v", "k") and kind in bound:
        return to_type(value, bound[kind]) if converts else None
    if not converts:
        return None
    wanted = {"num": kinds.FLOAT, "scalar": kinds.NUMBER}.get(kind) or _PRIMITIVES.get(
        kind.rstrip("?")
    )
    if wanted is None:
        if kind.endswith("[]") and isinstance(have, TupleType):
            listed = _as_list(value)
            return listed if listed is not None and _matches(listed.type, kind, bound) else None
        return None
    return to_type(value, wanted)


def _as_list(value: Expr) -> Expr | None:
    elements = value.type.elements if isinstance(value.type, TupleType) else ()
    if elements and all(element == elements[0] for element in elements):
        return Convert(value.place, ListType(elements[0]), value, "list")
    return None


_FAMILIES = {
    "num": (kinds.INT, kinds.FLOAT),
    "scalar": (*kinds.NUMBERS, kinds.NUMBER),
    "code": kinds.ENUM_LIKE,
}


def _matches(have: Type, kind: str, bound: dict[str, Type]) -> bool:
    """Whether a type is the one that a table's type means, with what its variables stand for."""
    if kind == "any":
        return True
    if kind in _FAMILIES:
        return have in _FAMILIES[kind]
    if kind == "enum":
        return isinstance(have, EnumType)
    if kind == "tuple":
        return isinstance(have, TupleType)
    if kind in ("t", "k", "v"):
        known = bound.setdefault(kind, have)
        return is_subtype(have, known)
    if kind.endswith("?"):
        if have == kinds.NONE:
            return True
        bare = have.element if isinstance(have, OptionalType) else have
        return _matches(bare, kind[:-1], bound)
    if kind.endswith("[]"):
        return isinstance(have, ListType) and _matches_exactly(have.element, kind[:-2], bound)
    if kind.startswith("Dict("):
        if not isinstance(have, DictType):
            return False
        key, value = kind[5:-1].split(", ")
        return _matches_exactly(have.key, key, bound) and _matches_exactly(have.value, value, bound)
    return have == _PRIMITIVES[kind]


def _matches_exactly(have: Type, kind: str, bound: dict[str, Type]) -> bool:
    """Whether members of a container are of a type: of no smaller one, as it may be written to."""
    if not _matches(have, kind, bound):
        return False
    known = bound.get(kind)
    return known is None or known == have


def _result(text: str, bound: dict[str, Type], args: list[Expr]) -> Type:
    if text == "num":
        return kinds.FLOAT if any(a.type == kinds.FLOAT for a in args) else kinds.INT
    if text in bound:
        return bound[text]
    if text.endswith("?"):
        return optional_of(_result(text[:-1], bound, args))
    if text.endswith("[]"):
        return ListType(_result(text[:-2], bound, args))
    if text.startswith("Dict("):
        key, value = text[5:-1].split(", ")
        return DictType(_result(key, bound, args), _result(value, bound, args))
    if text.startswith("("):
        return TupleType([_result(member, bound, args) for member in text[1:-1].split(", ")])
    return _PRIMITIVES[text]


_OF_TENSOR: dict[Type, str] = {
    kinds.INT: "int",
    kinds.FLOAT: "float",
    kinds.COMPLEX: "complex",
    kinds.NUMBER: "number",
}


def to_type(value: Expr, wanted: Type, implicit: bool = True) -> Expr | None:
    """Return an expression of a type, with what PyTorch converts by itself; None where it cannot.

    Args:
        value: an expression.
        wanted: the type.
        implicit: whether a one-element tensor may become a number, as arguments of ops do.
    """
    have = value.type
    if is_subtype(have, wanted):
        return value
    if isinstance(wanted, OptionalType):
        return to_type(value, wanted.element, implicit)
    if isinstance(have, AwaitType):
        return to_type(Invoke(value.place, have.element, value, "wait", None, []), wanted, implicit)
    if implicit and have == kinds.TENSOR and wanted in _OF_TENSOR:
        return Convert(value.place, wanted, value, _OF_TENSOR[wanted])
    if have == kinds.NUMBER and wanted in kinds.NUMBERS:
        return Convert(value.place, wanted, value, _OF_TENSOR[wanted])
    if have == kinds.INT and wanted in kinds.ENUM_LIKE:
        return Convert(value.place, wanted, value, f"{wanted} of code")
    if have in kinds.ENUM_LIKE and wanted == kinds.INT:
        return Convert(value.place, wanted, value, "code")
    if have == kinds.STR and wanted == kinds.DEVICE:
        return Convert(value.place, wanted, value, "device")
    if isinstance(wanted, ListType):
        if isinstance(value, MakeList) and not value.elements:
            return MakeList(value.place, wanted, [])
        return _list_of(value, wanted, implicit)
    if isinstance(wanted, TupleType) and isinstance(have, TupleType):
        return _tuple_of(value, have, wanted, implicit)
    return None


def _list_of(value: Expr, wanted: ListType, implicit: bool) -> Expr | None:
    """Return a tuple as a list."""
    have = value.type
    if not isinstance(have, TupleType):
        return None
    if all(is_subtype(element, wanted.element) for element in have.elements):
        return Convert(value.place, wanted, value, "list")
    if implicit and wanted.element == kinds.INT:
        whole = (kinds.INT, kinds.TENSOR)
        if all(element in whole for element in have.elements):
            return Convert(value.place, wanted, value, "list of int")
    return None


def _tuple_of(value: Expr, have: TupleType, wanted: TupleType, implicit: bool) -> Expr | None:
    """Return a tuple with each member as another type has it."""
    if wanted.names or len(have.elements) != len(wanted.elements):
        return None
    if isinstance(value, MakeTuple):
        members = list(value.elements)
    elif isinstance(value, Local):
        members = [TupleItem(value.place, e, value, k) for k, e in enumerate(have.elements)]
    else:
        return None
    pairs = zip(members, wanted.elements, strict=True)
    found = [to_type(member, element, implicit) for member, element in pairs]
    fitting = [member for member in found if member is not None]
    return MakeTuple(value.place, wanted, fitting) if len(fitting) == len(found) else None
