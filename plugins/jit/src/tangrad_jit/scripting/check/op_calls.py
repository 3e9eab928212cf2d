"""Calls of ops by the core's own schemas, and of functions of the library by their annotations."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import tangrad
from tangrad.plugin import find_op
from tangrad_jit.scripting.check.builtins import to_type
from tangrad_jit.scripting.source.places import Place
from tangrad_jit.scripting.tree.nodes import Const, Convert, Expr, MakeList, OpCall
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.kinds import (
    ListType,
    OptionalType,
    TupleType,
    Type,
    is_subtype,
    optional_of,
)

__all__ = ["OpSignature", "Parameter", "call_op", "is_op", "signatures"]

_TENSORS = ListType(kinds.TENSOR)
_INTS = ListType(kinds.INT)
_FLOATS = ListType(kinds.FLOAT)
_SIMPLE = {
    "int": kinds.INT,
    "dim": kinds.INT,
    "bool": kinds.BOOL,
    "str": kinds.STR,
    "dtype": kinds.DTYPE,
    "device": kinds.DEVICE,
    "layout": kinds.LAYOUT,
    "memory_format": kinds.MEMORY_FORMAT,
    "generator": kinds.GENERATOR,
    "Tensor": kinds.TENSOR,
}
_REQUIRED = object()
# Ops that give a tensor for one, and several for several.
_LIKE_FIRST = ("quantize_per_tensor", "dequantize")


@dataclass(slots=True)
class Parameter:
    """A parameter: `kind` is a type as schemas write it."""

    name: str
    kind: str
    default: Any
    keyword_only: bool

    @property
    def required(self) -> bool:
        """Whether a call must give it."""
        return self.default is _REQUIRED


@dataclass(slots=True)
class OpSignature:
    """How an op may be called.

    Attributes:
        name: in graphs and messages.
        parameters: in order.
        result: the type of what it returns.
        rest: the number of the parameter that takes all further integers, or -1.
        takes_out: whether it may write to `out`.
    """

    name: str
    parameters: list[Parameter]
    result: Type
    rest: int = -1
    takes_out: bool = False

    def __str__(self) -> str:
        shown = ", ".join(
            f"{p.kind} {p.name}" + ("" if p.required else f"={p.default!r}")
            for p in self.parameters
        )
        return f"aten::{self.name}({shown}) -> {self.result}"


def is_op(name: str) -> bool:
    """Return whether the core, or a package, has an op of a name."""
    try:
        find_op(name)
    except AttributeError:
        return False
    return True


@cache
def signatures(callee: Any) -> tuple[OpSignature, ...]:
    """Return how an op or a function of the library may be called; () where nobody says so."""
    if hasattr(callee, "definition"):
        return tuple(_of_op(one) for one in (callee.overloads or [callee]))
    if hasattr(callee, "_schema"):
        return (_of_custom(callee),)
    return _of_function(callee)


def _of_op(op: Any) -> OpSignature:
    schema = op.definition.schema
    parameters = [
        Parameter(p.name, p.type, _REQUIRED if p.required else p.default, p.keyword_only)
        for p in schema.params
    ]
    result = _result_type(schema.result, op.return_type)
    return OpSignature(op.name, parameters, result, op.varargs, op.takes_out)


def _result_type(text: str, python_class: Any = None) -> Type:
    if text.startswith("("):
        members = [member.split() for member in text[1:-1].split(", ") if member]
        fields = [member[1] for member in members if len(member) > 1]
        found = [_result_type(member[0]) for member in members]
        return TupleType(found, fields=fields if len(fields) == len(found) else ())
    known: dict[str, Type] = {
        "Tensor": kinds.TENSOR,
        "Tensor[]": _TENSORS,
        "bool": kinds.BOOL,
        "int": kinds.INT,
        "float": kinds.FLOAT,
        "str": kinds.STR,
        "dtype": kinds.DTYPE,
        "()": kinds.NONE,
    }
    return known.get(text, kinds.ANY)


def _of_custom(callee: Any) -> OpSignature:
    """Return how an op of another package is called, by the schema that it was declared with."""
    schema = callee._schema
    parameters = [
        Parameter(
            a.name,
            _custom_kind(a),
            a.default if a.has_default else _REQUIRED,
            bool(a.kwarg_only),
        )
        for a in schema.arguments
    ]
    returned = [_custom_result(r) for r in schema.returns]
    result = (
        kinds.NONE if not returned else returned[0] if len(returned) == 1 else TupleType(returned)
    )
    return OpSignature(str(schema.name), parameters, result)


def _custom_kind(argument: Any) -> str:
    base = {
        "SymInt": "int",
        "ScalarType": "dtype",
        "Device": "device",
        "Layout": "layout",
        "MemoryFormat": "memory_format",
        "Generator": "generator",
    }.get(argument.base, argument.base)
    suffix = "".join(c for c in argument.suffix if not c.isdigit())
    return f"{base}{suffix}"


def _custom_result(result: Any) -> Type:
    kind = _custom_kind(result)
    found = _of_kind(kind)
    return found if found is not None else kinds.ANY


def _of_function(callee: Any) -> tuple[OpSignature, ...]:
    try:
        signature = inspect.signature(callee)
    except (TypeError, ValueError):
        return ()
    parameters = []
    for p in signature.parameters.values():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            return ()
        default = _REQUIRED if p.default is p.empty else p.default
        keyword_only = p.kind == p.KEYWORD_ONLY
        parameters.append(Parameter(p.name, _annotated_kind(p.annotation), default, keyword_only))
    returned = str(signature.return_annotation).replace("tangrad.", "").replace("_C.", "")
    result = _RETURNED.get(returned, kinds.TENSOR)
    return (OpSignature(getattr(callee, "__name__", "call"), parameters, result),)


_RETURNED: dict[str, Type] = {
    "bool": kinds.BOOL,
    "int": kinds.INT,
    "None": kinds.NONE,
    "tuple[Any, Any]": TupleType([kinds.TENSOR] * 2),
    "tuple[Tensor, Tensor]": TupleType([kinds.TENSOR] * 2),
    "tuple[Any, Any, Any]": TupleType([kinds.TENSOR] * 3),
    "tuple[Tensor, Tensor, Tensor]": TupleType([kinds.TENSOR] * 3),
    "tuple[Tensor, Tensor | None]": TupleType([kinds.TENSOR, optional_of(kinds.TENSOR)]),
    "list[Any]": _TENSORS,
    "list[Tensor]": _TENSORS,
}


def _annotated_kind(annotation: Any) -> str:
    text = str(annotation).replace("tangrad.", "").replace("_C.", "")
    if text.endswith(" | None"):
        inner = _annotated_kind(text.removesuffix(" | None"))
        return "any" if inner == "any" else f"{inner}?"
    return text if text in ("Tensor", "bool", "int", "float", "str", "dtype", "device") else "any"


def call_op(
    name: str, callee: Any, args: Sequence[Expr], kwargs: dict[str, Expr], place: Place
) -> Expr | list[str]:
    """Return a call of an op, or why none of its overloads takes the arguments.

    Args:
        name: in graphs, `aten::add`.
        callee: the op; called as a method of the first argument where `name` says so.
        args, kwargs: typed arguments.
        place: of the call.
    """
    refused = []
    if "requires_grad" in kwargs and name != "aten::tensor":
        return [f"{name}:\n  Keyword argument requires_grad unknown."]
    for signature in signatures(callee):
        found = _bound(signature, args, kwargs)
        if isinstance(found, str):
            refused.append(f"{signature}:\n  {found}")
            continue
        given, named, all_given = found
        result = _result_of_flags(signature, all_given)
        if signature.name in _LIKE_FIRST and given and given[0].type == kinds.TENSOR:
            result = kinds.TENSOR
        return OpCall(place, result, name, callee, given, named)
    return refused


def _bound(
    signature: OpSignature, args: Sequence[Expr], kwargs: dict[str, Expr]
) -> tuple[list[Expr], dict[str, Expr], dict[str, Expr]] | str:
    """Return arguments by place and by name, and all of them by name; or what does not fit."""
    rest = list(args)
    given: list[Expr] = []
    named: dict[str, Expr] = {}
    everything: dict[str, Expr] = {}
    left = dict(kwargs)
    last = sum(not p.keyword_only for p in signature.parameters) - 1
    for k, parameter in enumerate(signature.parameters):
        value: Expr | None
        if rest and not parameter.keyword_only:
            if (
                k == signature.rest
                and parameter.kind.startswith(("int[]", "dim[]"))
                and _is_whole(rest[0])
            ):
                value, rest = _collected(rest), []
            elif k == last and parameter.kind == "Tensor[]" and _are_tensors(rest):
                value, rest = MakeList(rest[0].place, _TENSORS, rest), []
            else:
                value = rest.pop(0)
            fitted = fit(value, parameter.kind)
            if fitted is None:
                return _mismatch(value, parameter)
            given.append(fitted)
            everything[parameter.name] = fitted
            continue
        name = _given_name(parameter.name, left)
        if name is not None:
            value = left.pop(name)
            fitted = fit(value, parameter.kind)
            if fitted is None:
                return _mismatch(value, parameter)
            named[parameter.name] = everything[parameter.name] = fitted
        elif parameter.required:
            return f"Argument {parameter.name} not provided."
    if rest:
        most = sum(not p.keyword_only for p in signature.parameters)
        return f"Expected at most {most} arguments but found {len(args)} positional arguments."
    if "out" in left and signature.takes_out:
        named["out"] = left.pop("out")
    if left:
        name = next(iter(left))
        if name in everything:
            return f"Argument {name} specified twice in the call."
        return f"Unknown keyword argument '{name}'."
    return given, named, everything


def _mismatch(value: Expr, parameter: Parameter) -> str:
    kind = _of_kind(parameter.kind)
    return (
        f"Expected a value of type '{kind or parameter.kind}' for argument '{parameter.name}' but "
        f"instead found type '{value.type}'."
    )


_ALIASES = {"input": "self", "self": "input", "axis": "dim", "dim": "axis", "keepdim": "keepdims"}


def _given_name(name: str, kwargs: dict[str, Expr]) -> str | None:
    if name in kwargs:
        return name
    others = ("indices", "sections") if name == "indices_or_sections" else (_ALIASES.get(name),)
    return next((other for other in others if other in kwargs), None)


def _is_whole(value: Expr) -> bool:
    return value.type in (kinds.INT, kinds.TENSOR)


def _are_tensors(values: list[Expr]) -> bool:
    return all(value.type == kinds.TENSOR for value in values)


def _collected(values: list[Expr]) -> Expr:
    if len(values) == 1 and values[0].type == kinds.INT:
        return MakeList(values[0].place, _INTS, values)
    elements = [to_type(value, kinds.INT) or value for value in values]
    return MakeList(values[0].place, _INTS, elements)


def _of_kind(kind: str) -> Type | None:
    if kind.endswith("?"):
        inner = _of_kind(kind[:-1])
        return None if inner is None else optional_of(inner)
    if kind.endswith("[]"):
        inner = _of_kind(kind[:-2])
        return None if inner is None else ListType(inner)
    if kind == "float":
        return kinds.FLOAT
    return _SIMPLE.get(kind)


def fit(value: Expr, kind: str) -> Expr | None:
    """Return an argument as a schema's type takes it, or None."""
    have = value.type
    if kind.endswith("?"):
        if have == kinds.NONE:
            return value
        if isinstance(have, OptionalType):
            code = _SIMPLE.get(kind[:-1])
            if code in kinds.ENUM_LIKE and have.element == kinds.INT:
                return Convert(value.place, optional_of(code), value, f"{code} of code")
            inner = Convert(value.place, have.element, value, "refine")
            fitted = fit(inner, kind[:-1])
            return None if fitted is None else value if fitted is inner else _through(value, kind)
        return fit(value, kind[:-1])
    if kind == "any":
        return value
    if kind in ("Operand", "Scalar") and isinstance(have, kinds.UnionType):
        return value if set(have.members) <= {*kinds.NUMBERS, kinds.BOOL} else None
    if kind == "Operand":
        return value if have in (kinds.TENSOR, kinds.BOOL, kinds.NUMBER, *kinds.NUMBERS) else None
    if kind == "Scalar":
        if have == kinds.BOOL:
            return value
        return to_type(value, kinds.NUMBER)
    if kind == "float":
        if have in (kinds.INT, kinds.NUMBER):
            return value
        return to_type(value, kinds.FLOAT)
    if kind in ("int[]", "dim[]"):
        if have == kinds.INT:
            return value
        if isinstance(have, ListType) and have.element == kinds.INT:
            return value
        return to_type(value, _INTS)
    if kind == "float[]":
        return value if have == kinds.FLOAT else to_type(value, _FLOATS)
    if kind == "Tensor[]":
        return _tensors(value)
    wanted = _of_kind(kind)
    return value if wanted is None else to_type(value, wanted)


