"""Modules of classes that derive from `ScriptModule`: scripted when their `__init__` is done."""

from __future__ import annotations

from typing import Any

from tangrad import nn
from tangrad_jit.scripting.check.functions import Unit
from tangrad_jit.scripting.check.modules import ModuleUnit
from tangrad_jit.scripting.check.world import modifier_of
from tangrad_jit.scripting.objects.compilation_unit import define_methods
from tangrad_jit.scripting.objects.known import WORLD
from tangrad_jit.scripting.objects.module import ScriptedModule, filled
from tangrad_jit.tracing.script_module import ScriptModule

__all__ = ["define", "script_declared"]

_TEXTS = "_defined_methods"


def define(module: ScriptModule, text: str, namespace: Any) -> None:
    """Add methods that are given as text to a module, or note them until it is scripted.

    Raises:
        RuntimeError: the text cannot be scripted.
    """
    actual = module.__dict__.get("_actual_script_module", module)
    if isinstance(actual, ScriptedModule):
        actual.take_unit(actual.script_unit.copy())
        define_methods(actual.script_unit, text, namespace=namespace)
    else:
        module.__dict__.setdefault(_TEXTS, []).append((text, namespace))


def script_declared(module: ScriptModule) -> None:
    """Script what a module's class declares.

    Raises:
        RuntimeError: it cannot be scripted.
    """
    texts = module.__dict__.pop(_TEXTS, [])
    unit = ModuleUnit(WORLD, module) if texts else WORLD.module_type(module).unit
    made = filled(WORLD, ScriptedModule(unit), module, {})
    for text, namespace in texts:
        define_methods(unit, text, namespace=namespace)
    for name in dir(unit.cls):
        if modifier_of(getattr(unit.cls, name, None)) == "export":
            found = unit.method(name)
            if isinstance(found, Unit):
                found.check()
    state = module.__dict__
    for name in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"):
        state[name] = made.__dict__[name]
    for name in [*unit.attributes, *unit.constants, *unit.functions]:
        if name != "training":
            state.pop(name, None)
    state["_actual_script_module"] = made
    assert isinstance(module, nn.Module)
