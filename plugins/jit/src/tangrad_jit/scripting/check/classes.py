"""Scripted classes and interfaces."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import sys
from collections import ChainMap
from collections.abc import Sequence
from typing import Any

from tangrad import nn
from tangrad_jit.scripting.check.functions import FunctionValue, Unit
from tangrad_jit.scripting.check.generated import methods_of_dataclass
from tangrad_jit.scripting.check.python_names import PythonNames
from tangrad_jit.scripting.check.values import Bound, Value
from tangrad_jit.scripting.source.places import Place, ScriptError, Source, place_of
from tangrad_jit.scripting.tree.nodes import Const, Do, Expr, GetAttr, Invoke, New, Node, SetAttr
from tangrad_jit.scripting.types.annotations import AnnotationError, type_of_object
from tangrad_jit.scripting.types.kinds import (
    ClassType,
    InterfaceType,
    ModuleType,
    Type,
    holds,
    is_subtype,
)

__all__ = ["ClassUnit", "ClassValue", "InterfaceUnit"]


class ClassUnit:
    """A scripted class.

    Args:
        world: what is scripted.
        cls: the class of Python.
        qualified: its name in archives.
        source, node: its text and syntax.
        more: names that are seen where the class is made.

    Attributes:
        type: the type of its instances.
        attributes: name -> type.
        declared: name -> type of an annotation of the class, for what `__init__` stores.
        methods: name -> unit.
        statics: name -> unit of a static method.
        getters, setters: name of a property -> unit.
        ignored: name -> a method that stays Python's.
        constants: name -> value of a `Final` attribute of the class.
        bases: itself; classes inherit from none.
    """

    def __init__(
        self,
        world: Any,
        cls: Any,
        qualified: str,
        source: Source,
        node: ast.ClassDef,
        more: Any = None,
    ) -> None:
        self.world, self.cls, self.source, self.node = world, cls, source, node
        self.qualified = qualified
        self.type = ClassType(qualified, self)
        self.more = ChainMap({node.name: cls}, more or {})
        self.ignored: dict[str, Any] = {}
        self.declared: dict[str, Type] = {}
        self.attributes: dict[str, Type] = {}
        self.methods: dict[str, Unit] = {}
        self.statics: dict[str, Unit] = {}
        self.getters: dict[str, Unit] = {}
        self.setters: dict[str, Unit] = {}
        self.constants: dict[str, Any] = {}
        self.bases = [self]

    def _place(self, node: ast.AST) -> Place:
        return place_of(node, self.source, self.node.name)

    def check(self) -> None:
        """Check the whole class.

        Raises:
            ScriptError: it cannot be scripted.
        """
        for name, annotation in inspect.get_annotations(self.cls).items():
            self._declare(name, annotation)
        for statement in self.node.body:
            if isinstance(statement, ast.FunctionDef):
                self._add_method(statement)
        if dataclasses.is_dataclass(self.cls):
            for unit in methods_of_dataclass(self, {*self.methods, *self.ignored}):
                self.methods[unit.name] = unit
        if "__init__" in self.methods:
            self.methods["__init__"].check()
        for unit in self.units():
            unit.check()

    def place(self) -> Place:
        """Return where the class stands."""
        return self._place(self.node)

    def _declare(self, name: str, annotation: Any) -> None:
        if isinstance(annotation, dataclasses.InitVar):
            return
        names = PythonNames(namespace=vars(sys.modules[self.cls.__module__]), more=self.more)
        try:
            kind = type_of_object(
                annotation,
                self.world.class_type,
                lambda text: self.world.annotated(text, names),
            )
        except AnnotationError as error:
            raise ScriptError(str(error), self._place(self.node)) from None
        if "Final" in str(annotation) and name in self.cls.__dict__:
            self.constants[name] = self.cls.__dict__[name]
            return
        self.declared[name] = kind

    def _add_method(self, node: ast.FunctionDef) -> None:
        raw = self.cls.__dict__.get(node.name)
        is_static = isinstance(raw, staticmethod)
        decorators = [ast.unparse(d) for d in node.decorator_list]
        setter = any(d.endswith(".setter") for d in decorators)
        function = raw
        if isinstance(raw, property):
            function = raw.fset if setter else raw.fget
        elif isinstance(raw, (staticmethod, classmethod)):
            function = raw.__func__
        modifier = str(getattr(function, "_torchscript_modifier", ""))
        if modifier in ("ignore", "unused"):
            self.ignored[node.name] = function
            return
        names = PythonNames(inspect.unwrap(function), more=self.more)
        unit = self.world.make_unit(function, None if is_static else self.type, namespace=names)
        unit.qualified = f"{self.qualified}{'_' if is_static else '.'}{node.name}"
        if isinstance(raw, property):
            (self.setters if setter else self.getters)[node.name] = unit
        elif is_static:
            self.statics[node.name] = unit
        else:
            if isinstance(raw, classmethod):
                unit.first = ClassValue(self.type)
            self.methods[node.name] = unit

    def units(self) -> list[Unit]:
        """Return all methods."""
        groups = (self.methods, self.statics, self.getters, self.setters)
        return [unit for group in groups for unit in group.values()]

    def type_of_attribute(self, name: str) -> Type | None:
        """Return the type of an attribute, or None."""
        return self.attributes.get(name)

    def attribute(self, check: Any, owner: Expr, name: str, place: Place) -> Any:
        """Return what an instance's attribute means, or None."""
        if name in self.attributes:
            return GetAttr(place, self.attributes[name], owner, name)
        if name in self.getters:
            return self._invoke(check, owner, self.getters[name], name, [], {}, place)
        if name in self.methods or name in self.ignored:
            return Bound(owner, name)
        if name in self.statics:
            return FunctionValue([self.statics[name]])
        if name in self.constants:
            return check.constant(self.constants[name], place)
        return None

    def call_method(
        self,
        check: Any,
        owner: Expr,
        name: str,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        place: Place,
    ) -> Expr:
        """Return a call of a method.

        Raises:
            ScriptError: there is none, or the arguments do not fit.
        """
        if name in self.ignored:
            left = self.world.ignored(self.ignored[name], self.type)
            made: Expr = left.call(check, [owner, *args], kwargs, place)
            return made
        if name not in self.methods:
            raise ScriptError(
                f"'{self.type}' object has no attribute or method '{name}'. Did you forget to "
                "define it, or to decorate the class with @jit.script?",
                place,
            )
        return self._invoke(check, owner, self.methods[name], name, args, kwargs, place)

    def _invoke(
        self,
        check: Any,
        owner: Expr,
        unit: Unit,
        name: str,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        place: Place,
    ) -> Expr:
        given = unit.bind(check, [owner, *args], kwargs, place)
        return Invoke(place, unit.returned, given[0], name, unit, given[1:])

    def set_attribute(
        self, check: Any, owner: Expr, name: str, value: Any, place: Place
    ) -> list[Node]:
        """Return what stores a value in an attribute; `__init__` makes attributes.

        Raises:
            ScriptError: there is no such attribute, or it has another type.
        """
        given = check.expr_of(value, place)
        if name in self.setters:
            call = self._invoke(check, owner, self.setters[name], name, [given], {}, place)
            return [Do(place, call)]
        known = self.attributes.get(name)
        if known is None:
            if check.function != "__init__":
                raise ScriptError(
                    f"Tried to set nonexistent attribute: {name}. Did you forget to initialize it "
                    "in __init__()?",
                    place,
                )
            known = self.declared.get(name, given.type)
            if len(check.scope.frames) > 1:
                raise ScriptError(
                    f"First assignment cannot be in a control-flow block: give {name} a value "
                    "before it",
                    place,
                )
            if holds(known, self.type):
                raise ScriptError(
                    f"the attribute {name} is a {known}: instances of a class cannot hold "
                    "instances of the same class",
                    place,
                )
            self.attributes[name] = known
        if not is_subtype(given.type, known):
            raise ScriptError(
                f"Wrong type for attribute assignment. Expected {known} but got {given.type}", place
            )
        return [SetAttr(place, owner, name, given)]

    def super_of(self, check: Any, owner: Expr, place: Place) -> Any:
        """Refuse: classes inherit from none."""
        raise ScriptError("super() stands in methods of modules only", place)


