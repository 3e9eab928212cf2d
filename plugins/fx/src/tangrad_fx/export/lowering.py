"""`ExportedProgram.run_decompositions`: the calls of a program become the ops below autograd.

Every call of the graph is run, and the ops that it leads to are put in its place; ops in the table
are taken apart further. Inputs, parameters and buffers stay what they were, and what was written
into a buffer still is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, Protocol

import tangrad
from tangrad import Tensor
from tangrad.utils import _pytree
from tangrad_fx.arguments import told_apart
from tangrad_fx.experimental.proxy_tensor import ProxyTorchDispatchMode, PythonKeyTracer
from tangrad_fx.export import sizes as varying
from tangrad_fx.export.dynamic_shapes import Size
from tangrad_fx.export.generalizing import generalize
from tangrad_fx.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputSpec,
    TensorArgument,
)
from tangrad_fx.export.nested import CALLS, Functions, every_node, nested_graphs, without_unused
from tangrad_fx.export.tracing import Trace, drop_unused_parts
from tangrad_fx.graph import Graph
from tangrad_fx.memory import Memory
from tangrad_fx.node import Argument, Node
from tangrad_fx.proxy import Proxy

Table = Mapping[Any, Callable[..., Any]]


class Program(Protocol):
    """What is lowered: an `ExportedProgram`."""

    graph_signature: ExportGraphSignature
    range_constraints: dict[str, Size]
    example_inputs: tuple[tuple[Any, ...], dict[str, Any]] | None
    constants: dict[str, Tensor]
    _out_spec: Any

    @property
    def graph(self) -> Graph:
        """Its calls."""

    def _tensor(self, path: str) -> Any: ...


def default_decompositions() -> dict[Any, Callable[..., Any]]:
    """Return {op: function} for the ops that `run_decompositions` takes apart by itself.

    Entries can be taken out and added before it is handed over.
    """
    aten = tangrad.ops.aten
    return {
        aten.linear.default: _linear,
        aten.silu.default: lambda x: x * tangrad.sigmoid(x),
        aten.hardsigmoid.default: lambda x: tangrad.clamp(x + 3, 0, 6) / 6,
        aten.hardswish.default: lambda x: x * tangrad.clamp(x + 3, 0, 6) / 6,
    }


def _linear(input: Any, weight: Any, bias: Any = None) -> Any:
    flat = input if input.dim() == 2 else input.reshape(-1, input.shape[-1])
    product = flat @ weight.t() if bias is None else tangrad.addmm(bias, flat, weight.t())
    return product if input.dim() == 2 else product.reshape(*input.shape[:-1], weight.shape[0])


class _Tracer(PythonKeyTracer):
    """Makes nodes of ops; tensors of numbers become inputs, as the program's constants are.

    Args:
        specs: of the program's inputs.
        constants: the program's.
    """

    def __init__(self, specs: list[InputSpec], constants: dict[str, Tensor]) -> None:
        super().__init__()
        self.specs, self.lifted = list(specs), dict(constants)
        self._inserted: list[Node] = []

    def made_since(self, last: Node) -> list[Node]:
        """Return the nodes behind one, and inputs that were put in front since the last call."""
        made = dict.fromkeys(self._inserted)
        self._inserted.clear()
        node = last.next
        while node.op != "root":
            made[node] = None
            node = node.next
        return list(made)

    def create_arg(self, a: Any) -> Argument:
        """Return a value as an argument of a node."""
        if isinstance(a, Tensor):
            return self._lift(a)
        if isinstance(a, tangrad.Size):
            return tuple(a)
        return super().create_arg(a)

    def _lift(self, t: Tensor) -> Node:
        """Make a tensor an input, in front of the user's."""
        number = sum(name.startswith("lifted_tensor_") for name in self.lifted)
        path = f"lifted_tensor_{number}"
        self.lifted[path] = t
        kinds = [spec.kind for spec in self.specs]
        at = kinds.index(InputKind.USER_INPUT) if InputKind.USER_INPUT in kinds else len(kinds)
        before = list(self.graph.nodes)[at] if at < len(self.graph.nodes) else None
        insertion = nullcontext() if before is None else self.graph.inserting_before(before)
        with insertion:
            node = self.graph.placeholder(f"c_{path}")
        self._inserted.append(node)
        node.meta["val"] = t.to("meta")
        self.specs.insert(at, InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(node.name), path))
        return node


