"""`ExportedProgram`: a graph with its parameters, buffers and constants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tangrad import Tensor
from tangrad.nn import Module, Parameter
from tangrad.utils import _pytree
from tangrad_fx.codegen import PyTreeCodeGen, PyTreeInfo
from tangrad_fx.export.dynamic_shapes import Place, Size
from tangrad_fx.export.graph_signature import ConstantArgument, ExportGraphSignature, InputKind
from tangrad_fx.export.lowering import default_decompositions, lowered
from tangrad_fx.export.nested import attached
from tangrad_fx.graph import Graph
from tangrad_fx.graph_module import GraphModule, _assign_attr
from tangrad_fx.node import Node

__all__ = ["ExportedProgram"]


class ExportedProgram:
    """A program that `export` has made, or `load` has read.

    Args:
        root: the module that was run, or one for its name.
        graph: its calls; its inputs are parameters, buffers, constants and the user's, in this
            order.
        graph_signature: what its inputs and outputs are.
        state_dict: parameters and buffers by path.
        range_constraints: {name: size that varies}.
        example_inputs: (args, kwargs) of the run.
        constants: tensors that the program holds otherwise, by path.
        argument_names: of the module's arguments, in the order of the run.
        in_spec: how the arguments are nested.
        out_spec: how the results are.
    """

    def __init__(
        self,
        root: Module,
        graph: Graph,
        graph_signature: ExportGraphSignature,
        state_dict: dict[str, Tensor],
        range_constraints: dict[str, Size],
        *,
        example_inputs: tuple[tuple[Any, ...], dict[str, Any]] | None,
        constants: dict[str, Tensor],
        argument_names: list[str],
        in_spec: Any,
        out_spec: Any,
    ) -> None:
        self._module = GraphModule(attached(Module(), graph), graph, type(root).__name__)
        self.graph_signature = graph_signature
        self.state_dict = state_dict
        self.range_constraints = range_constraints
        self.example_inputs = example_inputs
        self.constants = constants
        self._argument_names = argument_names
        self._in_spec, self._out_spec = in_spec, out_spec

    @property
    def graph_module(self) -> GraphModule:
        """The graph as a module, to which everything is handed over."""
        return self._module

    @property
    def graph(self) -> Graph:
        """The graph."""
        return self._module.graph

    @property
    def tensor_constants(self) -> dict[str, Tensor]:
        """The constants by path."""
        return self.constants

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Yield paths and parameters."""
        for path in self.graph_signature.parameters:
            yield path, self._tensor(path)

    def parameters(self) -> Iterator[Parameter]:
        """Yield the parameters."""
        for _, parameter in self.named_parameters():
            yield parameter

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """Yield paths and buffers."""
        for path in self.graph_signature.buffers:
            yield path, self._tensor(path)

    def buffers(self) -> Iterator[Tensor]:
        """Yield the buffers."""
        for _, buffer in self.named_buffers():
            yield buffer

    def _tensor(self, path: str) -> Any:
        return self.state_dict[path] if path in self.state_dict else self.constants[path]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse to be called.

        Raises:
            RuntimeError: always; `module()` gives what can be.
        """
        raise RuntimeError(
            "Unable to call ExportedProgram directly. You should use `exported_program.module()` "
            "instead."
        )

    def run_decompositions(
        self,
        decomp_table: Any = None,
        decompose_custom_triton_ops: bool = False,
        *,
        keep: Callable[[Node], bool] | None = None,
    ) -> ExportedProgram:
        """Return the program with the ops below autograd in the place of its calls.

        Args:
            decomp_table: {op: function of the same arguments} for ops that are to be taken apart;
                `export.default_decompositions()` by default, none with an empty one.
            decompose_custom_triton_ops: accepted.
            keep: whether a call stays as it is, given its node; none does by default.
        """
        table = default_decompositions() if decomp_table is None else decomp_table
        made = lowered(self, table, keep)
        root = type(self._module._get_name(), (Module,), {})()
        return ExportedProgram(
            root,
            made.graph,
            made.signature,
            self.state_dict,
            self.range_constraints,
            example_inputs=self.example_inputs,
            constants=made.constants,
            argument_names=self._argument_names,
            in_spec=self._in_spec,
            out_spec=self._out_spec,
        )

    def module(self, check_guards: bool = True) -> GraphModule:
        """Return the program as a module with the original's parameters and buffers.

        It takes the arguments that the original took in the run, and can be trained.

        Args:
            check_guards: whether it refuses other sizes, dtypes and values than it was made for.
        """
        root, graph = Module(), Graph()
        names: dict[Node, Node] = {}
        specs = iter(self.graph_signature.input_specs)
        for node in self.graph.nodes:
            spec = next(specs) if node.op == "placeholder" else None
            if spec is not None and spec.kind is not InputKind.USER_INPUT:
                path = str(spec.target)
                _assign_attr(self._tensor(path), root, path)
                names[node] = graph.get_attr(path)
            elif node.op == "output":
                graph.output(_arguments(node.args[0], names))
            else:
                names[node] = graph.node_copy(node, names.__getitem__)
        info = PyTreeInfo(self._argument_names, self._in_spec, self._out_spec)
        graph.set_codegen(PyTreeCodeGen(info))
        made = GraphModule(attached(root, graph), graph, self._module._get_name())
        if check_guards:
            made.register_forward_pre_hook(self._guards(), with_kwargs=True)
        return made

    def _guards(self) -> Guards:
        examples = []
        arguments = iter(n for n in self.graph.nodes if n.op == "placeholder")
        for spec in self.graph_signature.input_specs:
            node = next(arguments)
            if spec.kind is not InputKind.USER_INPUT:
                continue
            if isinstance(spec.arg, ConstantArgument):
                examples.append(spec.arg.value)
            else:
                examples.append(node.meta["val"])
        sizes = list(self.range_constraints.values())
        return Guards(self._argument_names, self._in_spec, examples, sizes)

    def __str__(self) -> str:
        code = "\n\n".join(_codes("", self._module)).replace("\n", "\n    ")
        specs = "\n".join(f"    {spec}" for spec in self.graph_signature.input_specs)
        ranges = ", ".join(f"{n}: [{s.min}, {s.max}]" for n, s in self.range_constraints.items())
        return (
            f"ExportedProgram:\n    {code}\n\nInputs:\n{specs}\nRange constraints: {{{ranges}}}\n"
        )

    __repr__ = __str__


def _codes(name: str, module: GraphModule) -> Iterator[str]:
    """Yield the code of a graph, and that of the graphs inside of it."""
    yield (f"{name}:\n" if name else "") + module.code.strip()
    for below, inner in module.named_children():
        if isinstance(inner, GraphModule):
            yield from _codes(f"{name}.{below}" if name else below, inner)


def _arguments(value: Any, names: dict[Node, Node]) -> Any:
    if isinstance(value, Node):
        return names[value]
    if isinstance(value, (list, tuple)):
        return tuple(_arguments(v, names) for v in value)
    return value


class Guards:
    """Refuse arguments that a program was not made for; a hook before its `forward`.

    Args:
        names: of the arguments.
        spec: how they are nested.
        examples: the leaves of the example, tensors on `meta`.
        sizes: the sizes that vary.
    """

    def __init__(self, names: list[str], spec: Any, examples: list[Any], sizes: list[Size]) -> None:
        self.names, self.spec, self.examples = names, spec, examples
        self.varying = {(p.input, p.dim): (size, p) for size in sizes for p in size.places}

    def __call__(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Check the arguments of a call.

        Raises:
            TypeError: there are others, or they are nested otherwise.
            AssertionError: a size, dtype or value is another.
        """
        named = dict(zip(self.names, args, strict=False)) | kwargs
        if len(args) > len(self.names) or set(named) != set(self.names):
            raise TypeError(
                f"the program takes {self.names}, got {len(args)} by position and {list(kwargs)}"
            )
        leaves, spec = _pytree.tree_flatten(tuple(named[name] for name in self.names))
        if spec != self.spec:
            raise TypeError(f"the arguments are nested as {spec}; the program takes {self.spec}")
        found: dict[str, int] = {}
        for i, (leaf, example) in enumerate(zip(leaves, self.examples, strict=True)):
            if isinstance(example, Tensor):
                self._check_tensor(i, leaf, example, found)
            elif type(leaf) is not type(example) or (leaf is not example and leaf != example):
                raise AssertionError(
                    f"Guard failed: input {i} is {example!r} in the program, got {leaf!r}"
                )

    def _check_tensor(self, i: int, leaf: Any, example: Tensor, found: dict[str, int]) -> None:
        if not isinstance(leaf, Tensor):
            raise AssertionError(f"Guard failed: input {i} is a tensor, got {type(leaf).__name__}")
        if leaf.dtype != example.dtype or leaf.dim() != example.dim():
            raise AssertionError(
                f"Guard failed: input {i} is {example.dtype}{list(example.shape)} in the program, "
                f"got {leaf.dtype}{list(leaf.shape)}"
            )
        for dim, size in enumerate(leaf.shape):
            known = self.varying.get((i, dim))
            if known is None:
                fits, wanted = size == example.shape[dim], str(example.shape[dim])
            else:
                fits, wanted = _fits(size, *known, found)
            if not fits:
                raise AssertionError(
                    f"Guard failed: input {i} has size {size} in dimension {dim}, expected {wanted}"
                )


def _fits(size: int, varying: Size, place: Place, found: dict[str, int]) -> tuple[bool, str]:
    """Return whether a size may stand in a place, and what may."""
    value = place.size(size)
    top = value if varying.max is None else varying.max
    fits = (
        value is not None
        and varying.min <= value <= top  # type: ignore[operator]
        and found.setdefault(varying.name, value) == value
    )
    derived = "" if place[2:] == (1, 0) else f"{place.times} * {varying.name} + {place.plus}, "
    known = found.get(varying.name, "any")
    return fits, f"{derived}{varying.name} ({known}, in [{varying.min}, {varying.max}])"
