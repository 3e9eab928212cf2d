"""Scripted modules."""

from __future__ import annotations

import ast
import copy
import inspect
import pickle
import types
from typing import Any

import tangrad
from tangrad import nn
from tangrad_jit.scripting.check.functions import Unit
from tangrad_jit.scripting.check.modules import ModuleUnit
from tangrad_jit.scripting.objects.entry import Entry
from tangrad_jit.scripting.objects.function import ConstantMap
from tangrad_jit.scripting.objects.schema import FunctionSchema
from tangrad_jit.scripting.program.values import Unfitting, fitted
from tangrad_jit.scripting.tree.nodes import SetAttr, every
from tangrad_jit.scripting.types.kinds import ClassType, InterfaceType
from tangrad_jit.tracing.annotations import Attribute
from tangrad_jit.tracing.script_module import ScriptModule

__all__ = ["ScriptMethod", "ScriptedModule", "entry_of", "filled", "scripted_module"]

_HELD = ("_parameters", "_buffers", "_modules")
_REGISTRIES = frozenset(vars(nn.Module()))


def entry_of(unit: Unit) -> Entry:
    """Return the way into a method, which all modules of its type share."""
    found: Entry | None = getattr(unit, "entry", None)
    if found is None:
        found = unit.entry = Entry(unit, is_method=True)  # type: ignore[attr-defined]
    return found


