"""From recordings to the functions and modules that Python calls."""

from __future__ import annotations

import inspect
import linecache
from typing import Any

from tangrad import nn
from tangrad_jit.scripting.check.functions import Parameter
from tangrad_jit.scripting.check.world import qualified_name
from tangrad_jit.scripting.objects.function import ScriptedFunction
from tangrad_jit.scripting.objects.known import WORLD
from tangrad_jit.scripting.objects.module import ScriptedModule, scripted_module
from tangrad_jit.scripting.recording.calls import plain
from tangrad_jit.scripting.recording.following import following
from tangrad_jit.scripting.recording.module_calls import module_calls
from tangrad_jit.scripting.recording.recorder import Recording, is_whole
from tangrad_jit.scripting.recording.traced import TracedFunction, TracedScript
from tangrad_jit.scripting.recording.unit import RecordedModule, RecordedUnit
from tangrad_jit.scripting.recording.whole import whole_method
from tangrad_jit.scripting.source.places import Place, ScriptError, Source
from tangrad_jit.scripting.tree.nodes import Local, Return
from tangrad_jit.scripting.types.kinds import Type
from tangrad_jit.tracing.script_module import ScriptModule
from tangrad_jit.tracing.traced_module import TracedGraph

__all__ = ["Program"]


class Program:
    """What a trace makes of the runs of a function, or of methods of a module.

    Args:
        original: the module, or None.
        outplace: record writes of whole tensors as ops that make new ones.
    """

    def __init__(self, original: nn.Module | None, outplace: bool = False) -> None:
        self.original, self.outplace = original, outplace
        self.owner: Any = None if original is None else modules_of(original)
        self._methods: list[Method] = []

    def method(self, call: Any, name: str) -> Method:
        """Return what records a call as a method, or as the function."""
        made = self.again(call, name)
        self._methods.append(made)
        return made

    def again(self, call: Any, name: str) -> Method:
        """Return what records a call for a second time, to compare."""
        return Method(self, call, name)

    @property
    def is_whole(self) -> bool:
        """Whether all runs are programs of the language."""
        return all(method.is_program for method in self._methods)

    def function(self, graph: TracedGraph | None) -> ScriptedFunction:
        """Return the function.

        Args:
            graph: what runs it for the sizes of its example, or None where it calls scripts.

        Raises:
            RuntimeError: the run is no program of the language.
        """
        unit = self._methods[0].made()
        if graph is not None:
            _tell(graph, self._methods[0])
        return ScriptedFunction(unit) if graph is None else TracedFunction(unit, graph)

    def module(self, graphs: dict[str, TracedGraph]) -> Any:
        """Return the module.

        Args:
            graphs: by methods, what runs them for the sizes of their examples.

        Raises:
            RuntimeError: a run is no program of the language.
        """
        unit = self.owner.script_unit
        for method in self._methods:
            unit.methods[method.name] = method.made()
            if method.name in graphs:
                _tell(graphs[method.name], method)
        return TracedScript(unit, graphs).take(self.owner)


