"""Traced functions and modules in scripts: they run their graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tangrad_jit.scripting.check.values import Value
from tangrad_jit.scripting.source.places import Place, ScriptError
from tangrad_jit.scripting.tree.nodes import Expr, Invoke, PythonCall
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.annotations import type_of_value
from tangrad_jit.scripting.types.kinds import DictType, ListType, TupleType, Type, unify
from tangrad_jit.tracing.traced_module import TracedGraph

__all__ = ["TracedCall", "TracedMethod", "result_type"]


def result_type(data: Any) -> Type:
    """Return the type of what a structure describes."""
    kind, held = data
    if kind == "tensor":
        return kinds.TENSOR
    if kind == "constant":
        return type_of_value(held) or kinds.ANY
    if kind == "tuple":
        return TupleType([result_type(inner) for inner in held])
    if kind == "list":
        return ListType(_common([result_type(inner) for inner in held]))
    return DictType(
        _common([type_of_value(key) or kinds.ANY for key, _ in held]),
        _common([result_type(inner) for _, inner in held]),
    )


def _common(members: list[Type]) -> Type:
    found = members[0] if members else kinds.TENSOR
    for member in members[1:]:
        found = unify(found, member) or kinds.ANY
    return found


class TracedCall(Value):
    """A traced function."""

    def __init__(self, function: Any, name: str, traced: TracedGraph) -> None:
        self.function, self.name, self.traced = function, name, traced

    def __str__(self) -> str:
        return f"traced function {self.name}"

    def call(
        self, check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place
    ) -> Expr | Value:
        """Call it."""
        given = [check.expr_of(arg, place) for arg in args]
        taken = len(self.traced.arguments.names)
        if taken and len(given) + len(kwargs) > taken:
            raise ScriptError(
                f"Expected at most {taken} arguments but found {len(given)} positional arguments.",
                place,
            )
        named = {key: check.expr_of(value, place) for key, value in kwargs.items()}
        kind = result_type(self.traced.result.data)
        return PythonCall(place, kind, self.function, self.name, given, named)


class TracedMethod(Value):
    """A method of a traced module."""

    def __init__(self, name: str, traced: TracedGraph) -> None:
        self.name, self.traced = name, traced

    def __str__(self) -> str:
        return f"traced method {self.name}"

    def call(
        self, check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place
    ) -> Expr | Value:
        """Call it: the first argument is the module, and those by name follow the others."""
        owner, *rest = [check.expr_of(arg, place) for arg in args]
        rest += [check.expr_of(value, place) for value in kwargs.values()]
        kind = result_type(self.traced.result.data)
        return Invoke(place, kind, owner, self.name, None, rest)
