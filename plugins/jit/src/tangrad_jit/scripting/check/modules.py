"""Modules: their attributes as types, and their methods as units, shared by modules that agree."""

from __future__ import annotations

import copy
import inspect
import sys
import types
from collections.abc import Sequence
from typing import Any

import tangrad
from tangrad import nn
from tangrad_jit.scripting.check.functions import FunctionValue, Unit
from tangrad_jit.scripting.check.generated import hooked_call
from tangrad_jit.scripting.check.library_modules import LibraryMethod, is_container, is_library
from tangrad_jit.scripting.check.listings import LISTINGS, Listing
from tangrad_jit.scripting.check.python_names import PythonNames
from tangrad_jit.scripting.check.traced import TracedMethod
from tangrad_jit.scripting.check.values import Bound, Value
from tangrad_jit.scripting.source.places import Place, ScriptError
from tangrad_jit.scripting.tree.nodes import (
    Call,
    Const,
    Do,
    Expr,
    GetAttr,
    Invoke,
    Node,
    PythonCall,
    SetAttr,
)
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.annotations import AnnotationError, type_of_object, type_of_value
from tangrad_jit.scripting.types.kinds import ModuleType, Type, is_subtype
from tangrad_jit.tracing.annotations import Attribute
from tangrad_jit.tracing.traced_module import ScriptFunction, TopLevelTracedModule

__all__ = ["ModuleUnit"]

_REGISTRIES = frozenset(vars(nn.Module())) - {"training"}
_CONSTANT_TYPES = (int, float, bool, complex, str, tangrad.dtype, tangrad.layout, tangrad.device)
_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)


