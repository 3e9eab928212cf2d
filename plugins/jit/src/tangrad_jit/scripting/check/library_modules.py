"""Modules of `tangrad.nn` in scripts: they run as they are, and what they return is known here."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from tangrad import nn
from tangrad_jit.scripting.source.places import Place, ScriptError
from tangrad_jit.scripting.tree.nodes import Expr, Invoke, PythonCall
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.kinds import (
    ListType,
    OptionalType,
    TupleType,
    Type,
    is_subtype,
    optional_of,
)
from tangrad_jit.tracing.script_module import ScriptModule

__all__ = ["LibraryMethod", "is_container", "is_library", "result_of_library"]

_TENSOR, _MAYBE = kinds.TENSOR, optional_of(kinds.TENSOR)
_PAIR = TupleType([_TENSOR, _TENSOR])
_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)

# Classes whose results are not one tensor, and arguments that are none.
_RESULTS: dict[str, Type] = {
    "LSTM": TupleType([_TENSOR, _PAIR]),
    "GRU": _PAIR,
    "RNN": _PAIR,
    "LSTMCell": _PAIR,
    "MultiheadAttention": TupleType([_TENSOR, _MAYBE]),
}
_ARGUMENTS: dict[tuple[str, str], Type] = {
    ("LSTM", "hx"): optional_of(_PAIR),
    ("LSTMCell", "hx"): optional_of(_PAIR),
    ("MaxUnpool1d", "output_size"): optional_of(ListType(kinds.INT)),
    ("MaxUnpool2d", "output_size"): optional_of(ListType(kinds.INT)),
    ("MaxUnpool3d", "output_size"): optional_of(ListType(kinds.INT)),
    **{(f"ConvTranspose{d}d", "output_size"): optional_of(ListType(kinds.INT)) for d in (1, 2, 3)},
    **{(f"{kind}Functional.cat", "x"): ListType(_TENSOR) for kind in ("Float", "FXFloat", "Q")},
}
# What modules for sums and products are called by.
_FUNCTIONALS = ("FloatFunctional", "FXFloatFunctional", "QFunctional")
_METHODS = ("add", "add_relu", "add_scalar", "cat", "matmul", "mul", "mul_scalar")


def is_library(module: nn.Module) -> bool:
    """Return whether a module's forward is one of `tangrad.nn`, or of a package of ours."""
    forward = type(module).forward
    # What has no forward is of whoever has written its class.
    is_class = isinstance(module, (*_CONTAINERS, ScriptModule)) or forward is nn.Module.forward
    made_by = type(module) if is_class else forward
    return str(made_by.__module__).split(".")[0] in ("tangrad", "tangrad_quantization")


def is_container(module: nn.Module) -> bool:
    """Return whether a module is a container whose members are scripted one by one."""
    return isinstance(module, _CONTAINERS) and (
        is_library(module) or "forward" not in type(module).__dict__
    )


def result_of_library(cls: type) -> Type:
    """Return the type of what the forward of a class of the library returns."""
    return _RESULTS.get(cls.__name__, _TENSOR)


def is_packed(value: Expr) -> bool:
    """Return whether a value is a packed sequence, which recurrent modules take, too."""
    cls = getattr(value.type, "python_class", None)
    return cls is nn.utils.rnn.PackedSequence


class LibraryMethod:
    """A method of a module of the library."""

    def __init__(self, cls: type, name: str) -> None:
        self.cls, self.name = cls, name

    def call(
        self,
        check: Any,
        owner: Expr,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        place: Place,
        function: Any = None,
    ) -> Expr:
        """Return a call of it: of the owner's, or of a function where one is given.

        Raises:
            ScriptError: scripts call forward only, or the arguments do not fit.
        """
        is_sum = self.cls.__name__ in _FUNCTIONALS and self.name in _METHODS
        if self.name != "forward" and not is_sum:
            raise ScriptError(
                f"{self.cls.__name__}.{self.name} is not called by scripts; its forward is", place
            )
        rest = [check.expr_of(arg, place) for arg in args]
        left = {key: check.expr_of(value, place) for key, value in kwargs.items()}
        given: list[Expr] = []
        result = result_of_library(self.cls)
        method = getattr(self.cls, self.name)
        for parameter in list(inspect.signature(method).parameters.values())[1:]:
            wanted = self._type_of(parameter)
            if rest:
                value = rest.pop(0)
            elif parameter.name in left:
                value = left.pop(parameter.name)
            elif parameter.default is not parameter.empty:
                given.append(check.constant(parameter.default, place))
                continue
            else:
                raise ScriptError(
                    f"{self.cls.__name__}.{self.name}: Argument {parameter.name} not provided.",
                    place,
                )
            if parameter.name == "input" and is_packed(value) and isinstance(result, TupleType):
                given.append(value)
                result = TupleType([value.type, *result.elements[1:]])
                continue
            given.append(self._fitted(check, value, wanted, parameter.name, place))
        if rest or left:
            raise ScriptError(f"{self.cls.__name__}.{self.name} takes no more arguments", place)
        if function is not None:
            return PythonCall(place, result, function, self.name, [owner, *given])
        return Invoke(place, result, owner, self.name, None, given)

    def _fitted(self, check: Any, value: Expr, wanted: Type, name: str, place: Place) -> Expr:
        if isinstance(wanted, OptionalType) and is_subtype(value.type, wanted):
            return value
        found: Expr = check.convert(
            value, wanted, place, f"the argument {name} of {self.cls.__name__}.{self.name}"
        )
        return found

    def _type_of(self, parameter: inspect.Parameter) -> Type:
        owner = self.cls.__name__ + f".{self.name}" * (self.name != "forward")
        known = _ARGUMENTS.get((owner, parameter.name))
        if known is not None:
            return known
        text = str(parameter.annotation).removesuffix(" | None")
        plain: Type = {"bool": kinds.BOOL, "int": kinds.INT, "float": kinds.FLOAT}.get(
            text, _TENSOR
        )
        return optional_of(plain) if parameter.default is None else plain