class _InnerTracer(PythonKeyTracer):
    """Makes nodes of ops in a function; tensors from outside become inputs of it.

    Args:
        outer: the tracer of the graph of the call.
        functions: of the call.
    """

    def __init__(self, outer: Any, functions: Functions) -> None:
        super().__init__()
        self.outer, self.functions = outer, functions
        self.graph = functions.graph()

    def create_arg(self, a: Any) -> Argument:
        """Return a value as an argument of a node."""
        if isinstance(a, Tensor):
            return self.functions.capture(self.graph, self.outer.create_arg(a))
        if isinstance(a, tangrad.Size):
            return tuple(a)
        return super().create_arg(a)


class Lowering:
    """A program that is run on its example, and on others of other sizes.

    Args:
        program: the program.
        table: {op: function} for ops that are to be taken apart.
    """

    def __init__(self, program: Program, table: Table) -> None:
        self.program = program
        self.table = dict(table)
        self.specs = program.graph_signature.input_specs
        self.leaves = self._leaves()
        self.memory = Memory(program.graph)
        self.kept: set[str] = set()  # calls that stay as they are

    def _leaves(self) -> list[Any]:
        """Return the leaves of the example's arguments; of a program read from a file, zeros."""
        if self.program.example_inputs is not None:
            return list(_pytree.tree_leaves(self.program.example_inputs))
        nodes = (n for n in self.program.graph.nodes if n.op == "placeholder")
        return [
            spec.arg.value
            if isinstance(spec.arg, ConstantArgument)
            else tangrad.zeros_like(node.meta["val"], device="cpu")
            for spec, node in zip(self.specs, nodes, strict=True)
            if spec.kind is InputKind.USER_INPUT
        ]

    def run(self, sizes: dict[tuple[int, int], int]) -> Trace:
        """Return the graph of the ops, for an example of other sizes.

        Args:
            sizes: {(leaf, dimension): size}.
        """
        leaves = told_apart(self.leaves, self.leaves)  # nor are they what the program holds
        for (leaf, dim), size in sizes.items():
            leaves[leaf] = varying.resized(leaves[leaf], dim, size)
        with tangrad.random.fork_rng(devices=[]), tangrad.no_grad():
            return self._run(leaves)

    def _run(self, leaves: list[Any]) -> Trace:
        tracer = _Tracer(self.specs, self.program.constants)
        mode = ProxyTorchDispatchMode(tracer, "real", self.table)
        arguments, specs = iter(leaves), iter(self.specs)
        outputs: list[OutputSpec] = []
        values: dict[Node, Any] = {}
        for node in self.program.graph.nodes:
            last = tracer.graph._root.prev
            tracer.origin = node.name
            if node.op == "placeholder":
                values[node] = self._input(node, next(specs), arguments, tracer, mode)
            elif node.op == "output":
                results = _filled(node.args[0], values)
                outputs = self._output(results, tracer, mode)
            else:
                self._node(node, values, tracer, mode)
            self._finish(node, tracer.made_since(last))
        drop_unused_parts(tracer.graph)  # as many as a size that varies says
        signature = ExportGraphSignature(tracer.specs, outputs)
        return Trace(tracer.graph, signature, tracer.lifted, self.program._out_spec)

    def _node(self, node: Node, values: dict[Node, Any], tracer: Any, mode: Any) -> None:
        """Run a call and put the ops that it leads to into the graph of a tracer."""
        if node.op == "get_attr":
            values[node] = node.meta["graph"]
        elif node.target in CALLS:
            values[node] = self._functions(node, values, tracer, mode)
        elif node.target is tangrad.set_grad_enabled:
            tracer.graph.node_copy(node)
        elif node.name in self.kept:
            values[node] = _called(node, values)
            given = (_pytree.tree_map(mode.proxy_of, _filled(v, values)) for v in _given(node))
            mode.track(values[node], tracer.create_proxy(node.op, node.target, *given))
        else:
            with mode:
                values[node] = _called(node, values)

    def _finish(self, node: Node, new: list[Node]) -> None:
        """Describe the nodes that a call was replaced by."""
        for made in new:
            _describe(made, node)
        if node.name not in self.kept and node.target not in CALLS and _counts_values(new):
            raise _DependsOnValuesError("a size depends on values", new[0])

    def _functions(self, node: Node, values: dict[Node, Any], tracer: Any, mode: Any) -> Any:
        """Put the functions of a `cond` or `while_loop` into graphs of ops; return its results."""
        leading, graphs, groups = _parts(node, values)
        functions = Functions(tracer.graph)
        given = [x for group in groups for x in group]
        kept = [x for x in given if isinstance(x, Tensor)]
        for x in kept:
            functions.add(tracer.create_arg(mode.proxy_of(x)))
        found = [self._function(graph, given, functions, tracer) for graph in graphs]
        # One round of a loop stands for all; the example may be one at which it does not end.
        taken = found[0] if leading and leading[0] else found[1]
        results = tuple(t.clone() for t in taken)
        conditions = [tracer.create_arg(mode.proxy_of(x)) for x in leading]
        carried = sum(isinstance(x, Tensor) for x in groups[0])
        made = functions.call(node.target, *conditions, carried=carried)
        mode.track(results, Proxy(made, tracer))
        return results

    def _function(self, graph: Graph, given: list[Any], functions: Functions, outer: Any) -> Any:
        """Put one function into a graph of ops and return what it gives.

        Args:
            graph: of the program.
            given: the values of its inputs.
            functions: those of the call that are made.
            outer: the tracer of the call's graph.
        """
        tracer = _InnerTracer(outer, functions)
        mode = ProxyTorchDispatchMode(tracer, "real", self.table)
        inputs = iter(functions.inputs(tracer.graph))
        arguments = iter(given)
        values: dict[Node, Any] = {}
        results: Any = ()
        for node in graph.nodes:
            before = set(tracer.graph.nodes)
            tracer.origin = node.name
            if node.op == "placeholder":
                values[node] = value = next(arguments)
                if isinstance(value, Tensor):
                    values[node] = value.detach()
                    mode.track(values[node], Proxy(next(inputs), tracer))
            elif node.op == "output":
                results = _filled(node.args[0], values)
                found = _pytree.tree_map(mode.proxy_of, results)
                tracer.create_node("output", "output", (tracer.create_arg(found),), {})
            else:
                self._node(node, values, tracer, mode)
            self._finish(node, [made for made in tracer.graph.nodes if made not in before])
        for made in tracer.graph.nodes:
            if isinstance(made.meta.get("val"), Tensor):
                made.meta["val"] = made.meta["val"].to("meta")
        drop_unused_parts(tracer.graph)
        return results

    def _input(self, node: Node, spec: Any, arguments: Any, tracer: _Tracer, mode: Any) -> Any:
        if spec.kind is InputKind.USER_INPUT:
            value = next(arguments)
        else:
            value = self.program._tensor(str(spec.target)).detach()
        if isinstance(value, Tensor) and self.memory.is_written(node):
            value = value.clone()  # the run writes into it
        proxy = tracer.create_proxy("placeholder", str(node.target), (), {}, name=node.name)
        if isinstance(value, Tensor):
            # A tensor of its own: two inputs may be one memory.
            mode.track(value, proxy)
        return value

    def _output(self, results: Any, tracer: _Tracer, mode: Any) -> list[OutputSpec]:
        given = _pytree.tree_map(mode.proxy_of, tuple(results))
        node = tracer.create_node("output", "output", (tracer.create_arg(given),), {})
        arg: Any = node.args[0]
        return [
            OutputSpec(
                spec.kind, TensorArgument(x.name) if isinstance(x, Node) else spec.arg, spec.target
            )
            for x, spec in zip(arg, self.program.graph_signature.output_specs, strict=True)
        ]


