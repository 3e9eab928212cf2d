"""What tracing makes: functions and modules that run graphs, with parameters where they were."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tangrad
from tangrad import nn
from tangrad.plugin import dispatch, find_op, is_intercepted
from tangrad_jit.graph.ir import DRAW, Graph, Node, Value, map_values
from tangrad_jit.graph.types import TensorType, type_of
from tangrad_jit.run.interpreter import run_node
from tangrad_jit.run.plan import Plan
from tangrad_jit.tracing.batches import BatchGraph, LaterBatch
from tangrad_jit.tracing.other_sizes import OtherSizes
from tangrad_jit.tracing.script_module import RecursiveScriptModule, ScriptModule
from tangrad_jit.tracing.structure import Arguments, Structure

__all__ = [
    "RecursiveScriptModule",
    "ScriptFunction",
    "ScriptModule",
    "TopLevelTracedModule",
    "TracedModule",
    "export_opnames",
]


# What `Arguments` says of their number and names, not of what is in them.
_OF_THE_CALL = ("the arguments[0]: expected", "the arguments[1]: expected")


class TracedGraph:
    """A graph with the structure of what it is called with and of what it returns.

    Attributes:
        graph: its inputs are arguments, captures by name, and constants.
        arguments, result: structures.
        reads_values: whether Python has looked at values, which are constants of the graph.
        others: the program's graphs for other sizes, as long as the program is there, or None.
        follows_sizes, follows_form: whether the program that has been recorded computes all that
            depends on sizes; on dimensions and dtypes.
    """

    def __init__(
        self,
        graph: Graph,
        arguments: Arguments,
        result: Structure,
        batch: BatchGraph | LaterBatch | None = None,
        reads_values: bool = False,
    ) -> None:
        self.graph, self.arguments, self.result, self._batch = graph, arguments, result, batch
        self.others: OtherSizes | None = None
        self.follows_sizes = self.follows_form = False
        self.reads_values = reads_values
        self._plan: Plan | None = None
        # Plans place memory by types, which hold for the example's values there.
        self._is_planned = not any(n.op.definition.shape_depends_on_data for n in graph.nodes)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plan": None}

    @property
    def batch(self) -> BatchGraph | None:
        """The graph for other numbers of rows, or None where there is none.

        Asked for it first, the program of a traced graph runs twice.
        """
        return self._batch.get() if isinstance(self._batch, LaterBatch) else self._batch

    @batch.setter
    def batch(self, found: BatchGraph | LaterBatch | None) -> None:
        self._batch = found

    def run(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        held: dict[str, Any],
        program: Any = None,
    ) -> Any:
        """Run the graph.

        Args:
            args, kwargs: as in the example, of the same sizes; where `batch` is there, of any
                number of rows; where `others` is there, of sizes for which it has a graph.
            held: the tensors of the captures, by name.
            program: runs other sizes, if it follows them.
        """
        try:
            given = self.arguments.flatten((args, kwargs))
        except RuntimeError as error:
            if program is None or not str(error).startswith(_OF_THE_CALL):
                raise
            return program(*args, **kwargs)  # which has defaults, and tells what it takes
        # A recorder sees the same calls whatever the sizes are.
        is_other = is_intercepted() or not self._is_example(given)
        if program is not None and is_other and self._is_followed(given):
            return program(*args, **kwargs)
        graph, result = self._graph_for(given)
        taken = iter(given)
        inputs = [
            next(taken)
            if entry.kind == "argument"
            else held[entry.name]
            if entry.kind == "capture"
            else entry.tensor
            for entry in graph.inputs
        ]
        if is_intercepted():
            outputs = _dispatched(graph, inputs)
        elif tangrad.is_grad_enabled() and any(
            isinstance(t, tangrad.Tensor) and t.requires_grad for t in inputs
        ):
            outputs = _interpret_recorded(graph, inputs)
        elif (
            graph is self.graph
            and self._is_planned
            and all(_is_as_recorded(e.value, t) for e, t in zip(graph.inputs, inputs, strict=True))
        ):
            if self._plan is None:
                self._plan = Plan(self.graph)
            outputs = self._plan.run(inputs)
        else:
            with tangrad.no_grad():
                outputs = _interpret_recorded(graph, inputs)
        return result.rebuild(outputs)

    def _is_example(self, given: list[Any]) -> bool:
        """Whether arguments have the sizes and dtypes of the example's."""
        entries = (entry for entry in self.graph.inputs if entry.kind == "argument")
        return all(_is_of(t, entry.value.type) for t, entry in zip(given, entries, strict=True))

    def _is_followed(self, given: list[Any]) -> bool:
        """Whether the program that has been recorded is right for arguments of other sizes."""
        if not self.follows_sizes or self.follows_form:
            return self.follows_sizes
        entries = [entry for entry in self.graph.inputs if entry.kind == "argument"]
        kinds = [entry.value.type for entry in entries]
        pairs = zip(given, kinds, strict=True)
        return all(t.dim() == len(k.shape) and t.dtype.name == k.dtype for t, k in pairs)

    def _graph_for(self, given: list[Any]) -> tuple[Graph, Structure]:
        """Return the graph for arguments of these sizes, and the structure of its result.

        Raises:
            RuntimeError: there is none.
        """
        entries = [entry for entry in self.graph.inputs if entry.kind == "argument"]
        kinds = [entry.value.type for entry in entries]
        if self._is_example(given):
            return self.graph, self.result
        if self.batch is not None:
            rows = {given[k].shape[0] if given[k].dim() else 0 for k in self.batch.arguments}
            if (
                len(rows) == 1
                and 0 not in rows
                and all(
                    _is_of(t, kind, but_rows=k in self.batch.arguments)
                    for k, (t, kind) in enumerate(zip(given, kinds, strict=True))
                )
            ):
                return self.batch.of(rows.pop()), self.result
        other = None if self.others is None else self.others.graph_for(given)
        if other is not None:
            return other
        entry, tensor = next(
            (e, t) for e, t, kind in zip(entries, given, kinds, strict=True) if not _is_of(t, kind)
        )
        kind = entry.value.type
        also = "" if self.batch is None else ", and of other batches of them"
        raise RuntimeError(
            f"{entry.name}: traced for {kind.dtype}{list(kind.shape)}, called with "
            f"{tensor.dtype.name}{list(tensor.shape)}; a traced graph holds for the sizes of its "
            f"example{also}: trace another for these"
        )


