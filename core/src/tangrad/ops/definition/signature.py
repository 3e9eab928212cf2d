"""Schemas from Python signatures: the annotations of a composite's function are its schema.

`def cov(self: Tensor, *, correction: int = 1, weights: Tensor | None = None) -> Tensor` says
"cov(Tensor self, *, int correction=1, Tensor? weights=None) -> Tensor". `Any`, `bool`, `int`,
`float` and `str` are types of both; the names below stand for types that Python does not have.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any

from tangrad import _C
from tangrad.dispatch.tracing import at_all_sizes, serves_all_sizes
from tangrad.ops.definition.schema import split

Tensor = _C.Tensor
WrittenTensor = Annotated[Any, "Tensor!"]
Operand = Annotated[Any, "Operand"]  # a tensor or a number
Scalar = Annotated[Any, "Scalar"]
Dim = Annotated[int, "dim"]
Dims = Annotated[tuple[int, ...], "dim[]"]
# A call may give one number for a list of this length; the function receives the list.
Dims1 = Annotated[tuple[int, ...], "dim[1]"]
Ints1 = Annotated[tuple[int, ...], "int[1]"]
Ints2 = Annotated[tuple[int, ...], "int[2]"]
Ints3 = Annotated[tuple[int, ...], "int[3]"]
Device = Annotated[Any, "device"]
DType = Annotated[Any, "dtype"]
Generator = Annotated[Any, "generator"]
MemoryFormat = Annotated[Any, "memory_format"]
TensorLayout = Annotated[Any, "layout"]

_TYPES = {Any: "any", bool: "bool", int: "int", float: "float", str: "str", Tensor: "Tensor"}
# By text, as `from __future__ import annotations` leaves them: to evaluate them takes longer.
_BY_TEXT = {
    "None": "()",
    "Ints": "int[]",
    "Sequence[Tensor]": "Tensor[]",
    **{kind.__name__: name for kind, name in _TYPES.items()},
    **{n: a.__metadata__[0] for n, a in list(globals().items()) if hasattr(a, "__metadata__")},
}


def schema_of(function: Callable[..., Any], name: str, result_names: Sequence[str] = ()) -> str:
    """Return the schema that a function's signature says.

    Args:
        function: has annotations of all its parameters and of its result.
        name: of the op.
        result_names: of the results, where they are several and have names.

    Raises:
        ValueError: an annotation is missing, or stands for no type of schemas.
    """
    code = function.__code__
    if code.co_flags & 0x0C:
        raise ValueError(f"the definition of '{name}': ops take no *args and no **kwargs")
    positional, values = code.co_argcount, function.__defaults__ or ()
    parameters = code.co_varnames[: positional + code.co_kwonlyargcount]
    optional = parameters[positional - len(values) : positional]
    defaults = {**dict(zip(optional, values, strict=True)), **(function.__kwdefaults__ or {})}
    parts = [
        f"{_type_of(function, p, name)} {p}" + (f"={defaults[p]!r}" if p in defaults else "")
        for p in parameters
    ]
    if code.co_kwonlyargcount:
        parts.insert(positional, "*")
    result = _type_of(function, "return", name)
    if result_names:
        named = zip(split(result[1:-1]), result_names, strict=True)
        result = f"({', '.join(map(' '.join, named))})"
    return f"{name}({', '.join(parts)}) -> {result}"


def by_position(function: Any) -> None:
    """Let a function take all its parameters by position, as ops call their tensor code."""
    code = function.__code__
    if code.co_kwonlyargcount:
        count = code.co_argcount + code.co_kwonlyargcount
        function.__code__ = code.replace(co_argcount=count, co_kwonlyargcount=0)
        if serves_all_sizes(code):
            at_all_sizes(function)


def _type_of(function: Any, parameter: str, op: str) -> str:
    annotations = function.__annotations__
    where = "the result" if parameter == "return" else f"parameter '{parameter}'"
    if parameter not in annotations:
        raise ValueError(f"the definition of '{op}': {where} has no annotation")
    given = annotations[parameter]
    found = _type_by_text(given) if isinstance(given, str) else _type_of_object(given)
    if found is None and isinstance(given, str):
        from inspect import get_annotations

        found = _type_of_object(get_annotations(function, eval_str=True)[parameter])
    if found is None:
        raise ValueError(
            f"the definition of '{op}': {where} is annotated with '{given}', which is no type of "
            "schemas; take one of tangrad.plugin, as in 'self: Tensor', or write the schema as text"
        )
    return found


def _type_by_text(text: str) -> str | None:
    base = text.removesuffix(" | None")
    if base.startswith("tuple["):
        return _joined([_BY_TEXT.get(part) for part in split(base[6:-1])])
    found = _BY_TEXT.get(base)
    return found and (found if base is text else f"{found}?")


def _type_of_object(annotation: Any) -> str | None:
    if hasattr(annotation, "__metadata__"):
        return str(annotation.__metadata__[0])
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    kinds = [_type_of_object(part) for part in parts if part not in (NoneType, ...)]
    if origin in (typing.Union, UnionType) and len(kinds) == 1:
        return kinds[0] and f"{kinds[0]}?"
    if origin in (list, Sequence) or ... in parts:
        return kinds[0] and f"{kinds[0]}[]"
    if origin is tuple:
        return _joined(kinds)
    return "()" if annotation in (None, NoneType) else _TYPES.get(annotation)


def _joined(kinds: list[str | None]) -> str | None:
    return None if None in kinds else f"({', '.join(map(str, kinds))})"