class Method:
    """A call that is recorded, as a function or as a method of a module.

    Args:
        program: of which it is one.
        call: what runs. name: of it.

    Attributes:
        kept: lines at which a result of a script became a constant.
        follows_sizes: whether nothing but arithmetic was done with sizes of tensors.
        follows_form: whether nobody has looked at dimensions and dtypes.
    """

    def __init__(self, program: Program, call: Any, name: str) -> None:
        self.call, self.name, self.program = call, name, program
        self.qualified = qualified_name(call)
        file = _file_of(call)
        self._source = Source(file, 1, [line.rstrip("\n") for line in linecache.getlines(file)])
        self._parameters: list[Parameter] = []
        self._unit: RecordedUnit | None = None
        self._failure = ""
        self.kept: list[str] = []
        self.follows_sizes = self.follows_form = False

    def run(self, watch: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the call, and return its result.

        Args:
            watch: told by `is_paused` while a script runs, and by `is_over` that one has run; its
                `has_made` tells what ops have made.
            args, kwargs: what it is called with.
        """
        recording = Recording(WORLD, watch, self.name, self.program.outplace)
        place = Place(self._source, 0, 0, 0, 0, self.name)
        if self.program.original is not None:
            kind = self.program.owner.script_unit.type
            self._parameters.append(Parameter("self", kind))
            recording.module(self.program.original, kind, Local(place, kind, "self"))
            self.qualified = f"{self.program.owner.script_unit.qualified}.{self.name}"
        try:
            for key, value in _named(self.call, args, kwargs, bool(self._parameters)):
                held = recording.type_of(value)
                self._parameters.append(Parameter(key, held))
                recording.argument(value, Local(place, held, key))
        except ScriptError as error:
            recording.fail(error)
        with recording, following(recording), recording.whole_modules(), module_calls(recording):
            result = self.call(*args, **kwargs)
        self.kept = recording.kept
        self.follows_sizes = not recording.reads_sizes
        self.follows_form = not recording.reads_form
        try:
            self._unit = self._of_library(args, kwargs) or self._recorded(recording, result)
        except ScriptError as error:
            self._failure = str(error)
        return plain(result)

    def _of_library(self, args: Any, kwargs: Any) -> Any:
        """Return the method of a module that stays one call, as PyTorch has it, or None."""
        module = self.program.original
        if (
            module is None
            or not is_whole(module)
            or getattr(self.call, "__self__", None)
            not in (
                None,
                module,
            )
        ):
            return None
        return whole_method(module, self.program.owner.script_unit.type, self.name, args, kwargs)

    @property
    def is_program(self) -> bool:
        """Whether the run is a program of the language."""
        return self._unit is not None

    def made(self) -> RecordedUnit:
        """Return the program.

        Raises:
            RuntimeError: the run is none of the language.
        """
        if self._unit is None:
            raise RuntimeError(
                f"jit.trace: {self.name} calls scripts, and so has to be a program of the script "
                f"language, which it is not: {self._failure}"
            )
        return self._unit

    def _recorded(self, recording: Recording, result: Any) -> RecordedUnit:
        body, value = recording.finished(result)
        body.append(Return(value.place, value))
        owner: Type | None = None if not self.program.owner else self.program.owner.script_unit.type
        return RecordedUnit(
            WORLD,
            self.name,
            self.qualified,
            self._source,
            self._parameters,
            body,
            value.type,
            owner,
            recording.shapes,
        )


def _file_of(call: Any) -> str:
    code = getattr(getattr(call, "forward", call), "__code__", None)
    return "<trace>" if code is None else str(code.co_filename)


def _tell(graph: TracedGraph, method: Method) -> None:
    graph.follows_sizes, graph.follows_form = method.follows_sizes, method.follows_form


def _named(
    call: Any, args: tuple[Any, ...], kwargs: dict[str, Any], is_method: bool
) -> list[tuple[str, Any]]:
    """Return the arguments of a call with the names of their parameters, in the order of these."""
    try:
        parameters = list(inspect.signature(getattr(call, "forward", call)).parameters.values())
    except (TypeError, ValueError):  # of a function in C
        parameters = []
    placed = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    taken = {"self"} if is_method else set()
    found = []
    for k, value in enumerate(args):
        name = placed[k] if k < len(placed) and placed[k] not in taken else f"argument_{k + 1}"
        found.append((name, value))
    order = {name: k for k, name in enumerate(placed)}
    return [*found, *sorted(kwargs.items(), key=lambda item: order.get(item[0], len(order)))]


def modules_of(module: nn.Module, inside: dict[int, Any] | None = None) -> Any:
    """Return what a module becomes when it is traced: its tensors, and the same of those inside.

    Scripted modules inside stay what they are, and some of the library.

    Args:
        module: the module.
        inside: those within the one that is traced, by identity; None for that one.

    Raises:
        ValueError: it has hooks of its backward.
    """
    memo = {} if inside is None else inside
    if id(module) in memo:
        return memo[id(module)]
    if isinstance(module, ScriptModule) or (is_whole(module) and inside is not None):
        memo[id(module)] = made = scripted_module(WORLD, module)
        return made
    if module._backward_hooks or module._backward_pre_hooks:
        raise ValueError(
            "Modules that have backward hooks assigned can't be compiled: "
            f"{type(module).__name__}; remove them, trace, and register them anew"
        )
    children = {
        name: modules_of(child, memo)
        for name, child in module._modules.items()
        if child is not None
    }
    unit = RecordedModule(WORLD, module, children)
    made = memo[id(module)] = ScriptedModule(unit)
    state = vars(made)
    state["_parameters"] = dict(module._parameters)
    state["_buffers"] = dict(module._buffers)
    state["_non_persistent_buffers_set"] = set(module._non_persistent_buffers_set)
    state["_modules"] = children
    state["training"] = module.training
    return made