def _is_of(tensor: Any, kind: Any, but_rows: bool = False) -> bool:
    """Whether a tensor has the dtype and sizes of a type, the first size aside if told so."""
    shape = tuple(tensor.shape)
    skipped = 1 if but_rows else 0
    same = len(shape) == len(kind.shape) and shape[skipped:] == kind.shape[skipped:]
    return bool(same and tensor.dtype.name == kind.dtype)


def _is_as_recorded(value: Value, tensor: Any) -> bool:
    return not isinstance(value.type, TensorType) or type_of(tensor) == value.type


def _dispatched(graph: Graph, inputs: Sequence[Any]) -> list[Any]:
    """Run a graph for who stands between calls and kernels: a tracer, a transform, a mode."""
    env = _environment(graph, inputs)
    for node in graph.nodes:
        args = map_values(env.__getitem__, node.args)
        if node.form == DRAW:
            made: Any = (None, None)  # whoever calls the op draws, as it does in the program
        elif node.op.kind == "number":
            made = node.op.compute(*args)
        elif node.form == "out":
            outs = tuple(env[value] for value in node.outs)
            made = dispatch(node.op, node.op, args, outs[0] if len(outs) == 1 else outs)
        elif node.form == "inplace":
            made = dispatch(find_op(f"{node.op.name}_"), node.op, args, args[0])
        else:
            made = dispatch(node.op, node.op, args, None)
        several = made if isinstance(made, (tuple, list)) else (made,)
        env.update(zip(node.results, several, strict=False))
        _check_sizes(node, env)
    return [map_values(env.__getitem__, item) for item in graph.outputs]


def _environment(graph: Graph, inputs: Sequence[Any]) -> dict[Value, Any]:
    """Return what a graph's inputs are, with copies of the constants that may change."""
    env: dict[Value, Any] = {}
    copied = {entry.value for entry in graph.fresh_constants()}
    for entry, item in zip(graph.inputs, inputs, strict=True):
        env[entry.value] = item.clone() if entry.value in copied else item
    return env


def _interpret_recorded(graph: Graph, inputs: Sequence[Any]) -> list[Any]:
    """Run a graph node by node, with derivatives."""
    env = _environment(graph, inputs)
    for node in graph.nodes:
        if node.form == DRAW:
            with tangrad.no_grad():
                run_node(node, env)
            continue
        run_node(node, env)
        _check_sizes(node, env)
    return [map_values(env.__getitem__, item) for item in graph.outputs]


def _check_sizes(node: Node, env: dict[Value, Any]) -> None:
    """Refuse a size that depends on values and is not the example's, as what follows relies on it.

    Raises:
        RuntimeError: it is another.
    """
    if not node.op.definition.shape_depends_on_data:
        return
    for value in node.results:
        shape = tuple(env[value].shape)
        if isinstance(value.type, TensorType) and shape != tuple(value.type.shape):
            raise RuntimeError(
                f"{node.name}{f' ({node.line})' if node.line else ''}: the size of its result "
                f"depends on values: it is {list(shape)}, and was {list(value.type.shape)} for the "
                "example, for which a traced graph holds"
            )


