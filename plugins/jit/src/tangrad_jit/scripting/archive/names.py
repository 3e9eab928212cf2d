"""What names mean in the code of an archive: a closed table, in which no code of Python is."""

from __future__ import annotations

import ast
import math
import typing
from collections.abc import Callable, Sequence
from typing import Any

import tangrad
from tangrad.backends.cpu import get_cpu_capability
from tangrad.plugin import find_op
from tangrad_jit.scripting.archive.inner_ops import INNER_OPS, SEVERAL
from tangrad_jit.scripting.archive.upgraders import upgraded
from tangrad_jit.scripting.check.builtins import choose_builtin, is_builtin, to_type
from tangrad_jit.scripting.check.classes import ClassValue
from tangrad_jit.scripting.check.forms import NAMED_FORMS, RawForm
from tangrad_jit.scripting.check.functions import FunctionValue
from tangrad_jit.scripting.check.meanings import EnumClass, NamedTupleClass, Op
from tangrad_jit.scripting.check.script_objects import class_of_name
from tangrad_jit.scripting.check.tensor_table import ATTRIBUTES
from tangrad_jit.scripting.check.values import Value
from tangrad_jit.scripting.source.places import Place, ScriptError
from tangrad_jit.scripting.tree.nodes import Apply, Builtin, Const, Convert, Expr, GetAttr, OpCall
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.annotations import AnnotationError
from tangrad_jit.scripting.types.kinds import OptionalType, TupleType, Type

__all__ = ["ArchiveNames"]

_TYPES: dict[str, Any] = {
    "Tensor": tangrad.Tensor,
    "int": int,
    "float": float,
    "complex": complex,
    "bool": bool,
    "str": str,
    "NoneType": None,
    "None": None,
    "Any": Any,
    "Device": tangrad.device,
    "Generator": tangrad.Generator,
    "number": kinds.NUMBER,
    "Scalar": kinds.NUMBER,
    "Layout": int,
    "MemoryFormat": int,
    **{name: getattr(typing, name) for name in ("List", "Dict", "Tuple", "Optional", "Union")},
    "Final": typing.Final,
}
_FORMS = (
    "range enumerate zip len list tuple dict annotate unchecked_cast isinstance hasattr getattr "
    "print int float bool complex str chr ord hex oct bin abs min max sum any all round divmod "
    "pow sorted hash fork wait reversed"
).split()


class ArchiveNames:
    """Find what names mean in an archive.

    Args:
        find: qualified name -> what the archive's code defines under it, or None.
        constants: the tensors of the archive.
        version: of the archive.
        classes: class of Python -> type, or None.
    """

    #: Functions inside of functions are closures for `fork`.
    has_closures = True
    #: Dtypes are numbers there, also as members of lists.
    has_codes = True

    def __init__(
        self,
        find: Callable[[str], Any],
        constants: Sequence[Any],
        version: int,
        classes: Callable[[Any], Any],
    ) -> None:
        self.version, self._classes = version, classes
        self._find, self._constants = find, constants
        self._roots: dict[str, Any] = {
            "torch": _Torch("aten"),
            "ops": _Namespaces(),
            "__torch__": _Package("__torch__", find),
            "CONSTANTS": _Constants(constants),
            "uninitialized": RawForm("uninitialized", _uninitialized),
            **{name: NAMED_FORMS[name] for name in _FORMS if name in NAMED_FORMS},
        }

    def meaning(self, check: Any, name: str, place: Place) -> Any:
        """Return what a name means, or None."""
        if name in ("inf", "nan"):
            return Const(place, kinds.FLOAT, math.inf if name == "inf" else math.nan)
        return self._roots.get(name)

    def annotation(self, name: str) -> Any:
        """Return what a dotted name in an annotation means.

        Raises:
            AnnotationError: nothing.
        """
        if name.startswith("__torch__."):
            found = self._find(name) or self._classes(class_of_name(name))
            kind = getattr(found, "type", found)
            if isinstance(kind, Type):
                return kind
        if name in _TYPES:
            return _TYPES[name]
        raise AnnotationError(f"Unknown type name '{name}'")

    def find(self, name: str) -> Any:
        """Return nothing: archives have no Python."""
        return None


def _uninitialized(check: Any, node: ast.Call, hint: Any, place: Place) -> Expr:
    return Const(place, check.annotation(node.args[0]), None)


class _Constants(Value):
    """`CONSTANTS`: its attributes are tensors."""

    def __init__(self, constants: Sequence[Any]) -> None:
        self.constants = constants

    def __str__(self) -> str:
        return "CONSTANTS"

    def attribute(self, check: Any, name: str, place: Place) -> Any:
        number = name[1:]
        if name[:1] != "c" or not number.isdigit() or int(number) >= len(self.constants):
            raise ScriptError(f"the archive has no constant {name}", place)
        value = self.constants[int(number)]
        if isinstance(value, tangrad.Tensor):
            return Const(place, kinds.TENSOR, value)
        return check.constant(value, place)


