"""The way from Python into scripted code: arguments are checked and converted, errors are told."""

from __future__ import annotations

import ast
from typing import Any

import tangrad
from tangrad.plugin import keeps_branches
from tangrad_jit.scripting.check.functions import Parameter, Unit
from tangrad_jit.scripting.machine._machine import Misfit
from tangrad_jit.scripting.machine.kinds_of import kind_tag
from tangrad_jit.scripting.machine.lower import entry_program
from tangrad_jit.scripting.objects.profile import timed
from tangrad_jit.scripting.objects.run_errors import raise_told
from tangrad_jit.scripting.program.emit import program_of
from tangrad_jit.scripting.program.staged import staged_program_of
from tangrad_jit.scripting.program.texts import text_of
from tangrad_jit.scripting.program.values import Unfitting, fitted
from tangrad_jit.scripting.recording.following import ACTIVE, follower
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.annotations import type_of_value

__all__ = ["Entry"]

_LOW, _HIGH = -(1 << 63), (1 << 63) - 1


class Entry:
    """A scripted function or method as Python calls it.

    Args:
        unit: the function.
        is_method: whether its first argument is whose method it is, which nobody checks.
    """

    def __init__(self, unit: Unit, is_method: bool = False) -> None:
        self.unit, self.is_method = unit, is_method
        self._enter = self._made()
        self._staged: Any = None

    def _made(self, staged: bool = False) -> Any:
        """Return a function that checks arguments by inlined tests and calls the program.

        Args:
            staged: whether the program is the one that keeps its branches for a graph.
        """
        unit = self.unit
        machine = None if staged else entry_program(unit)
        program = staged_program_of if staged else program_of
        namespace: dict[str, Any] = {
            "_program": None if machine is not None else program(unit),
            "_late": lambda: program_of(unit),
            "_fit": self._fit,
            "_told": raise_told,
            "_Tensor": tangrad.Tensor,
            "_machine": machine,
            "_Misfit": Misfit,
        }
        names, checks, unseen = [], [], []
        star = False
        for k, parameter in enumerate(unit.parameters):
            text = f"_a{k}" if self.is_method and k == 0 else parameter.name
            if parameter.has_default:
                namespace[f"_d{k}"] = parameter.default
                text += f"=_d{k}"
            if parameter.keyword_only and not star:
                names.append("*")
                star = True
            names.append(text)
            if not (self.is_method and k == 0):
                checks.append(_check(k, parameter))
                if kind_tag(parameter.type) == "python":
                    unseen.append(checks[-1])  # the machine does not look at these
        passed = ", ".join(
            f"_a{k}" if self.is_method and k == 0 else p.name for k, p in enumerate(unit.parameters)
        )
        code = "_program" if machine is None else "_late()"
        text = f"def enter({', '.join(names)}):\n"
        if machine is not None:
            text += "".join(f"    {check}\n" for check in unseen) + (
                f"    try:\n        return _machine({passed})\n    except _Misfit:\n        pass\n"
                "    except Exception as error:\n        _told(error)\n"
            )
        text += (
            "".join(f"    {check}\n" for check in checks)
            + f"    try:\n        return {code}({passed})\n"
            + "    except Exception as error:\n        _told(error)\n"
        )
        exec(compile(ast.parse(text), "<script>", "exec"), namespace)
        return namespace["enter"]

    def _fit(self, k: int, value: Any) -> Any:
        """Return an argument as its parameter takes it.

        Raises:
            RuntimeError: it is of another type.
        """
        parameter = self.unit.parameters[k]
        try:
            return fitted(value, parameter.type)
        except Unfitting as error:
            member = ""
            if isinstance(parameter.type, kinds.UnionType):
                found = type_of_value(value, self.unit.world.class_type) or type(value).__name__
                member = f"Expected a member of {parameter.type} but instead found type {found}\n"
            elif isinstance(parameter.type, kinds.TupleType) and parameter.type.names:
                member = f"(aka NamedTuple({', '.join(parameter.type.names)}))\n"
            elif str(error).startswith("missing") or isinstance(
                parameter.type, kinds.InterfaceType
            ):
                member = f"{error}\n"
            elif parameter.inferred:
                member = (
                    f"Inferred '{parameter.name}' to be of type 'Tensor' because it was not "
                    "annotated with an explicit type.\n"
                )
            raise RuntimeError(
                f"{self.unit.name}() Expected a value of type '{parameter.shown}' for argument "
                f"'{parameter.name}' but instead found type '{type(value).__name__}'.\n"
                f"{member}Position: {k}\nValue: {text_of(value)}\n"
                f"Declaration: {self.unit.declaration()}"
            ) from None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function.

        Raises:
            RuntimeError: the arguments do not fit, or something that it calls fails.
            Error: it raises an exception.
        """
        if ACTIVE:
            recording = follower()
            if recording is not None:
                return recording.call(self.unit, self.is_method, self._called, args, kwargs)
            return timed(self.unit, self._called, args, kwargs)
        try:
            if keeps_branches():
                return self._called(*args, **kwargs)
            return self._enter(*args, **kwargs)
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise
            raise RuntimeError(self._refusal(args, kwargs)) from None

    def _called(self, *args: Any, **kwargs: Any) -> Any:
        try:
            if keeps_branches():
                self._staged = self._staged or self._made(staged=True)
                return self._staged(*args, **kwargs)
            return self._enter(*args, **kwargs)
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise
            raise RuntimeError(self._refusal(args, kwargs)) from None

    def _refusal(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        name, declared = self.unit.name, self.unit.declaration()
        known = [p.name for p in self.unit.parameters]
        for key in kwargs:
            if key not in known:
                return f"{name}() got unexpected keyword argument '{key}'. Declaration: {declared}"
        places = sum(not p.keyword_only for p in self.unit.parameters)
        if len(args) > places:
            return (
                f"{name}() expected at most {places} argument(s) but received {len(args)} "
                f"argument(s). Declaration: {declared}"
            )
        for k, parameter in enumerate(self.unit.parameters):
            given = k < len(args) or parameter.name in kwargs
            if not given and not parameter.has_default:
                return (
                    f"{name}() is missing value for argument '{parameter.name}'. Declaration: "
                    f"{declared}"
                )
        return f"{name}() got an argument twice. Declaration: {declared}"


def _check(k: int, parameter: Parameter) -> str:
    name = parameter.name
    if parameter.type == kinds.TENSOR:
        return f"if not isinstance({name}, _Tensor): {name} = _fit({k}, {name})"
    if parameter.type == kinds.INT:
        wide = f"{_LOW} <= {name} <= {_HIGH}"
        return f"if type({name}) is not int or not {wide}: {name} = _fit({k}, {name})"
    checked: dict[Any, str] = {kinds.FLOAT: "float", kinds.BOOL: "bool", kinds.STR: "str"}
    plain = checked.get(parameter.type)
    if plain is not None:
        return f"if type({name}) is not {plain}: {name} = _fit({k}, {name})"
    return f"{name} = _fit({k}, {name})"
