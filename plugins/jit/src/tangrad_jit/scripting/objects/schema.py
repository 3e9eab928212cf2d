"""Signatures of scripted functions, as `schema` shows them."""

from __future__ import annotations

from typing import Any

from tangrad_jit.scripting.check.functions import Parameter, Unit
from tangrad_jit.scripting.code.graph import ShownType
from tangrad_jit.scripting.program.texts import text_of
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.kinds import TupleType

__all__ = ["Argument", "FunctionSchema"]


class Argument:
    """A parameter, or what is returned."""

    def __init__(self, name: str, kind: Any, parameter: Parameter | None = None) -> None:
        self.name, self.type = name, ShownType(kind)
        self.kwarg_only = parameter is not None and parameter.keyword_only
        self._parameter = parameter

    def has_default_value(self) -> bool:
        """Return whether a call may leave it out."""
        return self._parameter is not None and self._parameter.has_default

    @property
    def default_value(self) -> Any:
        """What stands for it where a call leaves it out, or None."""
        return self._parameter.default if self.has_default_value() else None  # type: ignore[union-attr]

    def __str__(self) -> str:
        default = f"={text_of(self.default_value, True)}" if self.has_default_value() else ""
        return f"{self.type.str()} {self.name}{default}".strip()


class FunctionSchema:
    """The signature of a scripted function."""

    def __init__(self, unit: Unit) -> None:
        self.name, self.overload_name = unit.name, ""
        self.arguments = [Argument(p.name, p.type, p) for p in unit.parameters]
        self.returns = [Argument("", unit.returned)]

    def __str__(self) -> str:
        shown = []
        for argument in self.arguments:
            if argument.kwarg_only and "*" not in shown:
                shown.append("*")
            shown.append(str(argument))
        kind = self.returns[0].type
        result = "NoneType" if kind.held == kinds.NONE else kind.str()
        if isinstance(kind.held, TupleType):
            result = f"({result})"
        return f"{self.name}({', '.join(shown)}) -> {result}"

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FunctionSchema) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))