class _Package(Value):
    """A part of the names below `__torch__`."""

    def __init__(self, name: str, find: Callable[[str], Any]) -> None:
        self.name, self.find = name, find

    def __str__(self) -> str:
        return self.name

    def attribute(self, check: Any, name: str, place: Place) -> Any:
        qualified = f"{self.name}.{name}"
        found = self.find(qualified)
        if found is None or isinstance(found, kinds.ModuleType):
            # Hooks stand below the name of the module's class.
            return _Package(qualified, self.find)
        kind = getattr(found, "type", found)
        if isinstance(kind, kinds.ClassType):
            return ClassValue(kind)
        if isinstance(kind, TupleType):
            return NamedTupleClass(kind)
        if isinstance(kind, kinds.EnumType):
            return EnumClass(kind)
        return FunctionValue([found])

    def call(
        self, check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place
    ) -> Expr | Value:
        raise ScriptError(f"the archive has no function {self.name}", place)


class _Namespaces(Value):
    """`ops`: namespaces of ops."""

    def __str__(self) -> str:
        return "ops"

    def attribute(self, check: Any, name: str, place: Place) -> Any:
        return _Torch(name)


class _Torch(Value):
    """A namespace of ops."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace

    def __str__(self) -> str:
        return self.namespace

    def attribute(self, check: Any, name: str, place: Place) -> Any:
        if self.namespace in ("aten", "prim"):
            return _ArchiveOp(name)
        try:
            found = getattr(getattr(tangrad.ops, self.namespace), name)
        except (AttributeError, ImportError, RuntimeError):
            found = None
        if found is None or not callable(found):
            raise ScriptError(
                f"there is no op {self.namespace}::{name}; install the package that has it", place
            )
        return _PackageOp(f"{self.namespace}::{name}", getattr(found, "default", found))


class _PackageOp(Op):
    """An op of another package, which may say of what class its results are."""

    def call(
        self, check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place
    ) -> Expr | Value:
        made = super().call(check, args, kwargs, place)
        cls = getattr(self.callee, "script_result", None)
        kind = None if cls is None else check.world.class_type(cls)
        if kind is not None and isinstance(made, OpCall):
            made.type = kind
        return made


class _ArchiveOp(Value):
    """An op by the name that PyTorch's graphs give it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return f"aten::{self.name}"

    def call(
        self, check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place
    ) -> Expr | Value:
        given = [check.expr_of(arg, place) for arg in args]
        named = {key: check.expr_of(value, place) for key, value in kwargs.items()}
        made = upgraded(check, self.name, check.names.version, given, named, place)
        if made is not None:
            return made
        special = _SPECIAL.get(self.name)
        if special is not None:
            made = special(check, given, named, place)
            if made is not None:
                return made
        if is_builtin(self.name):
            found = choose_builtin(self.name, given, named, place, convert=False)
            if found is not None:
                return found
        if len(given) == 1 and self.name in ATTRIBUTES and given[0].type == kinds.TENSOR:
            return check.attribute_of(given[0], self.name, place)
        named.pop("pin_memory", None)
        if self.name in SEVERAL:
            kind = TupleType([kinds.TENSOR] * SEVERAL[self.name])
            function = _callee(self.name)
            return OpCall(place, kind, f"aten::{self.name}", function, given, named, True)
        callee = _callee(self.name)
        call: Expr = check.call_named_op(self.name, given, named, place, callee=callee)
        if isinstance(call, OpCall):
            call.inner = True
        return call


# What operators of tensors are called by the functions here.
_OPERATORS = {
    f"__{prefix}{name}__": f"bitwise_{function}{'_' if prefix else ''}"
    for prefix in ("", "i")
    for name, function in (
        ("and", "and"),
        ("or", "or"),
        ("xor", "xor"),
        ("lshift", "left_shift"),
        ("rshift", "right_shift"),
    )
}


def _callee(name: str) -> Any:
    name = _OPERATORS.get(name, name)
    if name in INNER_OPS:
        return INNER_OPS[name]
    found = getattr(tangrad, name, None)
    if callable(found) and not isinstance(found, type):
        return getattr(found, "__wrapped__", found) if not hasattr(found, "definition") else found
    try:
        return find_op(name)
    except AttributeError:
        return None


def _to(check: Any, args: list[Expr], kwargs: dict[str, Expr], place: Place) -> Expr:
    rest = args[1:]
    while rest and rest[-1].type == kinds.NONE:
        rest.pop()
    given, seen = [args[0]], False
    for arg in rest:
        bare = arg.type.element if isinstance(arg.type, OptionalType) else arg.type
        if bare == kinds.NONE and not seen:
            continue
        if bare == kinds.INT and seen:
            kwargs = {**kwargs, "memory_format": arg}
            continue
        seen = seen or bare == kinds.INT
        given.append(arg)
    kept = {
        key: value
        for key, value in kwargs.items()
        if value.type != kinds.NONE and key not in ("layout", "pin_memory")
    }
    found: Expr = check.convert_tensor(given, kept, place)
    return found