class _DependsOnValuesError(varying.DependsOnSizesError):
    """A size of a result depends on the values of tensors."""


def _counts_values(nodes: list[Node]) -> bool:
    """Return whether ops of one call are given sizes behind one that computes them from values."""
    counted = False
    for node in nodes:
        if counted and any(
            isinstance(a, (list, tuple)) and any(type(x) is int for x in a) for a in node.args
        ):
            return True
        definition = getattr(node.target, "definition", None)
        counted = counted or bool(getattr(definition, "shape_depends_on_data", False))
    return False


def _parts(node: Node, values: dict[Node, Any]) -> tuple[list[Any], list[Graph], list[Any]]:
    """Return what a `cond` or `while_loop` is given: a condition, graphs, groups of operands."""
    filled = [_filled(a, values) for a in node.args]
    graphs = [a for a in filled if isinstance(a, Graph)]
    at = filled.index(graphs[0])
    return filled[:at], graphs, filled[at + len(graphs) :]


def _given(node: Node) -> tuple[Any, Any]:
    return node.args, dict(node.kwargs)


def _called(node: Node, values: dict[Node, Any]) -> Any:
    args, kwargs = (_filled(given, values) for given in _given(node))
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    target: Any = node.target
    return target(*args, **kwargs)


def _filled(value: Any, values: dict[Node, Any]) -> Any:
    if isinstance(value, Node):
        return values[value]
    if isinstance(value, slice):
        return slice(*(_filled(x, values) for x in (value.start, value.stop, value.step)))
    if isinstance(value, (list, tuple)):
        made = [_filled(x, values) for x in value]
        return made if isinstance(value, list) else tuple(made)
    if isinstance(value, dict):
        return {k: _filled(v, values) for k, v in value.items()}
    return value