class ScriptMethod:
    """A method of a scripted module."""

    def __init__(self, owner: Any, unit: Unit) -> None:
        self.owner, self.script_unit = owner, unit
        self._entry = entry_of(unit)

    def __getattr__(self, name: str) -> Any:
        if name in ("name", "__name__"):
            return self.script_unit.name
        raise AttributeError(f"a scripted method has no attribute {name!r}")

    @property
    def __doc__(self) -> Any:  # type: ignore[override]
        """The text that stands first in the method."""
        return ast.get_docstring(self.script_unit.node)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the method."""
        return self._entry(self.owner, *args, **kwargs)

    @property
    def schema(self) -> FunctionSchema:
        """The signature."""
        return FunctionSchema(self.script_unit)

    @property
    def graph(self) -> Any:
        """The method as a graph with control flow."""
        from tangrad_jit.scripting.code.lowering import graph_of

        return graph_of(self.script_unit)

    @property
    def inlined_graph(self) -> Any:
        """The graph with what it calls in the place of calls."""
        from tangrad_jit.scripting.code.lowering import graph_of

        return graph_of(self.script_unit, inline=True)

    @property
    def code(self) -> str:
        """The method as archives hold it."""
        from tangrad_jit.scripting.code.printer import text_of_unit

        return text_of_unit(self.script_unit)


class ScriptedModule(ScriptModule):
    """A module that has been scripted: parameters are the original's, methods are compiled.

    Args:
        unit: what it has in common with modules of its type.
    """

    script_unit: ModuleUnit
    is_declared = False

    def __init__(self, unit: ModuleUnit) -> None:
        super().__init__()
        self.take_unit(unit)
        object.__setattr__(self, "original_name", unit.cls.__name__)

    def take_unit(self, unit: ModuleUnit) -> None:
        """Take what the module has in common with others from a unit."""
        object.__setattr__(self, "script_unit", unit)

    @property
    def forward(self) -> Any:  # type: ignore[override]
        """The method `forward`; of a sequence, what runs its modules in turn."""
        unit = self.script_unit
        if not unit.is_container and "library_module" not in self.__dict__:
            found = unit.method("forward")
            if isinstance(found, Unit):
                return ScriptMethod(self, found)
        return self._run_library

    def _run_library(self, *args: Any, **kwargs: Any) -> Any:
        """Run the modules of a sequence in turn, or the module of the library that this one holds.

        Raises:
            NotImplementedError: the module has no forward.
        """
        inner = self.__dict__.get("library_module")
        if inner is not None:
            inner.training = self.training
            return inner(*args, **kwargs)
        if issubclass(self.script_unit.cls, nn.Sequential):
            value = args[0]
            for child in self._modules.values():
                value = child(value)
            return value
        raise NotImplementedError(f"{self.original_name} has no forward")

    def __getattr__(self, name: str) -> Any:
        state = self.__dict__
        for registry in _HELD:
            found = state[registry].get(name) if registry in state else None
            if found is not None:
                return found
        unit = state.get("script_unit")
        if unit is not None:
            method = unit.methods.get(name)
            if isinstance(method, Unit):
                return ScriptMethod(self, method)
            getter = unit.methods.get(f"__{name}_getter")
            if isinstance(getter, Unit):
                return entry_of(getter)(self)
            if name in unit.constants:
                return unit.constants[name]
            if not any(name in state[registry] for registry in _HELD):
                return self._of_class(name)
        return super().__getattr__(name)

    def _of_class(self, name: str) -> Any:
        """Return what the original's class has under a name, bound to this module."""
        if not hasattr(self.script_unit.cls, name):
            return super().__getattr__(name)
        found = inspect.getattr_static(self.script_unit.cls, name, None)
        if isinstance(found, types.FunctionType):
            return types.MethodType(found, self)
        if isinstance(found, property) and found.fget is not None:
            cls = self.script_unit.cls
            unused = name in getattr(cls, "__jit_unused_properties__", ())
            if unused or getattr(found.fget, "_torchscript_modifier", "") in ("ignore", "unused"):
                raise AttributeError(f"a scripted {cls.__name__} has no attribute '{name}'")
            return found.fget(self)
        if isinstance(found, (staticmethod, classmethod)):
            return found.__get__(None, self.script_unit.cls)
        if found is None:
            return super().__getattr__(name)
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        unit: Any = self.__dict__.get("script_unit")
        setter = None if unit is None else unit.methods.get(f"__{name}_setter")
        if isinstance(setter, Unit):
            entry_of(setter)(self, value)
            return
        known = None if unit is None else unit.attributes.get(name)
        if known is not None and not isinstance(value, (tangrad.Tensor, nn.Module)):
            try:
                value = fitted(value, known)
            except Unfitting:
                raise RuntimeError(
                    f"the attribute '{name}' of a scripted {unit.cls.__name__} has type {known}: "
                    f"it cannot be set to a {type(value).__name__}"
                ) from None
        elif known is not None and name in self._parameters and isinstance(value, tangrad.Tensor):
            self._parameters[name] = value  # as in PyTorch, where a script stores any tensor
            return
        elif unit is not None and (name in unit.children or isinstance(known, InterfaceType)):
            _check_swap(self, name, value, known)
        elif unit is not None and name in unit.constants:
            raise RuntimeError(f"'{name}' is a constant of a scripted module and cannot be set")
        super().__setattr__(name, value)

    def _unit_of(self, name: str) -> Any:
        """Return what modules have in common that stand under a name."""
        return getattr(self.script_unit.children.get(name), "unit", None)

    def _holds(self, special: str) -> bool:
        """Return whether a method of containers is that of the library."""
        own = getattr(self.script_unit.cls, special, None)
        return self.script_unit.is_container and str(
            getattr(own, "__module__", "tangrad")
        ).startswith("tangrad")

    def __len__(self) -> int:
        if self._holds("__len__"):
            return len(self._modules)
        return int(self._special("__len__")())

    def __iter__(self) -> Any:
        if self._holds("__iter__"):
            return iter(self._modules if self.script_unit.is_keyed else self._modules.values())
        return self._special("__iter__")()

    def __getitem__(self, key: Any) -> Any:
        if self.script_unit.is_keyed:
            return self._modules[key]
        if self.script_unit.is_container:
            return list(self._modules.values())[key]
        return self._special("__getitem__")(key)

    def __contains__(self, key: Any) -> bool:
        if self._holds("__contains__"):
            return key in (self._modules if self.script_unit.is_keyed else self._modules.values())
        return bool(self._special("__contains__")(key))

    def keys(self) -> Any:
        """Return the names of a dict of modules."""
        return self._modules.keys()

    def values(self) -> Any:
        """Return the modules of a dict."""
        return self._modules.values()

    def items(self) -> Any:
        """Return names and modules of a dict."""
        return self._modules.items()

    def _special(self, name: str) -> Any:
        found = inspect.getattr_static(self.script_unit.cls, name, None)
        if found is None:
            raise TypeError(f"a scripted {self.original_name} has no {name}")
        return types.MethodType(found, self)

    def __bool__(self) -> bool:
        return True

    # --- as text and file

    def _forward(self) -> Unit:
        unit = self.script_unit.method("forward")
        if not isinstance(unit, Unit):
            raise AttributeError(f"{self.original_name} has no scripted forward")
        return unit

    @property
    def graph(self) -> Any:
        """`forward` as a graph with control flow."""
        from tangrad_jit.scripting.code.lowering import graph_of

        return graph_of(self._forward())

    @property
    def inlined_graph(self) -> Any:
        """The graph with what it calls in the place of calls."""
        from tangrad_jit.scripting.code.lowering import graph_of

        return graph_of(self._forward(), inline=True)

    def graph_for(self, *args: Any, **kwargs: Any) -> Any:
        """Return the graph that runs for arguments: there is one."""
        from tangrad_jit.scripting.code.lowering import graph_of

        return graph_of(self._forward(), inline=True, runs=True)

    @property
    def code(self) -> str:
        """`forward` as archives hold it."""
        from tangrad_jit.scripting.code.printer import text_of_unit

        return text_of_unit(self._forward())

    @property
    def code_with_constants(self) -> tuple[str, ConstantMap]:
        """`forward` as archives hold it, and the tensors that it names."""
        from tangrad_jit.scripting.code.printer import text_with_constants

        text, constants = text_with_constants(self._forward())
        return text, ConstantMap(constants)

    def save(self, f: Any, _extra_files: dict[str, Any] | None = None) -> None:
        """Write the module to an archive that PyTorch reads, too; see `jit.save`."""
        from tangrad_jit.scripting.archive.writing import write_module

        write_module(self, f, _extra_files)

    def save_to_buffer(self, _extra_files: dict[str, Any] | None = None) -> bytes:
        """Return the archive that `save` writes."""
        import io

        file = io.BytesIO()
        self.save(file, _extra_files)
        return file.getvalue()

    def __copy__(self) -> ScriptedModule:
        return _copied(self, {}, lambda value: value)

    def __deepcopy__(self, memo: dict[int, Any]) -> ScriptedModule:
        return _copied(self, memo, lambda value: copy.deepcopy(value, memo))

    def emptied(self) -> ScriptedModule:
        """Return a module of the same methods, without parameters."""
        return made_of(self.script_unit)

    def copy(self) -> ScriptedModule:
        """Return a module of the same parameters and attributes."""
        return self.__copy__()

    def refuse_swaps(self) -> None:
        """Refuse to freeze a module whose methods put a module in another's place.

        Raises:
            RuntimeError: they do.
        """
        for module in self.modules():
            for method in getattr(getattr(module, "script_unit", None), "methods", {}).values():
                _refuse_swaps(method)

    def frozen_copy(self) -> ScriptedModule:
        """Return a copy whose parameters need no gradients."""
        made = copy.deepcopy(self)
        made.requires_grad_(False)
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise pickle.PickleError(
            "ScriptModules cannot be pickled; save them by jit.save, or their state_dict"
        )

    def _get_name(self) -> str:
        return f"RecursiveScriptModule(original_name={self.original_name})"

    def extra_repr(self) -> str:
        """Show the class that was scripted."""
        return f"original_name={self.original_name}"