class ClassValue(Value):
    """A scripted class: calls make instances."""

    def __init__(self, kind: ClassType) -> None:
        self.kind = kind

    def __str__(self) -> str:
        return str(self.kind)

    def attribute(self, check: Any, name: str, place: Place) -> Any:
        """Return a static method, or a constant."""
        unit = self.kind.unit
        if name == "__new__":
            return _Maker(self.kind)
        if name in unit.statics:
            return FunctionValue([unit.statics[name]])
        if name in unit.constants:
            return check.constant(unit.constants[name], place)
        if name in unit.methods:
            return FunctionValue([unit.methods[name]])
        raise ScriptError(f"class {self.kind} has no static method {name}", place)

    def call(
        self, check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place
    ) -> Expr | Value:
        """Make an instance."""
        unit = self.kind.unit
        if hasattr(unit, "make"):  # of `tangrad.classes`
            made: Expr = unit.make(check, args, kwargs, place)
            return made
        init = unit.methods.get("__init__")
        if init is None:
            if args or kwargs:
                raise ScriptError(f"{self.kind} takes no arguments", place)
            return New(place, self.kind, unit, [])
        me = Const(place, self.kind, None)
        given = init.bind(check, [me, *args], kwargs, place)
        return New(place, self.kind, unit, given[1:])


