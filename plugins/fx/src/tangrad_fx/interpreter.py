"""Run a graph node by node; or rewrite it, by tracing what each node is replaced by."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tangrad.nn import Module
from tangrad_fx import traceback as fx_traceback
from tangrad_fx._symbolic_trace import Tracer
from tangrad_fx.graph import Graph
from tangrad_fx.graph_module import GraphModule
from tangrad_fx.node import Argument, Node, Target, map_aggregate, map_arg
from tangrad_fx.proxy import Proxy

__all__ = ["Interpreter", "Transformer"]


class Interpreter:
    """Run the graph of a module; override a method to run one kind of node otherwise.

    Args:
        module: the module that has the attributes the graph uses.
        garbage_collect_values: whether values are let go after their last use.
        graph: the graph; by default the module's.

    Attributes:
        env: {node: value} of the run that is under way.
    """

    def __init__(
        self, module: Module, garbage_collect_values: bool = True, graph: Graph | None = None
    ) -> None:
        self.module = module
        self.submodules = dict(module.named_modules())
        self.graph: Graph = module.graph if graph is None else graph
        self.env: dict[Node, Any] = {}
        self.name = "Interpreter"
        self.garbage_collect_values = garbage_collect_values
        self.extra_traceback = True
        self.user_to_last_uses: dict[Node, list[Node]] = {}
        if garbage_collect_values:
            self._find_last_uses()

    def _find_last_uses(self) -> None:
        seen: set[Node] = set()
        for user in reversed(self.graph.nodes):
            for used in user.all_input_nodes:
                if used not in seen:
                    seen.add(used)
                    self.user_to_last_uses.setdefault(user, []).append(used)

    def run(
        self,
        *args: Any,
        initial_env: dict[Node, Any] | None = None,
        enable_io_processing: bool = True,
    ) -> Any:
        """Run the graph.

        Args:
            args: its inputs.
            initial_env: values of nodes that are not to be run.
            enable_io_processing: whether nested inputs and outputs are flattened and nested again.
        """
        self.env = initial_env if initial_env is not None else {}
        if enable_io_processing:
            args = self.graph.process_inputs(*args)
        self.args_iter: Iterator[Any] = iter(args)
        for node in self.graph.nodes:
            if node in self.env:
                continue
            try:
                self.env[node] = self.run_node(node)
            except Exception as error:
                if self.extra_traceback:
                    place = f"While executing {node.format_node()}"
                    if node.stack_trace:
                        place += f"\nOriginal traceback:\n{node.stack_trace}"
                    error.add_note(place)
                raise
            for used in self.user_to_last_uses.get(node, ()):
                self.env.pop(used, None)
            if node.op == "output":
                result = self.env[node]
                return self.graph.process_outputs(result) if enable_io_processing else result
        return None

    def boxed_run(self, args_list: list[Any]) -> Any:
        """Run the graph with inputs from a list, which is emptied so that they can be let go."""
        args = list(args_list)
        args_list.clear()
        return self.run(*args, enable_io_processing=False)

    @contextmanager
    def _set_current_node(self, node: Node) -> Iterator[None]:
        with fx_traceback.set_current_meta(node, type(self).__name__):
            yield

    def run_node(self, n: Node) -> Any:
        """Return the value of one node."""
        with self._set_current_node(n):
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            return getattr(self, n.op)(n.target, args, kwargs)

    def placeholder(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Return the next input.

        Raises:
            RuntimeError: there is none, and no default.
        """
        if str(target).startswith("*"):
            return list(self.args_iter)
        try:
            return next(self.args_iter)
        except StopIteration:
            if args:
                return args[0]
            raise RuntimeError(
                f"Expected positional argument for parameter {target}, but one was not passed in!"
            ) from None

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Return an attribute of the module."""
        return self.fetch_attr(str(target))

    def call_function(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Call a function."""
        return target(*args, **kwargs)  # type: ignore[operator]

    def call_method(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Call a method of the first argument."""
        receiver, *rest = args
        return getattr(receiver, str(target))(*rest, **kwargs)

    def call_module(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Call a submodule."""
        return self.fetch_attr(str(target))(*args, **kwargs)

    def output(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Return what the graph returns."""
        return args[0]

    def fetch_attr(self, target: str) -> Any:
        """Return what a path leads to in the module.

        Raises:
            RuntimeError: there is nothing.
        """
        found: Any = self.module
        parts = target.split(".")
        for k, name in enumerate(parts):
            if not hasattr(found, name):
                raise RuntimeError(f"Node referenced nonexistent target {'.'.join(parts[: k + 1])}")
            found = getattr(found, name)
        return found

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the values of a node's arguments."""
        return self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(dict(n.kwargs), n)

    def map_nodes_to_values(self, args: Argument, n: Node) -> Any:
        """Return an argument with values in the place of nodes.

        Raises:
            RuntimeError: a node in it has no value yet.
        """

        def value(node: Node) -> Any:
            if node not in self.env:
                raise RuntimeError(
                    f"Node {n} referenced nonexistent value {node}! Run Graph.lint() to diagnose "
                    "such issues"
                )
            return self.env[node]

        mapped = map_arg(args, value)
        return dict(mapped) if isinstance(mapped, dict) else mapped


class _TransformerTracer(Tracer):
    def __init__(self, graph: Graph, modules: Module) -> None:
        super().__init__()
        self.graph, self.root = graph, modules
        self.tensor_attrs: dict[Any, str] = {}
        self.module_stack.clear()

    def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
        return True


class Transformer(Interpreter):
    """Run a graph on proxies, so that what the methods return is traced as a new graph.

    Args:
        module: the module.
    """

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.new_graph = Graph()
        self.new_graph.set_codegen(module.graph._codegen)
        self.tracer = _TransformerTracer(self.new_graph, module)

    def placeholder(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Add an input to the new graph."""
        made = Proxy(self.new_graph.placeholder(str(target)), self.tracer)
        if args:
            made.node.args = (args[0],)
        return made

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Add the reading of an attribute to the new graph."""
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Add the call of a module to the new graph."""
        return self.tracer.create_proxy("call_module", target, args, kwargs)

    def call_function(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Add the call of a function to the new graph."""
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def transform(self) -> GraphModule:
        """Return a module made of the new graph."""
        with fx_traceback.preserve_node_meta():
            result = super().run(enable_io_processing=False)
        if result is not None:

            def node_of(value: Any) -> Any:
                return value.node if isinstance(value, Proxy) else value

            output = self.new_graph.output(map_aggregate(result, node_of))
            for node in reversed(self.graph.nodes):
                if node.op == "output":
                    output.meta.update(node.meta)
                    output.type = node.type
                    break
        return GraphModule(self.module, self.new_graph)
