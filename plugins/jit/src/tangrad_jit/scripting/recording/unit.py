"""What a recording makes: functions, and the units of the modules that have them as methods."""

from __future__ import annotations

import ast
from typing import Any

from tangrad import nn
from tangrad_jit.scripting.check.functions import Parameter, Unit
from tangrad_jit.scripting.check.modules import ModuleUnit
from tangrad_jit.scripting.check.python_names import PythonNames
from tangrad_jit.scripting.source.places import Source
from tangrad_jit.scripting.tree.nodes import Node
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.kinds import ModuleType, Type

__all__ = ["RecordedModule", "RecordedUnit"]


class RecordedUnit(Unit):
    """A function whose body has been recorded.

    Args:
        world: what is scripted.
        name: of the function. qualified: its name in archives.
        source: where it stands.
        parameters: what it takes.
        body: its statements. returned: the type of what it returns.
        owner: the type of `self`, for methods.
        shapes: the types that the run has seen in variables, as graphs show them.
    """

    def __init__(
        self,
        world: Any,
        name: str,
        qualified: str,
        source: Source,
        parameters: list[Parameter],
        body: list[Node],
        returned: Type,
        owner: Type | None = None,
        shapes: dict[str, str] | None = None,
    ) -> None:
        node = ast.parse("def forward(): pass").body[0]
        assert isinstance(node, ast.FunctionDef)
        node.name = name
        super().__init__(world, name, qualified, source, node, PythonNames(namespace={}), {})
        self.owner, self.parameters = owner, parameters
        self.declared = self._returned = returned
        self._body = body
        self.shapes = shapes or {}

    def forget_programs(self) -> None:
        """Make programs and graphs anew when they are needed: the body is another."""
        self.program = self.machine = self.gains = None
        for name in ("entry", "graphs"):
            vars(self).pop(name, None)


class RecordedModule(ModuleUnit):
    """What a traced module is: parameters, buffers, modules, and recorded methods.

    Args:
        world: what is scripted.
        module: the original.
        scripted: the modules inside that are scripted, or recorded, by name.
    """

    def __init__(self, world: Any, module: nn.Module, scripted: dict[str, Any]) -> None:
        original = type(module)
        self.world = world
        namespace = {"__module__": original.__module__, "__qualname__": original.__qualname__}
        self.cls = type(original.__name__, (nn.Module,), namespace)
        self.is_library = self.is_keyed = self.is_container = False
        self._hook_functions = ([], [])
        self.pre_hooks, self.hooks, self._hooked_call = [], [], None
        top = original.__module__.replace("tangrad", "torch", 1)
        inside = [] if top == "__main__" else top.split(".")
        self.qualified = ".".join(["__torch__", *inside, original.__name__])
        self.type = ModuleType(self.qualified, self)
        held = [*module._parameters.items(), *module._buffers.items()]
        self.attributes = {
            name: kinds.NONE if tensor is None else kinds.TENSOR for name, tensor in held
        }
        self.attributes["training"] = kinds.BOOL
        self.children = {
            name: world.module_type(scripted[name])
            for name, child in module._modules.items()
            if child is not None
        }
        self.constants, self.functions, self.failed = {}, {}, {}
        self._methods, self._overloads, self._traced, self._replaced = {}, {}, {}, {}
        self.parameter_names = list(module._parameters)
        self.buffer_names = list(module._buffers)

    def method(self, name: str) -> Any:
        """Return a recorded method, or None."""
        return self._methods.get(name)