def _raise(check: Any, args: list[Expr], kwargs: dict[str, Expr], place: Place) -> Expr:
    template = "rt_fail(_0)" if len(args) == 1 else "rt_fail(_0, _1)"
    check.scope.top.exits = False
    return Apply(place, kinds.NONE, Builtin("RaiseException", template, "prim"), args)


def _unwrapped(check: Any, args: list[Expr], kwargs: dict[str, Expr], place: Place) -> Expr:
    found: Expr = NAMED_FORMS["unwrap_optional"].call(check, args, {}, place)  # type: ignore[assignment]
    return found


def _waited(check: Any, args: list[Expr], kwargs: dict[str, Expr], place: Place) -> Expr:
    found: Expr = NAMED_FORMS["wait"].call(check, args, {}, place)  # type: ignore[assignment]
    return found


def _size_of_tensor(check: Any, args: list[Expr], kwargs: Any, place: Place) -> Expr | None:
    if len(args) == 1 and args[0].type == kinds.TENSOR:
        return choose_builtin("size", args, {}, place)
    return None


def _text(check: Any, args: list[Expr], kwargs: dict[str, Expr], place: Place) -> Expr | None:
    return Apply(place, kinds.NONE, Builtin("warn", "rt_warn(_0)"), args[:1])


def _tensor(check: Any, args: list[Expr], kwargs: dict[str, Expr], place: Place) -> Expr:
    dtype = kwargs.get("dtype")
    named = {k: v for k, v in kwargs.items() if v.type != kinds.NONE}
    if dtype is not None and dtype.type == kinds.INT:
        named["dtype"] = Convert(place, kinds.DTYPE, dtype, "dtype of code")
    return OpCall(place, kinds.TENSOR, "aten::tensor", tangrad.tensor, args[:1], named)


def _quantize(check: Any, args: list[Expr], kwargs: dict[str, Expr], place: Place) -> Expr | None:
    if args and args[-1].type == kinds.INT:
        args[-1] = Convert(place, kinds.DTYPE, args[-1], "dtype of code")
    return None


def _device(check: Any, args: list[Expr], kwargs: dict[str, Expr], place: Place) -> Expr | None:
    if args and args[0].type == kinds.STR:
        return Apply(place, kinds.DEVICE, Builtin("device", "rt_device(_0)"), args[:1])
    return None


def _of_layout(check: Any, args: list[Expr], kwargs: dict[str, Expr], place: Place) -> Expr:
    return GetAttr(place, kinds.LAYOUT, args[0], "layout")


def _same(check: Any, args: list[Expr], kwargs: dict[str, Expr], place: Place) -> Expr | None:
    return args[0] if len(args) == 1 else None


def _grad_enabled(check: Any, args: list[Expr], kwargs: dict[str, Expr], place: Place) -> Expr:
    return OpCall(place, kinds.BOOL, "aten::is_grad_enabled", tangrad.is_grad_enabled, [])


def _cpu_capability(check: Any, args: list[Expr], kwargs: dict[str, Expr], place: Place) -> Expr:
    return OpCall(place, kinds.STR, "aten::_get_cpu_capability", get_cpu_capability, [])


def _set_grad(check: Any, args: list[Expr], kwargs: dict[str, Expr], place: Place) -> Expr:
    builtin = Builtin("set_grad_enabled", "rt_set_grad_enabled(_0)")
    return Apply(place, kinds.NONE, builtin, args)


def _of_codes(name: str) -> Callable[..., Any]:
    """Return what compares a dtype with the number that archives have for one."""

    def make(check: Any, args: list[Expr], kwargs: Any, place: Place) -> Expr | None:
        known = next((arg.type for arg in args if arg.type in kinds.ENUM_LIKE), None)
        if known is None:
            return None
        given = [to_type(arg, known) or arg for arg in args]
        return choose_builtin(name, given, {}, place)

    return make


_SPECIAL: dict[str, Callable[..., Any]] = {
    "eq": _of_codes("eq"),
    "ne": _of_codes("ne"),
    "to": _to,
    "wait": _waited,
    "is_grad_enabled": _grad_enabled,
    "set_grad_enabled": _set_grad,
    "_get_cpu_capability": _cpu_capability,
    "RaiseException": _raise,
    "_unwrap_optional": _unwrapped,
    "unchecked_unwrap_optional": _unwrapped,
    "size": _size_of_tensor,
    "warn": _text,
    "tensor": _tensor,
    "as_tensor": _tensor,
    "quantize_per_tensor": _quantize,
    "device": _device,
    "layout": _of_layout,
    "Size": _same,
}