class ModuleUnit:
    """What modules of one class have in common whose attributes are of the same types.

    Args:
        world: what is scripted.
        module: one of them.

    Attributes:
        type: the type of them.
        attributes: name -> type: parameters, buffers, and values that may change.
        constants: name -> value.
        children: name -> type, or None.
        functions: name -> function that an instance holds.
        failed: name -> why an attribute has no type.
        is_library: whether the class is one of `tangrad.nn` that runs as it is.
        is_keyed: whether it is a dict of modules.
    """

    def __init__(self, world: Any, module: nn.Module) -> None:
        cls = type(module)
        self.world, self.cls = world, cls
        self.is_library = is_library(module)
        self.is_keyed = isinstance(module, (nn.ModuleDict, nn.ParameterDict))
        self.is_container = is_container(module)
        self.type = ModuleType(_name_of(cls), self)
        self.attributes: dict[str, Type] = {}
        self.constants: dict[str, Any] = {}
        self.children: dict[str, ModuleType | None] = {}
        self.functions: dict[str, Any] = {}
        self.failed: dict[str, str] = {}
        self._methods: dict[str, Unit] = {}
        self._overloads = dict(getattr(cls, "__overloads__", {}))
        self._traced: dict[str, Any] = (
            dict(module.methods) if isinstance(module, TopLevelTracedModule) else {}
        )
        self.qualified = _name_of(cls)
        self.parameter_names = list(module._parameters)
        self.buffer_names = list(module._buffers)
        self._replaced = {
            name: value.__func__
            for name, value in vars(module).items()
            if isinstance(value, types.MethodType) and value.__self__ is module
        }
        self._hook_functions = (
            list(module._forward_pre_hooks.values()),
            list(module._forward_hooks.values()),
        )
        self.pre_hooks: list[Unit] = []
        self.hooks: list[Unit] = []
        self._hooked_call: Unit | None = None
        self._read(module)

    def copy(self) -> ModuleUnit:
        """Return a unit of the same attributes, to which methods may be added."""
        made = copy.copy(self)
        made.type = ModuleType(str(self.type), made)
        made._methods = dict(self._methods)
        return made

    # --- attributes

    def _read(self, module: nn.Module) -> None:
        annotated = self._annotations()
        for name, tensor in [*module._parameters.items(), *module._buffers.items()]:
            known = annotated.get(name)
            plain = kinds.NONE if tensor is None else kinds.TENSOR
            self.attributes[name] = (
                known if known is not None and is_subtype(plain, known) else plain
            )
        for name, child in module._modules.items():
            if child is None:
                self.children[name] = None
                continue
            declared = annotated.get(name)
            if isinstance(declared, kinds.InterfaceType):
                self.world.module_type(child)
                self.attributes[name] = declared
                continue
            self.children[name] = self.world.module_type(child)
        constants = {*getattr(self.cls, "__constants__", ()), *self._finals()}
        ignored = set(getattr(self.cls, "__jit_ignored_attributes__", ()))
        for name, value in vars(module).items():
            is_read = name in self.attributes or name in self._replaced
            if name in _REGISTRIES or is_read or name in ignored:
                continue
            self._read_value(name, value, name in constants, annotated.get(name))
        for name in constants:
            if name not in self.constants and name not in self.attributes:
                value = getattr(self.cls, name, _MISSING)
                if value is not _MISSING and not callable(value):
                    self._read_value(name, value, True, annotated.get(name))

    def _read_value(self, name: str, value: Any, constant: bool, annotated: Type | None) -> None:
        if isinstance(value, Attribute):
            self.attributes[name] = type_of_object(value.type, self.world.class_type)
            return
        if constant and _is_constant(value):
            self.constants[name] = value
            return
        if constant and not self.is_library:
            raise TypeError(
                f"'{_class_of_inconstant(value)}' object in attribute '{self.cls.__name__}.{name}' "
                "is not a valid constant.\nValid constants are:\n1. a nn.ModuleList\n"
                "2. an int, float, bool, complex, str, None, dtype, layout or device\n"
                "3. a list or tuple of (2)"
            )
        if isinstance(value, types.FunctionType) or (
            callable(value) and not isinstance(value, type) and _is_function_like(value)
        ):
            self.functions[name] = value
            return
        if annotated is not None:
            self.attributes[name] = annotated
            return
        try:
            found, reason = type_of_value(value, self.world.class_type), ""
        except (ScriptError, AnnotationError) as error:  # told only where the attribute is used
            found, reason = None, f", whose class cannot be scripted: {error}"
        if found is not None:
            self.attributes[name] = found
            return
        if isinstance(value, (list, dict)) and not value:
            reason = " without members"
        self.failed[name] = f"it is a {type(value).__name__}{reason}"

    def _annotations(self) -> dict[str, Type]:
        found: dict[str, Type] = {}
        for cls in reversed(self.cls.__mro__):
            if cls.__module__.split(".")[0] == "tangrad" or cls is object:
                continue
            module = sys.modules.get(cls.__module__)
            names = PythonNames(namespace={**vars(cls), **(vars(module) if module else {})})
            for name, annotation in inspect.get_annotations(cls).items():
                try:
                    found[name] = type_of_object(
                        annotation,
                        self.world.class_type,
                        lambda text, names=names: self.world.annotated(text, names),
                    )
                except AnnotationError as error:
                    self.failed[name] = str(error)
        return found

    def _finals(self) -> list[str]:
        return [
            name
            for cls in self.cls.__mro__
            for name, annotation in inspect.get_annotations(cls).items()
            if "Final" in str(annotation)
        ]

    def is_same(self, other: ModuleUnit) -> bool:
        """Return whether modules of the two have the same code."""
        if self._replaced != other._replaced:
            return False
        if self._traced or other._traced or self._hook_functions != other._hook_functions:
            return False
        if self.is_library and not self.is_container and self.cls is not nn.Module:
            return other.is_library
        if self.functions.keys() != other.functions.keys():
            return False
        same_functions = all(self.functions[n] is other.functions[n] for n in self.functions)
        return (
            same_functions
            and self.attributes == other.attributes
            and list(self.children.items()) == list(other.children.items())
            and {n: (type(v), v) for n, v in self.constants.items()}
            == {n: (type(v), v) for n, v in other.constants.items()}
        )

    def type_of_attribute(self, name: str) -> Type | None:
        """Return the type of an attribute, or None."""
        return self.attributes.get(name)

    def attribute(self, check: Any, owner: Expr, name: str, place: Place) -> Any:
        """Return what an attribute of a module means, or None."""
        if name in self.constants:
            return check.constant(self.constants[name], place)
        if name in self.children:
            child = self.children[name]
            if child is None:
                return Const(place, kinds.NONE, None)
            return GetAttr(place, child, owner, name)
        if name in self.attributes:
            return GetAttr(place, self.attributes[name], owner, name)
        if name in self.functions:
            return check.meaning(self.functions[name], place, name)
        if name in LISTINGS and getattr(nn.Module, name) is getattr(self.cls, name):
            return Listing(owner, name)
        if self.is_keyed and name in ("keys", "values", "items"):
            return Part(self.children_of(check, owner, place), name)
        if name in self.failed:
            raise ScriptError(
                f"Module '{self.cls.__name__}' has no attribute '{name}' (This attribute exists on "
                f"the Python module, but we failed to convert Python type: {self.failed[name]}. "
                "Annotate it in the class, e.g. "
                f"{name}: List[int], or keep it out of scripted methods.)",
                place,
            )
        found = inspect.getattr_static(self.cls, name, None)
        if isinstance(found, property):
            unit = self._accessor(name, "getter", found.fget)
            return Invoke(place, unit.returned, owner, name, unit, [])
        if name in self._methods or callable(getattr(self.cls, name, None)):
            return Bound(owner, name)
        if self.is_library and found is not None and type_of_value(found) is not None:
            return check.constant(found, place)
        return None

    def children_of(self, check: Any, owner: Expr, place: Place) -> dict[str, Any]:
        """Return the modules inside, by name; of a container of parameters, these."""
        if issubclass(self.cls, (nn.ParameterList, nn.ParameterDict)):
            return {n: GetAttr(place, self.attributes[n], owner, n) for n in self.parameter_names}
        return {
            name: GetAttr(place, kind, owner, name)
            for name, kind in self.children.items()
            if kind is not None
        }

    # --- methods

    def method(self, name: str) -> Any:
        """Return a method's unit, another meaning of it, or None where there is none."""
        if name in self._methods:
            return self._methods[name]
        if name in self._traced:
            return TracedMethod(name, self._traced[name])
        if self.is_library and not self.is_container:
            return LibraryMethod(self.cls, name)
        raw = inspect.getattr_static(self.cls, name, None)
        if isinstance(raw, property):
            return self._accessor(name, "getter", raw.fget)
        function = self._replaced.get(name) or getattr(self.cls, name, None)
        if isinstance(raw, staticmethod):
            return self.world.function_meaning(raw.__func__)
        if function is None or function is nn.Module.forward:
            return None
        if not isinstance(inspect.unwrap(function), types.FunctionType):
            return None
        self.world.overloads_of(inspect.unwrap(function), self.type)
        if str(getattr(function, "_torchscript_modifier", "")) in ("ignore", "unused"):
            return self.world.ignored(function, self.type)
        plain = kinds.ANY if self.is_library else kinds.TENSOR
        unit = self.world.make_unit(function, self.type, name, plain)
        if name == "__setstate__":
            self._give_state(unit)
        unit.qualified = f"{self.qualified}.{name}"
        self._methods[name] = unit
        return unit

    def _give_state(self, setter: Unit) -> None:
        """Give what `__setstate__` takes the type of what `__getstate__` returns.

        Raises:
            ScriptError: there is none.
        """
        getter = self.method("__getstate__")
        if not isinstance(getter, Unit):
            raise ScriptError(
                f"__setstate__ of {self.cls.__name__} takes what its __getstate__ returns, and "
                "there is no such method: decorate it with @jit.export",
                setter.place(),
            )
        if len(setter.parameters) == 2 and setter.parameters[1].inferred:
            setter.parameters[1].type, setter.parameters[1].inferred = getter.returned, False

    def state_methods(self) -> tuple[Unit, Unit] | None:
        """Return `__getstate__` and `__setstate__` where both are scripted."""
        found = [self._methods.get(name) for name in ("__getstate__", "__setstate__")]
        getter, setter = found
        return None if getter is None or setter is None else (getter, setter)

    def _accessor(self, name: str, what: str, function: Any) -> Unit:
        """Return the unit that reads or stores a property."""
        key = f"__{name}_{what}"
        found = self._methods.get(key)
        if found is None:
            found = self._methods[key] = self.world.make_unit(function, self.type, name)
            found.qualified = f"{self.qualified}.{key}"
        return found

    @property
    def methods(self) -> dict[str, Unit]:
        """The methods that have been scripted."""
        return self._methods

    def call_method(
        self,
        check: Any,
        owner: Expr,
        name: str,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        place: Place,
    ) -> Any:
        """Return a call of a method.

        Raises:
            ScriptError: there is none, or the arguments do not fit.
        """
        if isinstance(owner.type, ModuleType) and self.is_container and name == "forward":
            return self._call_container(check, owner, args, place)
        if name in self._overloads:
            units = [self.method(one) for one in self._overloads[name]]
            return FunctionValue(units).call(check, [owner, *args], kwargs, place)
        raw = inspect.getattr_static(self.cls, name, None)
        # Also where the method has been compiled by itself, as archives do with forward.
        if isinstance(raw, types.FunctionType) and name not in self._replaced:
            several = self.world.overloads_of(inspect.unwrap(raw), self.type)
            if several:
                for k, unit in enumerate(several):
                    unit.qualified = f"{self.qualified}.{name}__{k}"
                    self._methods.setdefault(f"{name}__{k}", unit)
                return FunctionValue(several).call(check, [owner, *args], kwargs, place)
        found = self.method(name)
        if isinstance(found, LibraryMethod):
            return found.call(check, owner, args, kwargs, place)
        if isinstance(found, Unit):
            given = found.bind(check, [owner, *args], kwargs, place)
            try:
                returned = found.returned
            except ScriptError as error:
                error.calls.append(
                    f"'{self.cls.__name__}.{name}' is being compiled since it was called from\n"
                    f"{place}"
                )
                raise
            return Invoke(place, returned, given[0], name, found, given[1:])
        if isinstance(found, Value):
            is_static = isinstance(inspect.getattr_static(self.cls, name, None), staticmethod)
            made = found.call(check, list(args) if is_static else [owner, *args], kwargs, place)
            assert isinstance(made, (Expr, PythonCall))
            return made
        attribute = self.attribute(check, owner, name, place)
        if attribute is None or isinstance(attribute, Bound):
            raise ScriptError(
                f"Module '{self.cls.__name__}' has no method '{name}' that can be scripted", place
            )
        return check.call(attribute, list(args), kwargs, place)

    def call_module(
        self, check: Any, owner: Expr, args: Sequence[Any], kwargs: dict[str, Any], place: Place
    ) -> Any:
        """Return a call of a module: of its forward, with its hooks.

        Raises:
            ScriptError: the arguments do not fit, or a hook does not.
        """
        call = self.hooked_call()
        if call is None:
            return self.call_method(check, owner, "forward", args, kwargs, place)
        given = call.bind(check, [owner, *args], kwargs, place)
        return Call(place, call.returned, call, given)

    def hooked_call(self) -> Unit | None:
        """Return the method that runs forward with its hooks; None where there are none.

        Raises:
            ScriptError: a hook cannot be scripted.
        """
        if self._hooked_call is None and any(self._hook_functions):
            forward = self.method("forward")
            if not isinstance(forward, Unit):
                raise ScriptError(
                    f"{self.cls.__name__} has forward hooks, which are scripted for modules of "
                    "one's own; remove them, or call what they do in a module around it"
                )
            groups = [[self._hook_unit(f) for f in group] for group in self._hook_functions]
            self.pre_hooks, self.hooks = groups
            self._hooked_call = hooked_call(self, forward)
        return self._hooked_call

    def _hook_unit(self, function: Any) -> Unit:
        name = function.__name__
        known = self._methods.get(name)
        if known is not None and known.python_function is function:
            return known
        if known is not None or hasattr(self.cls, name):
            is_pre = function in self._hook_functions[0]
            raise ScriptError(
                f"{'Pre-hook' if is_pre else 'Hook'} '{name}' on {self.cls.__name__} has at least "
                "two different python definitions. Please use unique names for all hooks."
                if known is not None and not hasattr(self.cls, name)
                else f"Can't define hook: {name} on class: {self.cls.__name__} because a method or "
                "hook with that name already exists."
            )
        unit: Unit = self.world.make_unit(function, self.type, name)
        unit.qualified = f"{self.qualified}.{name}"
        self._methods[name] = unit
        return unit

    def _call_container(self, check: Any, owner: Expr, args: Sequence[Any], place: Place) -> Any:
        """Return the calls of a `Sequential`, one inside another."""
        if not issubclass(self.cls, nn.Sequential):
            raise ScriptError(
                f"{self.cls.__name__} has no forward; call the modules that it holds", place
            )
        value = args[0]
        for child in self.children_of(check, owner, place).values():
            value = check.call(child, [value], {}, place)
        return value

    def set_attribute(
        self, check: Any, owner: Expr, name: str, value: Any, place: Place
    ) -> list[Node]:
        """Return what stores a value in an attribute.

        Raises:
            ScriptError: there is none, it is a constant, or of another type.
        """
        raw = inspect.getattr_static(self.cls, name, None)
        if isinstance(raw, property) and raw.fset is not None:
            unit = self._accessor(name, "setter", raw.fset)
            given = unit.bind(check, [owner, value], {}, place)
            unit.check()
            return [Do(place, Invoke(place, kinds.NONE, given[0], name, unit, given[1:]))]
        if name in self.constants:
            raise ScriptError(
                f"Can't set constant '{name}': it is in __constants__, or Final", place
            )
        known = self.attributes.get(name)
        if known is None:
            known = self.children.get(name)
        if known is None:
            raise ScriptError(
                f"Tried to set nonexistent attribute: {name}. Did you forget to initialize it in "
                "__init__()?",
                place,
            )
        given = check.expr_of(value, place)
        if not is_subtype(given.type, known):
            raise ScriptError(
                f"Wrong type for attribute assignment. Expected {known} but got {given.type}", place
            )
        return [SetAttr(place, owner, name, given)]

    def super_of(self, check: Any, owner: Expr, place: Place) -> Any:
        """Return what `super()` means in a method."""
        return Super(self, owner)