def _refuse_swaps(method: Any) -> None:
    """Refuse to freeze a method that sets a module.

    Raises:
        RuntimeError: it does.
    """
    for node in every(method.body):
        if not isinstance(node, SetAttr):
            continue
        attributes = getattr(getattr(node.owner.type, "unit", None), "attributes", {})
        if isinstance(attributes.get(node.name), InterfaceType):
            raise RuntimeError(
                "Freezing does not support SetAttr on an interface type: "
                f"{method.name} sets {node.name}"
            )


def _check_swap(module: ScriptedModule, name: str, value: Any, known: Any) -> None:
    """Check that a module may stand in the place of another: where an interface says so.

    Raises:
        RuntimeError: it may not.
    """
    if value is module._modules.get(name):
        return
    if module._modules.get(name) is None and module.script_unit.children.get(name) is not None:
        return  # `__setstate__` gives a module that is being read the ones inside
    same = isinstance(value, ScriptedModule) and value.script_unit is module._unit_of(name)
    if not isinstance(known, InterfaceType) and not same:
        if isinstance(value, ScriptedModule):
            raise RuntimeError(
                f"Expected a value of type '{module.script_unit.children.get(name)} (a module)' "
                f"for field '{name}', but found '{value.script_unit.type} (a module)': declare "
                "its type by an interface"
            )
        raise RuntimeError(
            "Cannot re-assign modules in a ScriptModule, tried to replace existing module "
            f"'{name}': declare its type by an interface"
        )
    if same:
        return
    if not isinstance(value, ScriptedModule):
        raise RuntimeError(
            "Cannot re-assign modules in a ScriptModule with non-scripted module, tried to replace "
            f"existing module '{name}': {type(value).__name__}"
        )
    lacking = known.unit.lacking(value.script_unit.type)
    if lacking:
        raise RuntimeError(lacking)


