"""What has been scripted: functions, classes and modules, each once."""

from __future__ import annotations

import ast
import enum
import inspect
import types
from typing import Any

import tangrad
from tangrad import nn
from tangrad_jit.scripting.check.classes import ClassUnit, ClassValue, InterfaceUnit
from tangrad_jit.scripting.check.functions import FunctionValue, Unit
from tangrad_jit.scripting.check.meanings import (
    EnumClass,
    Ignored,
    NamedTupleClass,
    is_context,
    plain_meaning,
)
from tangrad_jit.scripting.check.modules import ModuleUnit
from tangrad_jit.scripting.check.python_names import PythonNames
from tangrad_jit.scripting.check.script_objects import ScriptObjectUnit, is_class_of_objects
from tangrad_jit.scripting.check.traced import TracedCall
from tangrad_jit.scripting.check.values import PythonObject, Value
from tangrad_jit.scripting.source.finding import parse_class, parse_function
from tangrad_jit.scripting.source.places import Place, ScriptError
from tangrad_jit.scripting.tree.nodes import Expr
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.annotations import (
    AnnotationError,
    enum_type,
    named_tuple_type,
    type_of_object,
    type_of_syntax,
)
from tangrad_jit.scripting.types.kinds import ClassType, InterfaceType, ModuleType, Type
from tangrad_jit.tracing.annotations import OVERLOADS, Error
from tangrad_jit.tracing.traced_module import TracedGraph

__all__ = ["World", "modifier_of", "qualified_name"]

# The attribute by which decorators tell what is to become of a function; PyTorch's name.
_MODIFIER = "_torchscript_modifier"


def modifier_of(function: Any) -> str:
    """Return what a decorator has said of a function: "", "ignore", "unused", "export", ..."""
    return str(getattr(function, _MODIFIER, ""))


def qualified_name(obj: Any) -> str:
    """Return the name of a function or class in archives."""
    module = str(getattr(obj, "__module__", "") or "")
    name = str(getattr(obj, "__name__", type(obj).__name__))
    module = "" if module == "__main__" else module.replace("tangrad", "torch", 1)
    return ".".join(["__torch__", *filter(None, module.split(".")), *name.split(".")])