_MISSING = object()


class Super(Value):
    """`super()` in a method of a module."""

    def __init__(self, unit: ModuleUnit, owner: Expr) -> None:
        self.unit, self.owner = unit, owner

    def __str__(self) -> str:
        return "super()"

    def attribute(self, check: Any, name: str, place: Place) -> Any:
        """Return the method of the class above."""
        return SuperMethod(self.unit, self.owner, name)


class SuperMethod(Value):
    """A method of the class above that of a method."""

    def __init__(self, unit: ModuleUnit, owner: Expr, name: str) -> None:
        self.unit, self.owner, self.name = unit, owner, name

    def __str__(self) -> str:
        return f"super().{self.name}"

    def call(
        self, check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place
    ) -> Expr | Value:
        """Call it."""
        here = check.names.find("__class__")
        start = here if isinstance(here, type) else self.unit.cls
        mro = self.unit.cls.__mro__
        for cls in mro[mro.index(start) + 1 :]:
            if self.name in cls.__dict__:
                if cls.__module__.split(".")[0] == "tangrad":
                    return LibraryMethod(cls, self.name).call(
                        check, self.owner, args, kwargs, place, cls.__dict__[self.name]
                    )
                key = f"{cls.__qualname__}.{self.name}"
                found = self.unit.methods.get(key)
                if found is None:
                    found = self.unit.world.make_unit(
                        cls.__dict__[self.name], self.unit.type, self.name
                    )
                    found.qualified = f"{self.unit.qualified}.{cls.__name__}_{self.name}"
                    self.unit.methods[key] = found
                given = found.bind(check, [self.owner, *args], kwargs, place)
                return Invoke(place, found.returned, given[0], self.name, found, given[1:])
        raise ScriptError(f"'super' object has no attribute '{self.name}'", place)