class HookedModule(ScriptedModule):
    """A scripted module whose forward has hooks."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run forward with its hooks."""
        unit = self.script_unit.hooked_call()
        assert unit is not None
        return entry_of(unit)(self, *args, **kwargs)


def made_of(unit: ModuleUnit) -> ScriptedModule:
    """Return a scripted module of a unit, without parameters."""
    return (ScriptedModule if unit.hooked_call() is None else HookedModule)(unit)


def _copied(module: Any, memo: dict[int, Any], value_of: Any) -> Any:
    made = module.emptied()
    memo[id(module)] = made
    for name, value in vars(module).items():
        if name in ("script_unit", "original_name", "methods"):
            continue
        if name in ("_parameters", "_buffers"):
            made.__dict__[name] = {k: value_of(t) for k, t in value.items()}
        elif name == "_modules":
            made.__dict__[name] = {k: value_of(m) for k, m in value.items()}
        elif name in _REGISTRIES:
            made.__dict__[name] = copy.copy(value)
        else:
            made.__dict__[name] = value_of(value)
    return made


def scripted_module(world: Any, module: nn.Module, memo: dict[int, Any] | None = None) -> Any:
    """Return a module with scripted methods, and the same parameters.

    Args:
        world: what is scripted.
        module: the original.
        memo: id of an original -> what it has become.

    Raises:
        ScriptError: it cannot be scripted.
    """
    memo = {} if memo is None else memo
    if id(module) in memo:
        return memo[id(module)]
    if isinstance(module, ScriptModule):
        return module.__dict__.get("_actual_script_module", module)
    unit: ModuleUnit = world.module_type(module).unit
    if unit.is_library and not unit.is_container:
        memo[id(module)] = made = _library_copy(module)
        return made
    return filled(world, made_of(unit), module, memo)


def filled(world: Any, scripted: ScriptedModule, module: nn.Module, memo: dict[int, Any]) -> Any:
    """Return a scripted module with the parameters, attributes and inner modules of the original.

    Raises:
        ScriptError: a module inside cannot be scripted.
    """
    unit = scripted.script_unit
    memo[id(module)] = scripted
    state = vars(scripted)
    state["_parameters"] = dict(module._parameters)
    state["_buffers"] = dict(module._buffers)
    state["_non_persistent_buffers_set"] = set(module._non_persistent_buffers_set)
    state["_modules"] = {
        name: None if child is None else scripted_module(world, child, memo)
        for name, child in module._modules.items()
    }
    for name, value in vars(module).items():
        if name in _REGISTRIES:
            continue
        if isinstance(value, Attribute):
            value = value.value
        known = unit.attributes.get(name)
        if known is not None:
            value = _attribute(module, name, value, known)
        state[name] = value
    state["training"] = module.training
    return scripted


def _attribute(module: nn.Module, name: str, value: Any, known: Any) -> Any:
    try:
        made = fitted(value, known)
        if isinstance(known, ClassType):
            _check_instance(made, known)
        return made
    except Unfitting:
        raise RuntimeError(
            f"(While checking the attribute '{name}' of {type(module).__name__}) Expected a value "
            f"of type '{known}', but it is a {type(value).__name__}"
        ) from None


def _check_instance(value: Any, kind: ClassType) -> None:
    """Check what an instance holds that Python has made.

    Raises:
        RuntimeError: it is of another type than the class says.
    """
    for name, known in kind.unit.attributes.items():
        held = getattr(value, name, None)
        try:
            fitted(held, known)
        except Unfitting:
            raise RuntimeError(
                f"Could not cast attribute '{name}' to type {known}: that of this {kind} is a "
                f"{type(held).__name__}"
            ) from None


def _library_copy(module: nn.Module) -> nn.Module:
    """Return a module of the library with the same tensors and flags of its own."""
    made = type(module).__new__(type(module))
    made.__dict__.update(module.__dict__)
    for name in ("_parameters", "_buffers"):
        made.__dict__[name] = dict(module.__dict__[name])
    made.__dict__["_modules"] = {
        name: None if child is None else _library_copy(child)
        for name, child in module._modules.items()
    }
    return made
