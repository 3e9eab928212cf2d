"""`jit.script` and its relatives."""

from __future__ import annotations

import copy
import enum
import functools
import inspect
import sys
import types
from collections import ChainMap
from typing import Any

from tangrad import nn
from tangrad_jit.scripting.check.functions import FunctionValue, Unit
from tangrad_jit.scripting.check.world import modifier_of
from tangrad_jit.scripting.objects.declared import define, script_declared
from tangrad_jit.scripting.objects.function import ScriptedFunction
from tangrad_jit.scripting.objects.known import WORLD
from tangrad_jit.scripting.objects.library_functions import scripted_library_function
from tangrad_jit.scripting.objects.module import ScriptedModule, scripted_module
from tangrad_jit.scripting.program.containers import ScriptDict, ScriptList
from tangrad_jit.scripting.program.values import fitted
from tangrad_jit.scripting.types.annotations import type_of_value
from tangrad_jit.scripting.types.kinds import STR, TENSOR, DictType, ListType, Type
from tangrad_jit.tracing import script_module
from tangrad_jit.tracing.trace import is_tracing
from tangrad_jit.tracing.traced_module import ScriptFunction, ScriptModule

__all__ = ["interface", "script", "script_if_tracing"]

# Classes that derive from `ScriptModule` come before the script language, which they use.
script_module.set_scripting(define=define, script_declared=script_declared)


def script(
    obj: Any, optimize: Any = None, _frames_up: int = 0, _rcb: Any = None, **kwargs: Any
) -> Any:
    """Script a function, a module or a class: compile it to a typed program.

    Args:
        obj: a function of Python, an instance of `nn.Module`, or a class.
        optimize, _frames_up, _rcb: accepted.
        kwargs: `example_inputs`, accepted; types come from annotations.

    Returns:
        What is scripted: a `ScriptFunction`, a `ScriptModule`, or the class itself.

    Raises:
        RuntimeError: it cannot be scripted; the message shows where, and what to do.
        OSError: its source cannot be found.
    """
    if isinstance(obj, (ScriptFunction, ScriptModule)):
        return obj
    if isinstance(obj, nn.Module):
        if "_modules" not in vars(obj):
            raise RuntimeError(
                f"'{type(obj).__name__}' has not been initialized, did you forget to call "
                "'super()'?"
            )
        return _script_module(obj)
    if isinstance(obj, type):
        frame = sys._getframe(1 + _frames_up)
        return _script_class(obj, ChainMap(dict(frame.f_locals), frame.f_globals))
    if isinstance(obj, (dict, list)):
        return _script_container(obj)
    if modifier_of(obj) in ("ignore", "unused"):
        return obj
    inner = getattr(obj, "__original_fn", None)
    if inner is not None:
        return script(inner)
    if isinstance(obj, types.MethodType) and isinstance(obj.__self__, nn.Module):
        return getattr(script(obj.__self__), obj.__name__)
    if not callable(obj) and WORLD.class_type(type(obj)) is not None:
        return obj  # an instance of a class that is scripted
    of_library = scripted_library_function(obj)
    if of_library is not None:
        return of_library
    if not isinstance(inspect.unwrap(obj) if callable(obj) else obj, types.FunctionType):
        raise RuntimeError(
            f"jit.script takes a function, an nn.Module or a class, not {type(obj).__name__}; "
            "script its __call__, or a function that calls it"
        )
    return _script_function(obj)


def _script_container(items: Any) -> Any:
    """Return a list or dict that Python and scripts share."""
    plain: Type = ListType(TENSOR) if isinstance(items, list) else DictType(STR, TENSOR)
    kind = type_of_value(items, WORLD.class_type) if items else plain
    if isinstance(kind, ListType):
        return ScriptList(kind, items, fitted)
    if isinstance(kind, DictType):
        return ScriptDict(kind, items, fitted)
    raise RuntimeError(
        f"jit.script: the {type(items).__name__} has elements of several types, or of one that "
        "scripts do not have"
    )