class _Maker(Value):
    """`X.__new__`, as archives call it before `__init__`."""

    def __init__(self, kind: ClassType) -> None:
        self.kind = kind

    def __str__(self) -> str:
        return f"{self.kind}.__new__"

    def call(
        self, check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place
    ) -> Expr | Value:
        """Make an instance without attributes."""
        return New(place, self.kind, self.kind.unit, None)


class InterfaceUnit:
    """An interface: the signatures of methods.

    Attributes:
        type: its type.
        methods: name -> unit, whose body is not looked at.
        is_of_modules: whether only modules serve it.
    """

    def __init__(
        self, world: Any, cls: Any, qualified: str, source: Source, node: ast.ClassDef
    ) -> None:
        self.world, self.cls, self.source, self.node = world, cls, source, node
        self.qualified = qualified
        self.type = InterfaceType(qualified, self)
        self.methods: dict[str, Unit] = {}
        self.bases = [self]
        self.is_of_modules = isinstance(cls, type) and issubclass(cls, nn.Module)

    def check(self) -> None:
        """Read the signatures.

        Raises:
            ScriptError: it derives from something else than `object` or `nn.Module`.
        """
        if self.cls.__bases__ not in ((object,), (nn.Module,)):
            raise ScriptError(
                "TorchScript interface does not support inheritance yet. Please directly inherit "
                "from 'object' or 'nn.Module'.",
                place_of(self.node, self.source, self.node.name),
            )
        for statement in self.node.body:
            if isinstance(statement, ast.FunctionDef):
                unit = self.world.make_unit(self.cls.__dict__[statement.name], self.type)
                unit.declare_only()
                self.methods[statement.name] = unit

    def is_served_by(self, kind: Type) -> bool:
        """Return whether values of a type have these methods."""
        return not self.lacking(kind)

    def lacking(self, kind: Type) -> str:
        """Return why values of a type do not have these methods, or ""."""
        if not isinstance(kind, (ClassType, ModuleType, InterfaceType)):
            return f"{kind} has no methods"
        if self.is_of_modules and isinstance(kind, ClassType):
            return (
                f"Class '{kind}' is no module: only a ScriptModule class can be subtype of module "
                f"interface '{self.type}'"
            )
        for name, unit in self.methods.items():
            if _method_of(kind, name) is None:
                return (
                    f"Class '{kind}' does not have method '{name}' but was expected to implement "
                    f"interface '{self.type}': the class is not compatible with interface "
                    f"'{self.type}'"
                )
            if not _serves(kind, name, unit):
                return (
                    f"Method on class '{kind}' (1) is not compatible with interface '{self.type}' "
                    f"(2)\n(1) {_method_of(kind, name).declaration()}\n(2) {unit.declaration()}"
                )
        return ""


def _method_of(kind: Any, name: str) -> Any:
    """Return the unit of a type's method, or None."""
    found = kind.unit.method(name) if isinstance(kind, ModuleType) else kind.unit.methods.get(name)
    return found if isinstance(found, Unit) else None


def _serves(kind: Any, name: str, wanted: Unit) -> bool:
    found = _method_of(kind, name)
    pairs = zip(wanted.parameters[1:], found.parameters[1:], strict=False)
    return (
        len(wanted.parameters) == len(found.parameters)
        and all(is_subtype(a.type, b.type) for a, b in pairs)
        and is_subtype(found.returned, wanted.returned)
    )
