"""`freeze` and `optimize_for_inference`."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad import nn
from tangrad_jit.scripting.check.functions import Parameter, Unit
from tangrad_jit.scripting.check.python_names import PythonNames
from tangrad_jit.scripting.check.statements import Statements
from tangrad_jit.scripting.freezing.folding import fold
from tangrad_jit.scripting.freezing.library import library_forward
from tangrad_jit.scripting.freezing.places import FrozenPlaces
from tangrad_jit.scripting.freezing.specialising import Specialiser, UnfreezableError
from tangrad_jit.scripting.freezing.writes import Writes
from tangrad_jit.scripting.objects.known import WORLD
from tangrad_jit.scripting.objects.module import ScriptedModule
from tangrad_jit.scripting.recording.traced import TracedScript
from tangrad_jit.scripting.recording.unit import RecordedUnit
from tangrad_jit.scripting.source.places import Place, Source
from tangrad_jit.scripting.tree import nodes as tree
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.kinds import Type
from tangrad_jit.tracing.freezing import frozen_graphs, simplified
from tangrad_jit.tracing.script_module import ScriptModule
from tangrad_jit.tracing.traced_module import TopLevelTracedModule

__all__ = ["freeze", "optimize_for_inference", "run_frozen_optimizations"]

_SCALARS = (bool, int, float, complex, str, type(None), tangrad.dtype, tangrad.device)


def freeze(
    mod: Any, preserved_attrs: list[str] | None = None, optimize_numerics: bool = True
) -> Any:
    """Return a module whose parameters, buffers and attributes are constants of its methods.

    Calls of the modules inside are written out, and what depends on constants alone is computed.
    What a method sets or writes in place stays an attribute, on the same tensor as the original's.

    Args:
        mod: a scripted, traced or loaded module in evaluation mode.
        preserved_attrs: methods that are kept besides `forward`, and attributes and modules that
            stay what they are.
        optimize_numerics: also fold batch norm into the convolution before it, and in traces into
            the linear layer.

    Raises:
        RuntimeError: `mod` is no script, is in training mode, has nothing of a name that is to be
            preserved, or puts a module in another's place.
    """
    return _frozen(mod, preserved_attrs or [], optimize_numerics, batches=True)


def optimize_for_inference(mod: Any, other_methods: list[str] | None = None) -> Any:
    """Return a module frozen, with batch norm folded and graphs simplified.

    Args:
        mod: a scripted, traced or loaded module.
        other_methods: methods that are kept besides `forward`.
    """
    if not isinstance(mod, ScriptModule):
        raise RuntimeError(
            "optimize_for_inference expects ScriptModule as input. Please use torch.jit.script or "
            "torch.jit.trace to script your 'nn.Module'."
        )
    # What the passes may do with sizes holds for the example's.
    frozen = _frozen(mod.eval(), other_methods or [], True, batches=False)
    if isinstance(frozen, TopLevelTracedModule):
        simplified(frozen.methods)
    return frozen


def run_frozen_optimizations(
    mod: Any, optimize_numerics: bool = True, preserved_methods: list[str] | None = None
) -> None:
    """Fold a module where it stands that was frozen without it.

    Args:
        mod: what `freeze` has returned.
        optimize_numerics: fold batch norm into the convolution before it.
        preserved_methods: methods besides `forward`.
    """
    methods = getattr(getattr(mod, "script_unit", None), "methods", {})
    for name in ("forward", *(preserved_methods or ())):
        unit = methods.get(name)
        if isinstance(unit, RecordedUnit):
            fold(unit, optimize_numerics)
            unit.forget_programs()


def _frozen(mod: Any, preserved: list[str], numerics: bool, *, batches: bool) -> Any:
    mod = getattr(mod, "__dict__", {}).get("_actual_script_module", mod)
    if not isinstance(mod, ScriptModule):
        raise RuntimeError(
            "Freezing expects a ScriptModule as input. Please use torch.jit.script or "
            "torch.jit.trace to script your 'nn.Module'."
        )
    if mod.training:
        raise RuntimeError(
            "Freezing is currently only implemented for modules in eval mode. Please call .eval() "
            "on your module before freezing."
        )
    graphs: dict[str, Any] = {}
    if isinstance(mod, TopLevelTracedModule):
        wanted = {"forward", *preserved}
        graphs = frozen_graphs(mod, wanted, numerics, batches)
        if not isinstance(mod, TracedScript):
            for name in wanted - mod.methods.keys() - {"forward"}:
                raise RuntimeError(f"Unknown name: {name}")
            alone = TopLevelTracedModule(None, graphs)
            alone.original_name = mod.original_name
            return alone.eval()
    assert isinstance(mod, ScriptedModule)
    mod.refuse_swaps()
    try:
        places = _frozen_program(mod, preserved, numerics)
    except UnfreezableError:
        return mod.frozen_copy()
    made = places.module()
    made.original_name = mod.original_name
    if not graphs:
        return made
    return TracedScript(made.script_unit, graphs).take(made).eval()


def _frozen_program(root: ScriptedModule, preserved: list[str], numerics: bool) -> FrozenPlaces:
    methods = _methods_of(root, preserved)
    found = [_preserved(root, name) for name in preserved if name not in methods]
    kept = {(id(module), name) for module, name in found}
    whole = {
        id(inner)
        for module, name in found
        if module._modules.get(name) is not None
        for inner in module._modules[name].modules()
    }
    modules = [(id(module), module) for module in root.modules()]
    every = {(key, name) for key, module in modules for name in _names_of(module)}
    sets = _specialised(root, methods, every, whole)[1].sets
    plain = {
        (key, name)
        for key, module in modules
        for name in _names_of(module)
        if isinstance(_held(module, name), _SCALARS)
    }
    places, special = _specialised(root, methods, (every - plain) | sets, whole)
    written = {
        places.attribute(path)
        for unit in special.made.values()
        for path in Writes(unit.body).attributes()
    }
    places, special = _specialised(root, methods, kept | sets | written, whole)
    for unit in special.made.values():
        fold(unit, numerics)
    for module, name in found:
        places.keep(module, name)
    places.root_type.unit.methods.update(special.made)
    return places


def _specialised(
    root: ScriptedModule, methods: dict[str, Unit], kept: set[tuple[int, str]], whole: set[int]
) -> tuple[FrozenPlaces, Specialiser]:
    places = FrozenPlaces(WORLD, root, kept, whole)
    special = Specialiser(places, {})
    for name, unit in methods.items():
        special.method(name, unit, root)
    return places, special


def _names_of(module: nn.Module) -> list[str]:
    unit = getattr(module, "script_unit", None)
    held = [*module._parameters, *module._buffers, "training"]
    return held if unit is None else [*held, *unit.attributes, *unit.constants]


def _held(module: nn.Module, name: str) -> Any:
    unit = getattr(module, "script_unit", None)
    if unit is not None and name in unit.constants:
        return unit.constants[name]
    return getattr(module, name)


def _methods_of(root: ScriptedModule, preserved: list[str]) -> dict[str, Unit]:
    """Return the methods that are frozen, by name.

    Raises:
        RuntimeError: there is nothing of a name.
        UnfreezableError: `forward` has no form of the language.
    """
    unit = root.script_unit
    found: dict[str, Unit] = {}
    forward = _forward_of(root)
    if forward is not None:
        found["forward"] = forward
    for name in preserved:
        if name == "forward":
            continue
        method = unit.methods.get(name) if not unit.is_container else None
        if isinstance(method, Unit):
            found[name] = method
    return found


def _preserved(root: nn.Module, text: str) -> tuple[Any, str]:
    """Return a module and the name of its attribute, or module inside, that is to be preserved.

    For a method of a module inside, that module.

    Raises:
        RuntimeError: there is nothing of that name.
    """
    *path, name = text.split(".")
    above: Any = None
    module: Any = root
    for part in path:
        above, module = module, module._modules.get(part)
        if module is None:
            raise RuntimeError(f"Unknown name: {text}")
    if name in _names_of(module) or module._modules.get(name) is not None:
        return module, name
    unit = getattr(module, "script_unit", None)
    if above is not None and unit is not None and isinstance(unit.methods.get(name), Unit):
        return above, path[-1]
    raise RuntimeError(f"Unknown name: {text}")


def _forward_of(root: ScriptedModule) -> Unit | None:
    unit = root.script_unit
    if "library_module" in vars(root):
        found = library_forward(root)
        if found is None:
            raise UnfreezableError
        return found
    if unit.is_container:
        return _sequence(root) if issubclass(unit.cls, nn.Sequential) else None
    hooked = unit.hooked_call()
    if hooked is not None:
        return hooked
    method = unit.method("forward")
    return method if isinstance(method, Unit) else None


def _sequence(root: ScriptedModule) -> Unit:
    """Return a method that calls the modules of a sequence in turn."""
    source = Source("<forward of a sequence>", 1, [""])
    place = Place(source, 0, 0, 0, 0, "forward")
    check = Statements(WORLD, PythonNames(namespace={}), source, "forward")
    kind = root.script_unit.type
    given = _input_of(root.script_unit)
    value: Any = tree.Local(place, given, "input")
    owner = tree.Local(place, kind, "self")
    value = check.expr_of(
        root.script_unit.call_method(check, owner, "forward", [value], {}, place), place
    )
    parameters = [Parameter("self", kind), Parameter("input", given)]
    body: list[tree.Node] = [tree.Return(place, value)]
    qualified = f"{root.script_unit.qualified}.forward"
    return RecordedUnit(WORLD, "forward", qualified, source, parameters, body, value.type, kind)


def _input_of(unit: Any) -> Type:
    """Return the type of what a sequence takes."""
    for child in unit.children.values():
        if child is None:
            continue
        method = None if child.unit.is_container else child.unit.method("forward")
        if isinstance(method, Unit):
            return method.parameters[1].type
        return _input_of(child.unit) if child.unit.is_container else kinds.TENSOR
    return kinds.TENSOR
