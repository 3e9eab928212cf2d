"""`unflatten`: a program becomes a tree of modules again, like the one that was exported.

Every call of a module is a graph of its own, in a module at the original's path; a module that is
called again is `PATH@1` the second time, with the same parameters. What a graph takes and gives are
the tensors that cross its border, not the arguments of the original `forward`.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

from tangrad.nn import Module, Parameter
from tangrad_fx.codegen import PyTreeCodeGen, PyTreeInfo
from tangrad_fx.export.exported_program import ExportedProgram
from tangrad_fx.export.graph_signature import InputKind
from tangrad_fx.export.nested import attached
from tangrad_fx.graph import Graph
from tangrad_fx.graph_module import GraphModule, _assign_attr
from tangrad_fx.node import Node, map_arg

__all__ = ["InterpreterModule", "UnflattenedModule", "unflatten"]


class InterpreterModule(Module):
    """A module whose `forward` is what a graph says.

    Args:
        graph: the graph.
        ty: name of the type of the original.
    """

    def __init__(self, graph: Graph, ty: str | None = None) -> None:
        super().__init__()
        self.graph = graph
        self._ty = ty
        graph.owning_module = self

    def type_name(self) -> str | None:
        """Return the name of the type of the original."""
        return self._ty

    def finalize(self) -> None:
        """Generate `forward`; the modules and tensors that the graph uses are there by now."""
        # No submodule: its attributes are those of this module.
        made = self.__dict__["graph_module"] = GraphModule(self, self.graph)
        if hasattr(made, "_in_spec"):  # the code of the whole program reads it
            self._in_spec, self._out_spec = made._in_spec, made._out_spec

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph."""
        return type(self.graph_module).forward(self, *args, **kwargs)


class UnflattenedModule(InterpreterModule):
    """What `unflatten` returns: it takes the arguments that the original took."""


class _Frame:
    """One call of a module: the nodes that it made, and calls of modules, in their order."""

    def __init__(self, path: str, name: str, ty: str | None) -> None:
        self.path, self.name, self.ty = path, name, ty
        self.items: list[Node | _Frame] = []

    def nodes(self) -> Iterator[Node]:
        """Yield the nodes of this and of those inside of it."""
        for item in self.items:
            if isinstance(item, Node):
                yield item
            else:
                yield from item.nodes()


def unflatten(module: ExportedProgram, flat_args_adapter: Any = None) -> UnflattenedModule:
    """Return a program as a tree of modules, at the paths of those that were exported.

    Args:
        module: the program.
        flat_args_adapter: None; arguments that are nested otherwise are refused.

    Raises:
        TypeError: `module` is no exported program.
        NotImplementedError: an adapter is given.
    """
    if not isinstance(module, ExportedProgram):
        raise TypeError(f"unflatten: expected an ExportedProgram, got {type(module).__name__}")
    if flat_args_adapter is not None:
        raise NotImplementedError(
            "unflatten: flat_args_adapter is not supported; nest the arguments as in the example"
        )
    return _Builder(module).build()