def _describe(made: Node, origin: Node) -> None:
    """Note of an op which call it is of, in which modules, and what it gives."""
    made.meta.setdefault("origin", origin.name)
    if "nn_module_stack" in origin.meta:
        made.meta["nn_module_stack"] = origin.meta["nn_module_stack"]
    if isinstance(made.meta.get("val"), Tensor):
        made.meta["val"] = made.meta["val"].to("meta")
    schema_writes = made.op == "call_function" and made.is_impure(False)
    if schema_writes and isinstance(made.args[0] if made.args else None, Node):
        made.meta["writes"] = True


def lowered(program: Program, table: Table, keep: Callable[[Node], bool] | None = None) -> Trace:
    """Return the graph of the ops of a program.

    A call that computes other numbers than integers from a size that varies, such as a batch norm
    in training, stays as it is, and so does one that computes sizes from values.

    Args:
        program: the program.
        table: {op: function} for ops that are to be taken apart.
        keep: whether a call stays as it is.
    """
    lowering = Lowering(program, table)
    if keep is not None:
        lowering.kept.update(node.name for node in every_node(program.graph) if keep(node))
    sizes = list(program.range_constraints.values())
    while True:
        try:
            made = lowering.run({})
            if sizes:
                generalize(made, lowering, sizes)
        except varying.DependsOnSizesError as error:
            origin = None if error.node is None else error.node.meta.get("origin")
            if origin is None or origin in lowering.kept:
                raise
            lowering.kept.add(origin)
            continue
        _drop_unused(made.graph)
        return made


def _drop_unused(graph: Graph) -> None:
    """Erase ops whose results nothing uses, and which write nothing."""
    for node in reversed(list(graph.nodes)):
        is_needed = node.users or node.is_impure() or node.meta.get("writes")
        if node.op == "call_function" and not is_needed:
            graph.erase_node(node)
    without_unused(graph)
    for _, inner in nested_graphs(graph):
        _drop_unused(inner)
