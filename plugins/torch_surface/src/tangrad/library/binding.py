"""Fit the arguments and results of a call to the schema of a custom op."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import tangrad
from tangrad.library.classes import find_class
from tangrad.library.schemas import Argument, FunctionSchema

__all__ = ["bind", "check_results", "short_form"]


def bind(
    schema: FunctionSchema, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Return (positional arguments, keyword-only arguments) of a call, all of the schema's.

    Raises:
        RuntimeError: one is missing, unknown, given twice or of another type.
    """
    positional = [a for a in schema.arguments if not a.kwarg_only]
    if len(args) > len(positional):
        raise RuntimeError(
            f"{schema.name}() takes {len(positional)} positional argument(s) but {len(args)} "
            f"was/were given.  Declaration: {schema}"
        )
    given = dict(zip([a.name for a in positional], args, strict=False))
    known = {a.name for a in schema.arguments}
    for name, value in kwargs.items():
        if name in given:
            raise RuntimeError(
                f"Argument '{name}' specified both as positional and keyword argument. "
                f"Schema: {schema}"
            )
        if name not in known:
            raise RuntimeError(
                f"Unknown keyword argument '{name}' for operator '{schema.name}'. Schema: {schema}"
            )
        given[name] = value
    values: list[Any] = []
    named: dict[str, Any] = {}
    for position, argument in enumerate(schema.arguments):
        if argument.name in given:
            value = _checked(schema, argument, given[argument.name], position)
        elif argument.has_default:
            value = argument.default
            value = list(value) if isinstance(value, list) else value
            if argument.base == "Device" and isinstance(value, str):
                value = tangrad.device(value)
        else:
            raise RuntimeError(
                f"{schema.name}() is missing value for argument '{argument.name}'. "
                f"Declaration: {schema}"
            )
        if argument.kwarg_only:
            named[argument.name] = value
        else:
            values.append(value)
    return values, named


def _checked(schema: FunctionSchema, argument: Argument, value: Any, position: int) -> Any:
    if value is None and argument.is_optional:
        return None
    try:
        return _converted(argument, value)
    except (TypeError, ValueError):
        raise RuntimeError(
            f"{schema.name}() Expected a value of type '{argument.kind}' for argument "
            f"'{argument.name}' but instead found type '{type(value).__name__}'.\n"
            f"Position: {position}\nValue: {value}\nDeclaration: {schema}"
        ) from None


def _converted(argument: Argument, value: Any) -> Any:
    if not argument.is_list:
        return _one(argument.base, value)
    if isinstance(value, int) and any(c.isdigit() for c in argument.suffix):
        count = int("".join(c for c in argument.suffix if c.isdigit()))
        return [_one(argument.base, value)] * count
    if not isinstance(value, (list, tuple)):
        raise TypeError
    optional = argument.suffix.startswith("?")
    return [None if v is None and optional else _one(argument.base, v) for v in value]


def _one(base: str, value: Any) -> Any:
    """Return a value as the schema's type has it.

    Raises:
        TypeError, ValueError: it is of another.
    """
    if base == "Tensor":
        if isinstance(value, tangrad.Tensor) or hasattr(type(value), "__torch_function__"):
            return value
        raise TypeError
    if isinstance(value, tangrad.Tensor) and base in ("int", "SymInt", "float", "bool", "Scalar"):
        if value.numel() != 1 or value.requires_grad:
            raise TypeError
        value = value.item()
    if base in ("int", "SymInt"):
        return operator.index(value)
    if base in ("float", "complex"):
        if isinstance(value, str):
            raise TypeError
        return float(value) if base == "float" else complex(value)
    if base.startswith("__torch__."):
        cls = find_class(base)
        if cls is None or not isinstance(value, cls):
            raise TypeError
        return value
    if base == "Device":
        return value if isinstance(value, tangrad.device) else tangrad.device(value)
    wanted: tuple[type, ...] = {
        "bool": (bool, int),
        "str": (str, bytes),  # texts of C++, which need not be UTF-8
        "Scalar": (bool, int, float, complex),
        "ScalarType": (tangrad.dtype,),
    }.get(base, (object,))
    if not isinstance(value, wanted):
        raise TypeError
    return bool(value) if base == "bool" else value


def short_form(
    schema: FunctionSchema, values: Sequence[Any], named: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return (args, kwargs) of a bound call with trailing defaults left out."""
    positional = [a for a in schema.arguments if not a.kwarg_only]
    n = len(values)
    while n and _is_default(positional[n - 1], values[n - 1]):
        n -= 1
    keywords = {
        a.name: named[a.name]
        for a in schema.arguments
        if a.kwarg_only and not _is_default(a, named[a.name])
    }
    return tuple(values[:n]), keywords


def _is_default(argument: Argument, value: Any) -> bool:
    default = argument.default
    if value is default:
        return True
    plain = (bool, int, float, str, list)
    return (
        argument.has_default
        and isinstance(value, plain)
        and type(value) is type(default)
        and not argument.is_tensor
        and bool(value == default)
    )


def check_results(schema: FunctionSchema, result: Any) -> Any:
    """Return a kernel's result: None, one value or a tuple, as the schema says.

    Raises:
        RuntimeError: it is something else.
    """
    returns = schema.returns
    if not returns:
        if result is not None:
            raise RuntimeError(f"{schema.name}: expected no result, got {type(result).__name__}")
        return None
    if len(returns) == 1:
        if isinstance(result, tuple) and len(result) == 1 and not returns[0].is_list:
            result = result[0]
        return _result(schema, returns[0], result)
    if not isinstance(result, (tuple, list)) or len(result) != len(returns):
        got = len(result) if isinstance(result, (tuple, list)) else type(result).__name__
        raise RuntimeError(f"{schema.name}: expected {len(returns)} results, got {got}")
    return tuple(_result(schema, r, value) for r, value in zip(returns, result, strict=True))


def _result(schema: FunctionSchema, returned: Argument, value: Any) -> Any:
    if value is None and (returned.is_optional or returned.base == "Tensor"):
        return None
    try:
        return _converted(returned, value)
    except (TypeError, ValueError):
        raise RuntimeError(
            f"{schema.name}: Unable to cast {value} to {returned.base}{returned.suffix}"
        ) from None
