"""A program as a list of calls, that can be edited, checked, printed and written as Python."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tangrad_fx.codegen import (
    IN_PLACE_METHODS,
    MAGIC_METHODS,
    CodeGen,
    PythonCode,
    PyTreeCodeGen,
    PyTreeInfo,
    TransformCodeFunc,
)
from tangrad_fx.naming import CustomBuiltin, Namespace, custom_builtins, is_magic, snake_case
from tangrad_fx.node import Argument, Node, Target, map_arg

__all__ = ["CodeGen", "Graph", "PythonCode"]

# By the names that programs take from PyTorch's file.
_Namespace, _PyTreeCodeGen, _PyTreeInfo = Namespace, PyTreeCodeGen, PyTreeInfo
_is_magic, _snake_case, _CustomBuiltin = is_magic, snake_case, CustomBuiltin
_custom_builtins = custom_builtins
magic_methods = {**MAGIC_METHODS}
inplace_methods = {**IN_PLACE_METHODS}
_NO_DEFAULT = object()


def _register_custom_builtin(name: str, import_str: str, obj: Any) -> None:
    """Let generated code use a name as if it were a builtin."""
    custom_builtins[name] = CustomBuiltin(import_str, obj)


class _InsertPoint:
    """Context in which nodes are put elsewhere than at the end."""

    def __init__(self, graph: Graph, insert: Callable[[Node], None]) -> None:
        self.graph = graph
        self.previous, graph._insert = graph._insert, insert

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: object) -> None:
        self.graph._insert = self.previous


class _node_list:
    """The nodes of a graph in order; a node may be erased while they are gone through."""

    def __init__(self, graph: Graph, direction: str = "_next") -> None:
        self.graph, self.direction = graph, direction

    def __len__(self) -> int:
        return self.graph._len

    def __iter__(self) -> Iterator[Node]:
        root = self.graph._root
        node = getattr(root, self.direction)
        while node is not root:
            if not node._erased:
                yield node
            node = getattr(node, self.direction)

    def __reversed__(self) -> _node_list:
        return _node_list(self.graph, "_prev" if self.direction == "_next" else "_next")


class Graph:
    """A list of calls.

    Args:
        owning_module: the GraphModule that it is the code of, if any.
        tracer_cls: class of the tracer that made it, needed to pickle it.
        tracer_extras: arguments of that tracer.
    """

    def __init__(
        self,
        owning_module: Any = None,
        tracer_cls: Any = None,
        tracer_extras: dict[str, Any] | None = None,
    ) -> None:
        self._root = Node(self, "", "root", "", (), {})
        self._used_names: dict[str, int] = {}
        self._insert: Callable[[Node], None] = self._root.prepend
        self._len = 0
        self._graph_namespace = Namespace()
        self._owning_module = owning_module
        self._tracer_cls, self._tracer_extras = tracer_cls, tracer_extras
        self._codegen = CodeGen()
        self._co_fields: dict[str, Any] = {}

    @property
    def owning_module(self) -> Any:
        """The GraphModule whose code this is, or None."""
        return self._owning_module

    @owning_module.setter
    def owning_module(self, mod: Any) -> None:
        self._owning_module = mod

    @property
    def nodes(self) -> _node_list:
        """The nodes in the order in which they run."""
        return _node_list(self)

    def output_node(self) -> Node:
        """Return the output node."""
        found = next(iter(reversed(self.nodes)), None)
        if found is None or found.op != "output":
            raise AssertionError("the graph has no output node at its end")
        return found

    def find_nodes(self, *, op: str, target: Target | None = None, sort: bool = True) -> list[Node]:
        """Return the nodes of one kind, of call_function, call_module ... those of one target.

        Args:
            op: the kind.
            target: what they call; must be given for "call_function".
            sort: accepted; they come in the order in which they run.
        """
        if op == "call_function" and target is None:
            raise AssertionError("find_nodes(op='call_function') needs a target")
        return [n for n in self.nodes if n.op == op and (target is None or _same(n.target, target))]

    # -- making nodes

    def create_node(
        self,
        op: str,
        target: Target,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        name: str | None = None,
        type_expr: Any | None = None,
    ) -> Node:
        """Put a node at the insertion point.

        Args:
            op, target, args, kwargs: as `Node` has them.
            name: what it should be called.
            type_expr: annotation of the result.

        Raises:
            AssertionError: `op` is unknown.
        """
        args, kwargs = args or (), kwargs or {}
        if not isinstance(args, tuple):
            raise AssertionError(f"args must be a tuple, got {type(args)}")
        candidate = name if name is not None else self._target_to_str(target)
        unique = self._graph_namespace.create_name(candidate, None)
        node = Node(self, unique, op, target, args, kwargs, type_expr)
        for hook in getattr(self.owning_module, "_create_node_hooks", None) or ():
            hook(node)
        self._graph_namespace.associate_name_with_obj(node.name, node)
        self._insert(node)
        self._len += 1
        return node

    def placeholder(
        self, name: str, type_expr: Any | None = None, default_value: Any = _NO_DEFAULT
    ) -> Node:
        """Add an input; its name may begin with "*" or "**"."""
        args = () if default_value is _NO_DEFAULT else (default_value,)
        return self.create_node("placeholder", name, args=args, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any | None = None) -> Node:
        """Add the reading of an attribute of the module, warning where it is not there."""
        if self.owning_module is not None and not _reachable(self.owning_module, qualified_name):
            _warn_unreachable(
                "Attempted to insert a get_attr Node with no underlying reference in the owning "
                "GraphModule! Call GraphModule.add_submodule to add the necessary submodule, "
                "GraphModule.add_parameter to add the necessary Parameter, or "
                "nn.Module.register_buffer to add the necessary buffer"
            )
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(
        self,
        module_name: str,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: Any | None = None,
    ) -> Node:
        """Add the call of a submodule, warning where it is not there."""
        if self.owning_module is not None and not _reachable(self.owning_module, module_name):
            _warn_unreachable(
                "Attempted to insert a call_module Node with no underlying reference in the "
                "owning GraphModule! Call GraphModule.add_submodule to add the necessary submodule"
            )
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(
        self,
        method_name: str,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: Any | None = None,
    ) -> Node:
        """Add the call of a method of its first argument."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(
        self,
        the_function: Callable[..., Any],
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: Any | None = None,
        name: str | None = None,
    ) -> Node:
        """Add the call of a function."""
        return self.create_node("call_function", the_function, args, kwargs, name, type_expr)

    def output(self, result: Argument, type_expr: Any | None = None) -> Node:
        """Add what is returned."""
        return self.create_node("output", "output", args=(result,), type_expr=type_expr)

    def node_copy(
        self, node: Node, arg_transform: Callable[[Node], Argument] = lambda x: x
    ) -> Node:
        """Put a copy of a node of another graph here.

        Args:
            node: the node.
            arg_transform: gives for each node of the other graph the one of this.
        """
        args = map_arg(node.args, arg_transform)
        kwargs = map_arg(dict(node.kwargs), arg_transform)
        made = self.create_node(node.op, node.target, args, dict(kwargs), node.name, node.type)
        made.meta = copy.copy(node.meta)
        return made

    def graph_copy(
        self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False
    ) -> Argument | None:
        """Put copies of all nodes of another graph here.

        Args:
            g: the other graph.
            val_map: {its node: ours}, also filled; nodes that are in it are not copied.
            return_output_node: whether the output node is returned as well.

        Returns:
            What the other graph returns, in our nodes; None if it has no output.
        """
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                result = map_arg(node.args[0], lambda n: val_map[n])
                return (result, node) if return_output_node else result
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    # -- editing

    def erase_node(self, to_erase: Node) -> None:
        """Take a node out.

        Raises:
            RuntimeError: others use it, or it is of another graph.
        """
        if to_erase.users:
            raise RuntimeError(
                f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in "
                f"the graph: {to_erase.users}!"
            )
        if to_erase.graph is not self:
            raise RuntimeError(f"Attempting to remove {to_erase} from wrong graph!")
        if to_erase._erased:
            return
        for hook in getattr(self.owning_module, "_erase_node_hooks", None) or ():
            hook(to_erase)
        to_erase._remove_from_list()
        to_erase._erased = True
        self._len -= 1
        to_erase.args, to_erase.kwargs = (), {}

    def inserting_before(self, n: Node | None = None) -> _InsertPoint:
        """Return a context in which nodes come in front of one; None: of all."""
        if n is None:
            return self.inserting_after(self._root)
        if n.graph is not self:
            raise AssertionError("Node to insert before is not in graph.")
        return _InsertPoint(self, n.prepend)

    def inserting_after(self, n: Node | None = None) -> _InsertPoint:
        """Return a context in which nodes come behind one, the last made first."""
        if n is None:
            return self.inserting_before(self._root)
        if n.graph is not self:
            raise AssertionError("Node to insert after is not in graph.")
        return _InsertPoint(self, n.append)

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Take out nodes that nobody uses and that do nothing besides.

        Args:
            is_impure_node: says which nodes stay; by default `Node.is_impure`.

        Returns:
            Whether anything changed.
        """
        self.lint()
        impure = is_impure_node or Node.is_impure
        before = self._len
        for node in reversed(self.nodes):
            if not node.users and node.op not in ("placeholder", "output") and not impure(node):
                self.erase_node(node)
        return self._len < before

    def _clear_nodes(self) -> None:
        for node in reversed(self.nodes):
            node.users = {}
            self.erase_node(node)

    def lint(self) -> None:
        """Check that the graph makes sense.

        Raises:
            RuntimeError: a node uses what is not defined before it, two have one name, or a node
                belongs to another graph.
            ValueError: the output is not the last.
            AttributeError, TypeError: an attribute or module that is used is not there.
        """
        seen: set[Node] = set()
        names: set[str] = set()
        for node in self.nodes:
            if node.graph is not self:
                raise RuntimeError(f"Node '{node}' does not belong to this Graph!")
            for used in node.all_input_nodes:
                if used.graph is not self:
                    raise RuntimeError(
                        f"Argument '{used}' of Node '{node}' does not belong to this Graph, but "
                        "was used as an argument! If you are copying nodes from another graph, "
                        f"use ``arg_transform`` of node_copy to map its nodes\n{self}"
                    )
                if used not in seen:
                    raise RuntimeError(
                        f"Argument '{used}' of Node '{node}' was used before it has been defined! "
                        f"Please check that Nodes in the graph are topologically ordered\n{self}"
                    )
            if node.name in names:
                raise RuntimeError(f"Node redefined name {node.name}!")
            seen.add(node)
            names.add(node.name)
        outputs = [n for n in seen if n.op == "output"]
        if len(outputs) > 1 or (outputs and outputs[0] is not next(iter(reversed(self.nodes)))):
            raise ValueError("the output node must be the last of the graph, and the only one")
        if self.owning_module is not None:
            for node in self.nodes:
                if node.op in ("get_attr", "call_module"):
                    _require_target(self.owning_module, node)

    # -- running and writing

    def process_inputs(self, *args: Any) -> Any:
        """Return the values of the placeholders, given the arguments of the function."""
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out: Any) -> Any:
        """Return what the function returns, given the value of the output node."""
        return self._codegen.process_outputs(out)

    def set_codegen(self, codegen: CodeGen) -> None:
        """Have the Python written by another class."""
        self._codegen = codegen

    @contextmanager
    def _swapped_transformer(self, transformer: TransformCodeFunc | None) -> Iterator[None]:
        previous = self._codegen._body_transformer
        self._codegen._body_transformer = transformer
        try:
            yield
        finally:
            self._codegen._body_transformer = previous

    def on_generate_code(
        self, make_transformer: Callable[[TransformCodeFunc | None], TransformCodeFunc]
    ) -> Any:
        """Have the lines of the body changed when code is generated.

        Args:
            make_transformer: given the earlier transformer or None, returns one: lines -> lines.

        Returns:
            A context at whose end the earlier one is in force again; it acts from now on.
        """
        previous = self._codegen._body_transformer
        self._codegen._body_transformer = make_transformer(previous)

        @contextmanager
        def until_left() -> Iterator[None]:
            try:
                yield
            finally:
                self._codegen._body_transformer = previous

        return until_left()

    def python_code(
        self,
        root_module: str,
        *,
        verbose: bool = False,
        include_stride: bool = False,
        include_device: bool = False,
        colored: bool = False,
        expanded_def: bool = False,
        record_func: bool = False,
        additional_meta: list[str] | None = None,
    ) -> PythonCode:
        """Return the graph as Python.

        Args:
            root_module: the name by which the code reaches the module, usually "self".
            verbose: whether to write shapes, and where the program made the calls.
            include_stride, include_device, colored, expanded_def, record_func, additional_meta:
                accepted; the code is the same.
        """
        namespace = Namespace()

        def unique(node: Node) -> str:
            return namespace.create_name(node.name, node)

        nodes = list(self.nodes)
        kept = [(n, n._repr_fn) for n in nodes]
        try:
            for n in nodes:
                n._repr_fn = unique
            return self._codegen.generate(nodes, root_module, namespace, verbose)
        finally:
            for n, function in kept:
                n._repr_fn = function

    def print_tabular(self) -> None:
        """Print a table of the nodes."""
        rows = [[n.op, n.name, str(n.target), str(n.args), str(n.kwargs)] for n in self.nodes]
        head = ["opcode", "name", "target", "args", "kwargs"]
        widths = [max(len(r[k]) for r in [head, *rows]) for k in range(len(head))]
        for row in (head, ["-" * w for w in widths], *rows):
            print("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip())

    def __str__(self) -> str:
        placeholders: list[str] = []
        returned = [""]
        lines = [n.format_node(placeholders, returned) for n in self.nodes]
        placeholders.clear()
        lines = [n.format_node() for n in self.nodes]
        return "graph():" + "".join(f"\n    {line}" for line in lines if line)

    def _target_to_str(self, target: Target | None) -> str:
        if callable(target):
            name = getattr(target, "__name__", type(target).__name__)
        else:
            name = str(target)
            if is_magic(name):
                name = name[2:-2]
        return snake_case(name)

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Graph:
        memo = {} if memo is None else memo
        made = Graph(tracer_cls=self._tracer_cls, tracer_extras=self._tracer_extras)
        nodes: dict[Node, Node] = {}
        found = made.graph_copy(self, nodes, return_output_node=True)
        if isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], Node):
            result, old = found
            output = made.output(result, type_expr=getattr(old, "type", None))
            output.meta = copy.copy(old.meta)
        made._codegen = copy.deepcopy(self._codegen)
        made._co_fields = copy.copy(self._co_fields)
        return made


def _same(a: Any, b: Any) -> bool:
    return a is b or (isinstance(a, str) and a == b)


def _reachable(module: Any, path: str) -> bool:
    for part in path.split("."):
        if not hasattr(module, part):
            return False
        module = getattr(module, part)
    return True


def _warn_unreachable(text: str) -> None:
    import warnings

    warnings.warn(text, stacklevel=3)


def _require_target(module: Any, node: Node) -> None:
    """Raise where an attribute or module that a node names is not there."""
    from tangrad.nn import Module

    found = module
    *above, last = str(node.target).split(".")
    for part in (*above, last):
        if not hasattr(found, part):
            raise RuntimeError(
                f"Node {node} target {node.target} references nonexistent attribute {part} of "
                f"{'.'.join(above) or 'the module'}"
            )
        found = getattr(found, part)
    if node.op == "call_module" and not isinstance(found, Module):
        raise RuntimeError(
            f"Node {node} target {node.target} does not reference a Module, but a "
            f"{type(found).__name__}"
        )
