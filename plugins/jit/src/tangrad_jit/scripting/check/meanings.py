"""What objects of Python mean in the language, beside functions and classes that are scripted."""

from __future__ import annotations

import enum
import inspect
import types
from collections.abc import Sequence
from typing import Any

import tangrad
from tangrad_jit.scripting.check.builtins import to_type
from tangrad_jit.scripting.check.forms import form_of
from tangrad_jit.scripting.check.values import PythonObject, Value
from tangrad_jit.scripting.source.places import Place, ScriptError
from tangrad_jit.scripting.tree.nodes import Const, Expr, MakeTuple, OpCall, PythonCall
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.annotations import type_of_value
from tangrad_jit.scripting.types.kinds import EnumType, TupleType, Type

__all__ = ["ContextClass", "EnumClass", "Ignored", "NamedTupleClass", "Op", "plain_meaning"]


class Op(Value):
    """An op of the core, of another package, or a function of the library."""

    def __init__(self, name: str, callee: Any) -> None:
        self.name, self.callee = name, callee

    def __str__(self) -> str:
        return f"op {self.name}"

    def attribute(self, check: Any, name: str, place: Place) -> Any:
        """Return an overload, which is the op itself."""
        found = getattr(self.callee, name, None)
        if found is None:
            raise ScriptError(f"the op {self.name} has no overload {name}", place)
        return check.meaning(found, place, self.name)

    def call(
        self, check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place
    ) -> Expr | Value:
        """Call it."""
        given = [check.expr_of(arg, place) for arg in args]
        named = {key: check.expr_of(value, place) for key, value in kwargs.items()}
        found: Expr = check.call_named_op(self.name, given, named, place, callee=self.callee)
        return found


class Ignored(Value):
    """A function that Python runs as it is.

    Args:
        function: the function.
        name: of it.
        parameters: as of a scripted function.
        returned: the type of what it returns.
        bind: binds arguments.
        named: how many of its parameters have a name, where it takes more by place, or -1.
    """

    def __init__(
        self, function: Any, name: str, returned: Type, bind: Any, named: int = -1
    ) -> None:
        self.function, self.name, self.returned, self.bind = function, name, returned, bind
        self.named = named

    def __str__(self) -> str:
        return f"ignored function {self.name}"

    def call(
        self, check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place
    ) -> Expr | Value:
        """Call it."""
        count = len(args) if self.named < 0 else self.named
        given = self.bind(check, args[:count], kwargs, place)
        given += [check.expr_of(arg, place) for arg in args[count:]]
        return PythonCall(place, self.returned, self.function, self.name, given)


class ContextClass(Value):
    """A class of contexts of the library: `no_grad`, `autocast`, `record_function`."""

    def __init__(self, cls: Any) -> None:
        self.cls = cls

    def __str__(self) -> str:
        return f"context {self.cls.__name__}"

    def call(
        self, check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place
    ) -> Expr | Value:
        """Make the context."""
        given = [check.expr_of(arg, place) for arg in args]
        named = {key: check.expr_of(value, place) for key, value in kwargs.items()}
        return PythonCall(place, kinds.ANY, self.cls, self.cls.__name__, given, named)


class NamedTupleClass(Value):
    """A class of named tuples."""

    def __init__(self, kind: TupleType) -> None:
        self.kind = kind

    def __str__(self) -> str:
        return str(self.kind)

    def call(
        self, check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place
    ) -> Expr | Value:
        """Make a named tuple."""
        rest, left = list(args), dict(kwargs)
        given = []
        for name, kind in zip(self.kind.names, self.kind.elements, strict=True):
            if rest:
                value = check.expr_of(rest.pop(0), place)
            elif name in left:
                value = check.expr_of(left.pop(name), place)
            elif name in self.kind.defaults:
                value = check.constant(self.kind.defaults[name], place)
            else:
                raise ScriptError(f"{self.kind}: Argument {name} not provided", place)
            fitted = to_type(value, kind)
            if fitted is None:
                annotated = inspect.get_annotations(self.kind.python_class)
                inferred = "" if name in annotated else " (inferred)"
                raise ScriptError(
                    f"Expected a value of type '{kind}{inferred}' for argument '{name}' but "
                    f"instead found type '{value.type}'.",
                    place,
                )
            given.append(fitted)
        if rest or left:
            raise ScriptError(f"{self.kind} has {len(self.kind.names)} fields", place)
        return MakeTuple(place, self.kind, given)