class _Builder:
    """The parts of a program, as they are put together."""

    def __init__(self, program: ExportedProgram) -> None:
        self.program = program
        nodes = list(program.graph.nodes)
        self.output = next(n for n in nodes if n.op == "output")
        inputs = [n for n in nodes if n.op == "placeholder"]
        specs = program.graph_signature.input_specs
        self.tensors = Module()
        self.paths: dict[Node, str] = {}  # of parameters, buffers and constants
        self.arguments: list[Node] = []
        copies: dict[int, Any] = {}
        for node, spec in zip(inputs, specs, strict=True):
            if spec.kind is InputKind.USER_INPUT:
                self.arguments.append(node)
                continue
            self.paths[node] = path = str(spec.target)
            tensor = program._tensor(path)
            if id(tensor) not in copies:
                copies[id(tensor)] = _copied(tensor)
            _assign_attr(copies[id(tensor)], self.tensors, path)
            if spec.persistent is False:
                above, _, last = path.rpartition(".")
                self.tensors.get_submodule(above)._non_persistent_buffers_set.add(last)

    def build(self) -> UnflattenedModule:
        """Return the tree."""
        root = _framed(self.program.graph, type_name=self.program.graph_module._get_name())
        made = self._module(root, self.arguments, None)
        info = PyTreeInfo(
            self.program._argument_names, self.program._in_spec, self.program._out_spec
        )
        made.graph.set_codegen(PyTreeCodeGen(info))
        made.finalize()
        made.register_forward_pre_hook(self.program._guards(), with_kwargs=True)
        assert isinstance(made, UnflattenedModule)
        return made

    def _module(
        self, frame: _Frame, arguments: list[Node], results: list[Node] | None
    ) -> InterpreterModule:
        """Return a call as a module.

        Args:
            frame: the call.
            arguments: what crosses its border inwards.
            results: what does outwards, None for the whole program.
        """
        graph = Graph()
        cls = UnflattenedModule if results is None else InterpreterModule
        module = cls(graph, frame.ty)
        self._share(frame.path, module)
        names: dict[Node, Any] = {n: graph.placeholder(n.name) for n in arguments}

        def given(node: Node) -> Any:
            if node not in names:
                below = self.paths[node].removeprefix(f"{frame.path}." if frame.path else "")
                names[node] = graph.get_attr(below)
            return names[node]

        for item in frame.items:
            if isinstance(item, Node):
                for used in item.all_input_nodes:
                    given(used)
                names[item] = graph.node_copy(item, given)
            else:
                self._call(frame, item, module, names, given)
        attached(module, graph)
        if results is None:
            graph.output(map_arg(self.output.args[0], given))
            return module
        outs = tuple(names[n] for n in results)
        graph.output(outs[0] if len(outs) == 1 else outs)
        module.finalize()
        return module

    def _call(
        self, outer: _Frame, inner: _Frame, module: Module, names: dict[Node, Any], given: Any
    ) -> None:
        """Add a call of a module to a graph, and the module to that of the graph."""
        within = dict.fromkeys(inner.nodes())
        used = dict.fromkeys(n for node in within for n in node.all_input_nodes)
        wanted = [
            n for n in used if n not in within and not self._is_below(inner.path, self.paths.get(n))
        ]
        results = [n for n in within if any(user not in within for user in n.users)]
        graph = module.graph
        made = self._module(inner, wanted, results)
        prefix = f"{outer.path}." if outer.path else ""
        below = inner.path.startswith(prefix)
        target = inner.name.removeprefix(prefix) if below else inner.name.replace(".", "_")
        _assign_attr(made, module, target)
        call = graph.call_module(target, tuple(given(n) for n in wanted))
        if len(results) == 1:
            names[results[0]] = call
            call.meta.update(results[0].meta)
            return
        for i, node in enumerate(results):
            names[node] = graph.call_function(operator.getitem, (call, i))

    @staticmethod
    def _is_below(path: str, tensor: str | None) -> bool:
        return tensor is not None and (not path or tensor.startswith(f"{path}."))

    def _share(self, path: str, module: Module) -> None:
        """Give a module the tensors below a path, and plain modules for those further below."""
        try:
            source = self.tensors.get_submodule(path)
        except AttributeError:
            return  # it has no tensors
        for place, part in source.named_modules():
            if not part._parameters and not part._buffers:
                continue
            into = _at(module, place)
            into._parameters.update(part._parameters)
            into._buffers.update(part._buffers)
            into._non_persistent_buffers_set |= part._non_persistent_buffers_set


def _copied(tensor: Any) -> Any:
    if isinstance(tensor, Parameter):
        return Parameter(tensor.detach().clone(), tensor.requires_grad)
    return tensor.detach().clone()


def _at(module: Module, path: str) -> Module:
    """Return the module at a path, where there are plain ones if there are none."""
    for name in path.split(".") if path else ():
        if name not in module._modules:
            module.add_module(name, Module())
        module = module._modules[name]
    return module


def _framed(graph: Graph, type_name: str) -> _Frame:
    """Return the calls of a graph by the modules that made them."""
    root = _Frame("", "", type_name)
    open_frames: list[tuple[str, _Frame]] = []
    for node in graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        stack = [(k, v) for k, v in node.meta.get("nn_module_stack", {}).items() if v[0]]
        same = 0
        while same < min(len(stack), len(open_frames)) and open_frames[same][0] == stack[same][0]:
            same += 1
        del open_frames[same:]
        for key, (path, ty) in stack[same:]:
            outer = open_frames[-1][1] if open_frames else root
            again = sum(isinstance(i, _Frame) and i.path == path for i in outer.items)
            frame = _Frame(path, f"{path}@{again}" if again else path, ty)
            outer.items.append(frame)
            open_frames.append((key, frame))
        (open_frames[-1][1] if open_frames else root).items.append(node)
    return root