class Part(Value):
    """`keys`, `values` or `items` of a dict of modules."""

    def __init__(self, children: dict[str, Any], name: str) -> None:
        self.children, self.name = children, name

    def __str__(self) -> str:
        return self.name

    def call(
        self, check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place
    ) -> Expr | Value:
        """Return names, modules, or both."""
        found: Value = check.keyed(self.children).part(self.name, place)
        return found


def _is_constant(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(_is_constant(item) for item in value)
    return value is None or isinstance(value, _CONSTANT_TYPES)


def _class_of_inconstant(value: Any) -> str:
    """Return the name of the class, in a value or of it, of which there are no constants."""
    if isinstance(value, (tuple, list)):
        return next(_class_of_inconstant(item) for item in value if not _is_constant(item))
    cls = type(value)
    module = "" if cls.__module__ == "builtins" else f"{cls.__module__}."
    return f"{module}{cls.__qualname__}"


def _is_function_like(value: Any) -> bool:
    """Whether an attribute is a function of the library, or a scripted one."""
    return (
        hasattr(value, "definition")
        or isinstance(value, ScriptFunction)
        or type(value).__name__ in ("Overridable", "builtin_function_or_method", "method")
    )


def _name_of(cls: type) -> str:
    module = "" if cls.__module__ == "__main__" else cls.__module__.replace("tangrad", "torch", 1)
    name = cls.__name__
    return ".".join(["__torch__", *filter(None, module.split(".")), *name.split(".")])