def _through(value: Expr, kind: str) -> Expr | None:
    """Return an optional value whose members need no conversion when it is there."""
    wanted = _of_kind(kind)
    return value if wanted is None or is_subtype(value.type, wanted) else None


def _tensors(value: Expr) -> Expr | None:
    have = value.type
    optional = optional_of(kinds.TENSOR)
    if isinstance(have, ListType) and have.element in (kinds.TENSOR, optional):
        return value
    if isinstance(have, TupleType) and all(is_subtype(e, optional) for e in have.elements):
        return Convert(value.place, _TENSORS, value, "list")
    return None


# Where these are constants and true, an op returns further tensors.
_FLAGS = ("return_indices", "return_inverse", "return_counts", "get_infos")


def _result_of_flags(signature: OpSignature, given: dict[str, Expr]) -> Type:
    count = 0
    for flag in _FLAGS:
        value = given.get(flag)
        if isinstance(value, Const) and value.value is True:
            count += 1
    if count and signature.result == kinds.TENSOR:
        return TupleType([kinds.TENSOR] * (count + 1))
    as_tuple = given.get("as_tuple")
    if isinstance(as_tuple, Const) and as_tuple.value is True:
        return _TENSORS
    return signature.result


def variants(refused: Iterator[str] | Sequence[str]) -> str:
    """Return the overloads that were refused, as an error lists them."""
    listed = "".join(f"  \n  {line}\n" for line in refused)
    return f"\nArguments for call are not valid.\nThe following variants are available:\n{listed}"


def library_function(name: str) -> Any:
    """Return what PyTorch's top level calls by a name, or None."""
    return getattr(tangrad, name, None)