class EnumClass(Value):
    """A class of enums: its members, and what loops over them go over."""

    def __init__(self, kind: EnumType) -> None:
        self.kind = kind

    def __str__(self) -> str:
        return str(self.kind)

    def _member(self, member: Any, place: Place) -> Expr:
        return Const(place, self.kind, member)

    def attribute(self, check: Any, name: str, place: Place) -> Any:
        """Return a member."""
        members = self.kind.python_class.__members__
        if name not in members:
            raise ScriptError(f"type object '{self.kind}' has no attribute '{name}'", place)
        return self._member(members[name], place)

    def members(self, check: Any, place: Place) -> list[Any]:
        """Return all members."""
        return [self._member(member, place) for member in self.kind.python_class]


def is_context(cls: Any) -> bool:
    """Return whether a class of the library makes contexts that scripts may enter."""
    if not isinstance(cls, type):
        return False
    known = (
        *(tangrad.no_grad, tangrad.enable_grad, tangrad.inference_mode),
        *(tangrad.set_grad_enabled, tangrad.autocast),
    )
    if cls in known or issubclass(cls, tangrad.autocast):
        return True
    return cls.__name__ in ("record_function", "strict_fusion") and cls.__module__.startswith(
        "tangrad"
    )


_CONSTANTS = (
    *(tangrad.dtype, tangrad.layout, tangrad.memory_format, tangrad.device, tangrad.qscheme),
    *(bool, int, float, complex, str, type(None)),
)


def plain_meaning(check: Any, obj: Any, place: Place, name: str, constant: bool) -> Any:
    """Return what an object means that is neither scripted nor to be, or None.

    Args:
        check: who asks.
        obj: the object.
        place: where.
        name: the name that led to it.
        constant: whether it is part of a module: its numbers are constants then.
    """
    if isinstance(obj, (Value, Expr)):
        return obj
    form = form_of(obj)
    if form is not None:
        return form
    if obj is Ellipsis:
        return Const(place, kinds.ANY, obj)
    if isinstance(obj, _CONSTANTS[:5]) or (constant and type(obj) in _CONSTANTS[5:]):
        return check.constant(obj, place)
    if isinstance(obj, types.ModuleType) or type(obj).__name__ in ("_Ops", "OpNamespace"):
        return PythonObject(obj)
    if constant and type(obj) in (tuple, list) and type_of_value(obj) is not None:
        return check.constant(obj, place)
    if is_context(obj):
        return ContextClass(obj)
    if type(obj).__name__ == "Overload":
        obj = obj.overloadpacket
    if hasattr(obj, "definition") or type(obj).__name__ in ("Packet", "Overridable"):
        return Op(getattr(obj, "__name__", name) or name, getattr(obj, "__wrapped__", obj))
    if type(obj).__name__ == "OpOverloadPacket" and len(obj.overloads()) == 1:
        obj = getattr(obj, obj.overloads()[0])  # its one signature says what it takes
    if hasattr(obj, "_schema") or type(obj).__name__ in ("OpOverloadPacket", "OpOverload"):
        schema = getattr(obj, "_schema", None)
        # What a package has declared and not defined has no schema; its text is "package.name".
        return Op(str(obj).replace(".", "::", 1) if schema is None else str(schema.name), obj)
    if isinstance(obj, enum.Enum):
        return check.constant(obj, place)
    module = getattr(obj, "__module__", None) or ""
    if module == "tangrad.nn.init":
        return PythonObject(obj)  # these write what they are given, outside of gradients
    if isinstance(obj, types.FunctionType) and module.split(".")[0] == "tangrad":
        return Op(obj.__name__, obj)
    if isinstance(obj, (types.BuiltinFunctionType,)) and module.startswith("tangrad"):
        return OpFunction(obj)
    return None


class OpFunction(Value):
    """A function of the compiled core that is no op, such as `is_grad_enabled`."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __str__(self) -> str:
        return f"function {self.function.__name__}"

    def call(
        self, check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place
    ) -> Expr | Value:
        """Call it; its result is a bool where its name asks a question, else a dtype."""
        name = self.function.__name__
        kinds_by_name = {"promote_types": kinds.DTYPE, "result_type": kinds.DTYPE}
        kind = kinds_by_name.get(name, kinds.BOOL if name.startswith(("is_", "can_")) else None)
        if kind is None:
            raise ScriptError(f"{name} cannot be called in scripts", place)
        given = [check.expr_of(arg, place) for arg in args]
        return OpCall(place, kind, f"aten::{name}", self.function, given, {})