class ScriptFunction:
    """A traced function.

    Attributes:
        graph: what it runs.
    """

    def __init__(self, name: str, traced: TracedGraph) -> None:
        self.__name__ = self.name = name
        self._traced = traced

    @property
    def graph(self) -> Graph:
        """The graph."""
        return self._traced.graph

    inlined_graph = graph

    @property
    def code(self) -> str:
        """The graph as text."""
        return str(self.graph)

    def graph_for(self, *args: Any, **kwargs: Any) -> Graph:
        """Return the graph that runs for arguments: there is one."""
        return self.graph

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph."""
        return self._traced.run(args, kwargs, {})

    def save(self, f: Any, _extra_files: dict[str, Any] | None = None) -> None:
        """Write the function to an archive; see `jit.save`."""
        from tangrad_jit.tracing.archive_writing import write

        write(f, _extra_files, {"forward": self._traced}, function=self.name)

    def __repr__(self) -> str:
        return f"<ScriptFunction {self.name}>"


class TracedModule(ScriptModule):
    """A module inside a traced one: it holds parameters and buffers under their names.

    Args:
        original: the module whose tensors it holds, or None.
    """

    is_declared = False

    def __init__(self, original: nn.Module | None = None, name: str = "") -> None:
        super().__init__()
        self.original_name = name
        if original is None:
            return
        self.original_name = type(original).__name__
        self.training = original.training
        skipped = original._non_persistent_buffers_set
        for key, parameter in original._parameters.items():
            self.register_parameter(key, parameter)
        for key, buffer in original._buffers.items():
            self.register_buffer(key, buffer, persistent=key not in skipped)
        if original._backward_hooks or original._backward_pre_hooks:
            raise ValueError(
                "Modules that have backward hooks assigned can't be compiled: "
                f"{type(original).__name__}; remove them, trace, and register them anew"
            )
        for key, child in original._modules.items():
            if child is not None:
                self.add_module(key, TracedModule(child))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse: the graph is that of the whole module.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError("a module inside a traced module has no graph of its own")

    def _get_name(self) -> str:
        return f"{type(self).__name__}({self.original_name})"


class TopLevelTracedModule(TracedModule):
    """A traced module: its methods run graphs.

    Attributes:
        methods: name -> graph.
    """

    def __init__(self, original: nn.Module | None, methods: dict[str, TracedGraph]) -> None:
        super().__init__(original)
        object.__setattr__(self, "methods", methods)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph of `forward`.

        Raises:
            AttributeError: only other methods were traced.
        """
        if "forward" not in self.methods:
            raise AttributeError(f"forward was not traced, but {', '.join(self.methods)}")
        return self._run("forward", args, kwargs)

    def _run(self, name: str, args: Any, kwargs: Any) -> Any:
        return self.methods[name].run(args, kwargs, self._held())

    def _held(self) -> dict[str, Any]:
        held = dict(self.named_parameters(remove_duplicate=False))
        held.update(self.named_buffers(remove_duplicate=False))
        return held

    def __getattr__(self, name: str) -> Any:
        methods = self.__dict__.get("methods", {})
        if name in methods:
            return lambda *args, **kwargs: self._run(name, args, kwargs)
        return super().__getattr__(name)

    @property
    def graph(self) -> Graph:
        """The graph of `forward`."""
        return self.methods["forward"].graph

    inlined_graph = graph

    @property
    def code(self) -> str:
        """The graph of `forward` as text."""
        return str(self.graph)

    def graph_for(self, *args: Any, **kwargs: Any) -> Graph:
        """Return the graph that runs for arguments: there is one."""
        return self.graph

    def save(self, f: Any, _extra_files: dict[str, Any] | None = None) -> None:
        """Write the module to an archive; see `jit.save`."""
        from tangrad_jit.tracing.archive_writing import write

        write(f, _extra_files, self.methods, module=self)


def export_opnames(m: Any) -> list[str]:
    """Return the sorted names of the ops that a traced or scripted module or function runs."""
    if hasattr(m, "script_unit"):
        kinds = {node.kind() for node in m.inlined_graph.every_node()}
        return sorted(kind for kind in kinds if not kind.startswith("prim::"))
    graphs = [t.graph for t in m.methods.values()] if hasattr(m, "methods") else [m.graph]
    return sorted({node.name for graph in graphs for node in graph.nodes})