class World:
    """The functions, classes and modules that are scripted."""

    def __init__(self) -> None:
        self._functions: dict[Any, Unit] = {}
        self._classes: dict[Any, Type | None] = {}
        self._modules: dict[Any, list[ModuleUnit]] = {}
        self._class_names: dict[type, str] = {}
        self._taken_names: set[str] = set()

    # --- functions

    def unit_of(self, function: Any) -> Unit:
        """Return the unit of a function of Python.

        Raises:
            ScriptError: it cannot be scripted.
        """
        found = self._functions.get(function)
        if found is None:
            found = self._functions[function] = self.make_unit(function)
        return found

    def make_unit(
        self,
        function: Any,
        owner: Type | None = None,
        name: str = "",
        plain: Type = kinds.TENSOR,
        namespace: Any = None,
        unused: bool = False,
        several: bool = False,
    ) -> Unit:
        """Return a new unit of a function, as a method where it has an owner.

        One that is unused takes anything, as nobody runs it; `several`: `*args` are left out.
        """
        bare = inspect.unwrap(function)
        source, node = parse_function(bare)
        if several:
            node.args.vararg = None
        if unused:
            node.args.vararg = node.args.kwarg = None
            for argument in [*node.args.args, *node.args.kwonlyargs]:
                argument.annotation, argument.type_comment = ast.Name("Any"), None
        defaults = {
            p.name: p.default
            for p in inspect.signature(bare).parameters.values()
            if p.default is not p.empty
        }
        unit = Unit(
            self,
            name or bare.__name__,
            qualified_name(bare),
            source,
            node,
            namespace or PythonNames(bare),
            defaults,
            owner,
            plain,
            vars(bare).get("__annotations__") or bare.__annotations__,
        )
        unit.python_function = bare
        if plain != kinds.ANY and not unused:
            unit.refuse_mutable_defaults()
        return unit

    # --- meanings

    def meaning(self, check: Any, obj: Any, place: Place, name: str, constant: bool) -> Any:
        """Return what an object of Python means.

        Raises:
            ScriptError: it cannot be scripted.
        """
        found = plain_meaning(check, obj, place, name, constant)
        if found is not None:
            return found
        scripted = getattr(obj, "script_unit", None)
        if isinstance(scripted, Unit):
            return FunctionValue([scripted])
        if isinstance(obj, type):
            return self._class_meaning(obj, place)
        if isinstance(obj, (types.FunctionType, types.MethodType)):
            return self.function_meaning(obj)
        traced = getattr(obj, "_traced", None)
        if isinstance(traced, TracedGraph):
            return TracedCall(obj, obj.name, traced)
        return PythonObject(obj)

    def function_meaning(self, function: Any) -> Value:
        """Return what a function of Python means: scripted, one of several, or ignored."""
        inner = getattr(function, "__original_fn", None)
        if inner is not None:  # what `script_if_tracing` was given
            return self.function_meaning(inner)
        if modifier_of(function) in ("ignore", "unused"):
            return self.ignored(function)
        several = self.overloads_of(function)
        return FunctionValue(several or [self.unit_of(function)])

    def overloads_of(self, function: Any, owner: Type | None = None) -> list[Unit]:
        """Return the units of a function's overloads; none where it has none."""
        declared = OVERLOADS.get((function.__module__, function.__qualname__), [])
        if function in declared:
            what = "function" if owner is None else "method"
            raise ScriptError(
                f'Implementation for the {what} "{function.__qualname__}" is missing. Please make '
                "sure a definition is provided and defined after all overload declarations."
            )
        return [self._overloaded(one, function, owner) for one in declared]

    def _overloaded(self, declared: Any, function: Any, owner: Type | None) -> Unit:
        """Return the unit of an overload: its signature, and the function's body."""
        found = self._functions.get((declared, function, owner))
        if found is None:
            found = self.make_unit(declared, owner)
            body = self.make_unit(function, owner, plain=kinds.ANY)
            found.node.body, found.source = body.node.body, body.source
            for parameter, other in zip(found.parameters, body.parameters, strict=False):
                if other.has_default and not parameter.has_default:
                    parameter.default = other.default
            self._functions[declared, function, owner] = found
        return found

    def ignored(self, function: Any, owner: Type | None = None) -> Value:
        """Return a function that stays Python's; one that is unused raises when it is called."""
        unused = modifier_of(function) == "unused"
        rest = any(
            p.kind == p.VAR_POSITIONAL
            for p in inspect.signature(inspect.unwrap(function)).parameters.values()
        )
        unit = self.make_unit(function, owner, unused=unused, several=rest)
        returned = unit.declared if unit.declared is not None else kinds.TENSOR
        if unused and not rest:
            # A program that raises, so that archives hold it.
            text = f"raise RuntimeError('{unit.name} {_UNUSED}')"
            unit.node.body = [ast.copy_location(s, unit.node) for s in ast.parse(text).body]
            for node in ast.walk(unit.node.body[0]):
                ast.copy_location(node, unit.node)
            unit.declared = returned
            return FunctionValue([unit])
        callee: Any = _refuse_unused(unit.name) if unused else function
        return Ignored(callee, unit.name, returned, unit.bind, len(unit.parameters) if rest else -1)

    def _class_meaning(self, cls: type, place: Place) -> Value:
        if issubclass(cls, BaseException):
            return PythonObject(cls)
        try:
            kind = self.class_type(cls)
        except AnnotationError as error:
            raise ScriptError(str(error), place) from None
        if isinstance(kind, kinds.TupleType):
            return NamedTupleClass(kind)
        if isinstance(kind, kinds.EnumType):
            return EnumClass(kind)
        if isinstance(kind, ClassType):
            return ClassValue(kind)
        return PythonObject(cls)

    # --- classes

    def class_type(self, cls: Any) -> Type | None:
        """Return the type of instances of a class of Python, or None where it is not scripted.

        Raises:
            ScriptError: it cannot be.
        """
        if not isinstance(cls, type):
            return None
        if cls not in self._classes:
            self._classes[cls] = None
            try:
                self._classes[cls] = self._type_of_class(cls)
            except BaseException:
                self._classes.pop(cls, None)
                raise
        return self._classes[cls]

    def _type_of_class(self, cls: type) -> Type | None:
        if issubclass(cls, tuple) and hasattr(cls, "_fields"):
            names = PythonNames(
                namespace=vars(inspect.getmodule(cls)) if inspect.getmodule(cls) else {}
            )
            return named_tuple_type(
                cls,
                self.name_of_class(cls),
                lambda a: type_of_object(a, self.class_type, lambda t: self.annotated(t, names)),
            )
        if issubclass(cls, enum.Enum):
            return enum_type(cls, self.name_of_class(cls))
        if issubclass(cls, (nn.Module, BaseException, tangrad.Tensor)):
            return None
        if is_class_of_objects(cls):
            unit = ScriptObjectUnit(self, cls)
            self._classes[cls] = unit.type
            unit.check()
            return unit.type
        top = cls.__module__.split(".")[0]
        if is_context(cls) or top in ("builtins", "typing") or top.startswith("tangrad"):
            return None
        return self.script_class(cls) if _is_compilable(cls) else None

    def knows_class(self, cls: Any) -> bool:
        """Return whether a class has been scripted, or has a type of its own."""
        return self._classes.get(cls) is not None or (
            issubclass(cls, (tuple, enum.Enum)) and self.class_type(cls) is not None
        )

    def name_of_class(self, cls: type) -> str:
        """Return the name of a class in archives, which no other class has.

        Classes of one name in a module are told apart as PyTorch does it.
        """
        found = self._class_names.get(cls)
        if found is None:
            plain = qualified_name(cls)
            prefix, _, last = plain.rpartition(".")
            found, k = plain, 0
            while found in self._taken_names:
                found = f"{prefix}.___torch_mangle_{k}.{last}"
                k += 1
            self._taken_names.add(found)
            self._class_names[cls] = found
        return found

    def annotated(self, text: str, names: PythonNames) -> Type:
        """Return the type of a postponed annotation.

        Raises:
            AnnotationError: it means none.
        """
        try:
            node = ast.parse(text.strip(), mode="eval").body
        except SyntaxError:
            raise AnnotationError(f"Unknown type name '{text}'") from None
        return type_of_syntax(node, names.annotation, self.class_type)

    def script_class(self, cls: type, more: Any = None) -> ClassType:
        """Script a class, and return the type of its instances.

        Args:
            cls: the class.
            more: the names that are seen where it is made.

        Raises:
            ScriptError: it cannot be scripted.
        """
        known = self._classes.get(cls)
        if isinstance(known, ClassType):
            return known
        source, node = parse_class(cls)
        unit = ClassUnit(self, cls, self.name_of_class(cls), source, node, more)
        self._classes[cls] = unit.type
        try:
            unit.check()
        except BaseException:
            self._classes.pop(cls, None)
            raise
        return unit.type

    def script_interface(self, cls: type) -> InterfaceType:
        """Script an interface, and return its type."""
        source, node = parse_class(cls)
        unit = InterfaceUnit(self, cls, self.name_of_class(cls), source, node)
        self._classes[cls] = unit.type
        unit.check()
        return unit.type

    def entered(self, check: Any, context: Expr, place: Place) -> Type:
        """Return the type of what a context gives.

        Raises:
            ScriptError: it is no context.
        """
        if context.type == kinds.ANY:
            return kinds.NONE
        if isinstance(context.type, ClassType):
            methods = context.type.unit.methods
            if "__enter__" in methods and "__exit__" in methods:
                returned: Type = methods["__enter__"].returned
                methods["__exit__"].check()
                return returned
        raise ScriptError(
            f"With item expression must return an object: {context.type} does not define "
            "__enter__ and __exit__ methods",
            place,
        )

    # --- modules

    def module_type(self, module: nn.Module) -> ModuleType:
        """Return the type that a module has in common with others of the same attributes.

        Raises:
            ScriptError: it cannot be scripted.
        """
        actual = module.__dict__.get("_actual_script_module", module)
        if isinstance(getattr(actual, "script_unit", None), ModuleUnit):
            scripted: ModuleType = actual.script_unit.type
            return scripted
        unit = ModuleUnit(self, module)
        known = self._modules.setdefault(type(module), [])
        for other in known:
            if other.is_same(unit):
                return other.type
        known.append(unit)
        return unit.type


def _is_compilable(cls: type) -> bool:
    """Return whether a class may be scripted without being told to: it is Python, and of value."""
    if issubclass(cls, (tuple, list, dict)) or modifier_of(cls) in ("ignore", "unused"):
        return False
    members = [getattr(cls, name, None) for name in vars(cls)]
    return all(hasattr(one, "__code__") for one in members if inspect.isroutine(one))


_UNUSED = "is annotated to be ignored and cannot be run: it is decorated with @unused"


def _refuse_unused(name: str) -> Any:
    def unused(*args: Any) -> Any:
        raise Error(f"{name} {_UNUSED}")

    unused.refuses = f"{name} is decorated with @unused"  # type: ignore[attr-defined]
    return unused
