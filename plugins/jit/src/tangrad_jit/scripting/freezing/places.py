"""Where the modules of a frozen module stand, and what they keep."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Protocol

import tangrad
from tangrad import nn
from tangrad_jit.scripting.check.modules import ModuleUnit
from tangrad_jit.scripting.objects.module import ScriptedModule
from tangrad_jit.scripting.source.places import Place, Source
from tangrad_jit.scripting.tree import nodes as tree
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.kinds import ModuleType, Type

__all__ = ["FrozenPlaces", "FrozenUnit", "Places"]


_NOWHERE = Place(Source("", 1, [""]), 0, 0, 0, 0)


class FrozenUnit(ModuleUnit):
    """What a module is of which attributes have become constants.

    Args:
        world: what is scripted.
        original: the module.
    """

    def __init__(self, world: Any, original: nn.Module) -> None:
        unit = getattr(original, "script_unit", None)
        cls = type(original) if unit is None else unit.cls
        self.world = world
        namespace = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
        self.cls = type(cls.__name__, (nn.Module,), namespace)
        self.is_library = self.is_keyed = self.is_container = False
        self._hook_functions = ([], [])
        self.pre_hooks, self.hooks, self._hooked_call = [], [], None
        self.qualified = world.module_type(original).unit.qualified
        self.type = ModuleType(self.qualified, self)
        self.attributes, self.constants, self.children = {}, {}, {}
        self.functions, self.failed, self._methods, self._overloads = {}, {}, {}, {}
        self._traced, self._replaced = {}, {}
        self.parameter_names, self.buffer_names = [], []

    def method(self, name: str) -> Any:
        """Return a method, or None."""
        return self._methods.get(name)


class Places(Protocol):
    """Where modules stand in the one that gets the methods: see `FrozenPlaces`."""

    root_type: ModuleType
    reserved: set[str]

    def path(self, module: Any) -> tuple[str, ...]:
        """Return the names that lead to a module."""

    def value(self, module: Any, name: str) -> Any:
        """Return what a module has under a name."""

    def is_whole(self, module: Any) -> bool:
        """Return whether a module stays as it is."""

    def is_kept(self, module: Any, name: str) -> bool:
        """Return whether an attribute stays one."""

    def owner(self, module: Any, name: str, kind: Type, place: Place) -> tree.Expr:
        """Return the module that has an attribute, which stays one."""

    def whole(self, module: Any, kind: Type, place: Place) -> tree.Expr:
        """Return a module that stays as it is."""


class FrozenPlaces:
    """The modules of a frozen module.

    Args:
        world: what is scripted.
        root: the module that is frozen.
        kept: ids of modules and names of attributes that stay attributes.
        whole: ids of modules that stay as they are.
    """

    def __init__(
        self, world: Any, root: nn.Module, kept: set[tuple[int, str]], whole: set[int]
    ) -> None:
        self._world, self._root, self._kept, self._whole = world, root, kept, whole
        self._paths = {id(module): path for path, module in _every(root, ())}
        self._units: dict[int, tuple[nn.Module, FrozenUnit]] = {}
        self.root_type = self._unit(root).type
        self._preserved: set[int] = set()
        self.reserved = {name for name in dir(root) if not name.startswith("__")}

    def _unit(self, module: nn.Module) -> FrozenUnit:
        if id(module) not in self._units:
            self._units[id(module)] = module, FrozenUnit(self._world, module)
        return self._units[id(module)][1]

    def path(self, module: nn.Module) -> tuple[str, ...]:
        """Return the names that lead to a module."""
        return self._paths[id(module)]

    def value(self, module: nn.Module, name: str) -> Any:
        """Return what a module has under a name."""
        unit = getattr(module, "script_unit", None)
        if unit is not None and name in unit.constants:
            return unit.constants[name]
        return getattr(module, name)

    def is_whole(self, module: nn.Module) -> bool:
        """Return whether a module stays as it is."""
        return id(module) in self._whole

    def is_kept(self, module: nn.Module, name: str) -> bool:
        """Return whether an attribute stays one."""
        return (id(module), name) in self._kept

    def attribute(self, path: tuple[str, ...]) -> tuple[int, str]:
        """Return the id of a module and the name of its attribute that a path leads to."""
        module: Any = self._root
        for name in path[:-1]:
            module = module._modules[name]
        return id(module), path[-1]

    # --- expressions

    def _at(self, path: tuple[str, ...], place: Place) -> tree.Expr:
        """Return the module at a path, which the frozen module has from now on."""
        made: tree.Expr = tree.Local(place, self.root_type, "self")
        module, unit = self._root, self._unit(self._root)
        for name in path:
            child = module._modules[name]
            assert child is not None
            inner = self._unit(child)
            unit.children[name] = inner.type
            made = tree.GetAttr(place, inner.type, made, name)
            module, unit = child, inner
        return made

    def owner(self, module: nn.Module, name: str, kind: Type, place: Place) -> tree.Expr:
        """Return the module that has an attribute, which stays one."""
        known = getattr(getattr(module, "script_unit", None), "attributes", {}).get(name, kind)
        self._unit(module).attributes[name] = known
        return self._at(self.path(module), place)

    def whole(self, module: nn.Module, kind: Type, place: Place) -> tree.Expr:
        """Return a module that stays as it is."""
        *above, name = self.path(module)
        made = self._at(tuple(above), place)
        made.type.unit.children[name] = kind  # type: ignore[attr-defined]
        return tree.GetAttr(place, kind, made, name)

    def keep(self, module: nn.Module, name: str) -> None:
        """Keep an attribute of a module, or a module inside, though nothing may read it."""
        path, place = self.path(module), _NOWHERE
        self._at(path, place)
        found = module._modules.get(name)
        unit = self._unit(module)
        if found is not None:
            unit.children[name] = self._world.module_type(found)
            self._preserved.add(id(found))
            return
        own = getattr(module, "script_unit", None)
        known = kinds.TENSOR if own is None else own.attributes.get(name)
        if known is not None:
            unit.attributes[name] = known
        elif own is not None and name in own.constants:
            unit.constants[name] = own.constants[name]

    # --- modules

    def module(self) -> ScriptedModule:
        """Return the frozen module: what it keeps is that of the original, copied if no tensor."""
        return self._made(self._root)

    def _made(self, module: nn.Module) -> ScriptedModule:
        unit = self._unit(module)
        made = ScriptedModule(unit)
        state = vars(made)
        for name in unit.attributes:
            value = self.value(module, name)
            registry = next(
                (r for r in ("_parameters", "_buffers") if name in vars(module)[r]), None
            )
            if registry is not None:
                state[registry][name] = value
                names = unit.parameter_names if registry == "_parameters" else unit.buffer_names
                names.append(name)
            elif isinstance(value, nn.Module):
                state["_modules"][name] = value
            else:
                state[name] = value if isinstance(value, tangrad.Tensor) else copy.copy(value)
        for name, kind in unit.children.items():
            child = module._modules[name]
            if isinstance(kind, kinds.ModuleType) and isinstance(kind.unit, FrozenUnit):
                child = self._made(child)
            elif id(child) not in self._preserved:
                child = _without_grads(child)
            state["_modules"][name] = child
        state["training"] = False
        return made


def _every(module: nn.Module, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], nn.Module]]:
    """Yield modules with the names that lead to them, those inside first."""
    for name, child in module._modules.items():
        if child is not None:
            yield from _every(child, (*path, name))
    yield path, module


def _without_grads(module: Any) -> Any:
    """Return a module as it is, with tensors that need no gradients."""
    made = copy.copy(module)
    made.__dict__["_parameters"] = {
        name: None if tensor is None else tensor.detach() if tensor.requires_grad else tensor
        for name, tensor in module._parameters.items()
    }
    return made