def _script_function(function: Any) -> ScriptedFunction:
    found = WORLD.function_meaning(function)
    if not isinstance(found, FunctionValue):
        raise RuntimeError(f"{function.__name__} cannot be scripted")
    unit = found.units[0]
    unit.check()
    known: ScriptedFunction | None = getattr(unit, "scripted", None)
    if known is None:
        known = unit.scripted = ScriptedFunction(unit)  # type: ignore[attr-defined]
    return known


def _script_class(cls: type, more: Any) -> type:
    if issubclass(cls, nn.Module):
        raise RuntimeError(
            f"Type '{cls}' cannot be compiled since it inherits from nn.Module, consider passing "
            "an instance instead"
        )
    if len(cls.__mro__) > 2 and not issubclass(cls, (tuple, enum.Enum)):
        raise RuntimeError(
            "TorchScript classes does not support inheritance yet. Please directly inherit from "
            "'object'."
        )
    if not WORLD.knows_class(cls):
        WORLD.script_class(cls, more)
    return cls


def interface(obj: Any) -> Any:
    """Script an interface: a class whose methods are signatures.

    Raises:
        RuntimeError: it cannot be scripted.
    """
    WORLD.script_interface(obj)
    return obj


def script_if_tracing(fn: Any) -> Any:
    """Return a function that is scripted where it is traced, so that its control flow is kept."""

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return (script(fn) if is_tracing() else fn)(*args, **kwargs)

    vars(wrapper)["__original_fn"] = fn
    vars(wrapper)["__script_if_tracing_wrapper"] = True
    return wrapper


_script_if_tracing = script_if_tracing


def _script_module(module: nn.Module) -> Any:
    made = scripted_module(WORLD, _prepared(module, {}))
    if not isinstance(made, ScriptedModule):
        made = _wrapped_library(made)
    _check_methods(made, set())
    return made


def _prepared(module: Any, done: dict[int, Any]) -> Any:
    """Return what stands for a module in scripts, by its `__prepare_scriptable__` and those inside.

    Where one inside has another that stands for it, its owner is copied; nothing is changed.
    """
    if id(module) in done:
        return done[id(module)]
    prepare = getattr(module, "__prepare_scriptable__", None)
    made = done[id(module)] = module if prepare is None else prepare()
    if isinstance(made, ScriptModule):
        return made
    children = {
        name: None if child is None else _prepared(child, done)
        for name, child in made._modules.items()
    }
    if any(child is not made._modules[name] for name, child in children.items()):
        made = done[id(module)] = copy.copy(made)
        made.__dict__["_modules"] = children
    return made


def _wrapped_library(module: nn.Module) -> ScriptedModule:
    """Return a module of the library by itself, in a scripted one that calls it."""
    kind = WORLD.module_type(module)
    made = ScriptedModule(kind.unit)
    made.__dict__["library_module"] = module
    for name, value in vars(module).items():
        made.__dict__[name] = value
    return made


def _check_methods(module: Any, seen: set[int]) -> None:
    """Check `forward` and the exported methods of a module and those inside."""
    if not isinstance(module, ScriptedModule) or id(module) in seen:
        return
    seen.add(id(module))
    unit = module.script_unit
    for name in _wanted(unit):
        found = unit.method(name)
        if isinstance(found, Unit):
            found.check()
    for child in module._modules.values():
        _check_methods(child, seen)


def _wanted(unit: Any) -> list[str]:
    """Return the methods that are scripted although nobody has called them yet."""
    if unit.is_library or unit.is_container:
        return []
    found = []
    forward = getattr(unit.cls, "forward", None)
    is_own = forward is not None and forward is not nn.Module.forward
    if is_own and modifier_of(forward) not in ("ignore", "unused"):
        found.append("forward")
    for name in dir(unit.cls):
        member = inspect.getattr_static(unit.cls, name, None)
        if isinstance(member, types.FunctionType) and modifier_of(member) == "export":
            found.append(name)
    return found
