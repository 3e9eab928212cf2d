"""One call in a graph: what is called, with what, and who uses the result."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import tangrad
from tangrad_fx import effects, naming
from tangrad_fx.immutable_collections import immutable_dict, immutable_list

__all__ = ["Argument", "Node", "Target", "has_side_effect", "map_aggregate", "map_arg"]

Target = Callable[..., Any] | str
Argument = Any
ArgumentT = Any
BaseArgumentTypes = Any
base_types = (
    str,
    int,
    float,
    bool,
    complex,
    tangrad.dtype,
    tangrad.Tensor,
    tangrad.device,
    tangrad.memory_format,
    tangrad.layout,
)
_legal_ops = dict.fromkeys(
    ("placeholder", "call_method", "call_module", "call_function", "get_attr", "output", "root")
)
_side_effectful_functions = effects.side_effectful_functions


def has_side_effect(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Have calls of a function kept where nobody uses their results; also a decorator."""
    _side_effectful_functions.add(fn)
    return fn


def _get_qualified_name(func: Callable[..., Any]) -> str:
    return naming.qualified_name(func)


def _type_repr(obj: Any) -> str:
    return naming.type_repr(obj)


def _format_arg(arg: Any, max_list_len: float = float("inf")) -> str:
    """Return an argument as a printed graph shows it."""
    if hasattr(arg, "_custom_fx_repr_fn"):
        return str(arg._custom_fx_repr_fn())
    if isinstance(arg, (list, tuple)):
        shown = [_format_arg(a) for a in arg[: int(min(len(arg), max_list_len))]]
        if len(arg) > max_list_len:
            shown.append(f"...[total_len={len(arg)}]")
        if isinstance(arg, list):
            return f"[{', '.join(shown)}]"
        return f"({', '.join(shown)}{',' if len(arg) == 1 else ''})"
    if isinstance(arg, dict):
        return "{" + ", ".join(f"{k}: {_format_arg(v)}" for k, v in arg.items()) + "}"
    if isinstance(arg, Node):
        return f"%{arg}"
    return str(arg).replace("tangrad.", f"{naming.ROOT}.")


class Node:
    """A call in a graph.

    Attributes:
        graph: the `Graph` that it belongs to.
        op: "placeholder" (an input), "get_attr", "call_function", "call_method", "call_module" or
            "output".
        target: name of the input, path of the attribute or module, the function, name of the
            method, or "output".
        args, kwargs: arguments, in which nodes stand for their results; of a placeholder its
            default, of the output what is returned.
        users: the nodes that use it, as keys.
        type: annotation of the result, or None.
        meta: what passes note about it.
    """

    def __init__(
        self,
        graph: Any,
        name: str,
        op: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        return_type: Any | None = None,
    ) -> None:
        if op not in _legal_ops:
            raise AssertionError(f"op '{op}' is not in _legal_ops")
        if op == "call_function":
            if not callable(target):
                raise ValueError(
                    f"Node [graph = {graph}, name = '{name}'] target {target} has type "
                    f"{_type_repr(type(target))} but a Callable is expected"
                )
        elif not isinstance(target, str):
            raise ValueError(
                f"Node [graph = {graph}, name = '{name}'] target {target} has type "
                f"{_type_repr(type(target))} but a str is expected"
            )
        self.graph, self.name, self.op, self.target = graph, name, op, target
        self._input_nodes: dict[Node, None] = {}
        self.users: dict[Node, None] = {}
        self.type = return_type
        self.meta: dict[str, Any] = {}
        self._prev: Node = self
        self._next: Node = self
        self._erased = False
        self._repr_fn: Callable[[Node], str] | None = None
        self._set_arguments(args, kwargs)

    # -- place in the graph

    @property
    def next(self) -> Node:
        """The node after it."""
        return self._next

    @property
    def prev(self) -> Node:
        """The node before it."""
        return self._prev

    def _remove_from_list(self) -> None:
        self._prev._next, self._next._prev = self._next, self._prev

    def prepend(self, x: Node) -> None:
        """Move a node of the same graph in front of this one."""
        if self.graph is not x.graph:
            raise AssertionError("Attempting to move a Node into a different Graph")
        if self is x:
            return
        x._remove_from_list()
        before = self._prev
        before._next, x._prev = x, before
        x._next, self._prev = self, x

    def append(self, x: Node) -> None:
        """Move a node of the same graph behind this one."""
        if x is not self:
            self._next.prepend(x)

    def __lt__(self, other: Node) -> bool:
        return self._position() < other._position()

    def __gt__(self, other: Node) -> bool:
        return other < self

    def __le__(self, other: Node) -> bool:
        return not other < self

    def __ge__(self, other: Node) -> bool:
        return not self < other

    def _position(self) -> int:
        position, node = 0, self.graph._root._next
        while node is not self:
            position, node = position + 1, node._next
        return position

    # -- arguments

    @property
    def args(self) -> tuple[Argument, ...]:
        """The positional arguments; assign a new tuple to change them."""
        return self._args

    @args.setter
    def args(self, a: tuple[Argument, ...]) -> None:
        self._set_arguments(a, self._kwargs)

    @property
    def kwargs(self) -> dict[str, Argument]:
        """The arguments by name; assign a new dict to change them."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, k: dict[str, Argument]) -> None:
        self._set_arguments(self._args, k)

    def _set_arguments(self, args: Any, kwargs: Any) -> None:
        if not isinstance(args, (tuple, list)):
            raise AssertionError(f"args of node {self.name} must be a tuple, got {type(args)}")
        for used in self._input_nodes:
            used.users.pop(self, None)
        self._input_nodes = {}

        def use(node: Node) -> Node:
            self._input_nodes[node] = None
            node.users[self] = None
            return node

        self._args = tuple(map_arg(a, use) for a in args)
        self._kwargs = immutable_dict({k: map_arg(v, use) for k, v in kwargs.items()})

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes among its arguments, each once, in order."""
        return list(self._input_nodes)

    def update_arg(self, idx: int, arg: Argument) -> None:
        """Replace one positional argument."""
        args = list(self.args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Argument) -> None:
        """Insert a positional argument in front of another."""
        if not 0 <= idx <= len(self.args):
            raise AssertionError("insert_args index must be between 0 and len(self.args)")
        self.args = (*self.args[:idx], arg, *self.args[idx:])

    def update_kwarg(self, key: str, arg: Argument) -> None:
        """Replace or add one argument by name."""
        self.kwargs = {**self.kwargs, key: arg}

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Use another node wherever its arguments have this one."""

        def renew(node: Node) -> Node:
            return new_input if node is old_input else node

        self._set_arguments(map_arg(self._args, renew), map_arg(dict(self._kwargs), renew))

    def replace_all_uses_with(
        self,
        replace_with: Node,
        delete_user_cb: Callable[[Node], bool] | None = None,
        *,
        propagate_meta: bool = False,
    ) -> list[Node]:
        """Have its users use another node.

        Args:
            replace_with: the other node.
            delete_user_cb: says of a user whether it changes; by default all do.
            propagate_meta: whether the other node takes over `meta`, of which it must have none.

        Returns:
            The users that changed.
        """
        if propagate_meta:
            if replace_with.meta:
                raise AssertionError(
                    "Called node.replace_all_uses_with(replace_with, propagate_meta=True), but "
                    "replace_with already has .meta keys"
                )
            replace_with.meta.update(self.meta)
        changed = [u for u in self.users if delete_user_cb is None or delete_user_cb(u)]
        for user in changed:
            user.replace_input_with(self, replace_with)
        hooks = getattr(self.graph.owning_module, "_replace_hooks", None) or ()
        for hook in hooks:
            for user in changed:
                hook(old=self, new=replace_with.name, user=user)
        return changed

    # -- what it is

    def is_impure(self, impure_random: bool = True) -> bool:
        """Return whether its call does something beside its result, or it is an input or output.

        Args:
            impure_random: whether drawing random numbers counts.
        """
        if self.op in ("placeholder", "output"):
            return True
        return effects.has_effect(self, impure_random)

    def normalized_arguments(
        self,
        root: Any,
        arg_types: tuple[Any, ...] | None = None,
        kwarg_types: dict[str, Any] | None = None,
        normalize_to_only_use_kwargs: bool = False,
    ) -> Any:
        """Return (args, kwargs) in one form, however they were written; None if that is unknown."""
        from tangrad_fx.operator_schemas import normalize_function, normalize_module

        if self.op == "call_function":
            return normalize_function(
                self.target,
                self.args,
                dict(self.kwargs),
                arg_types,
                kwarg_types,
                normalize_to_only_use_kwargs,
            )
        if self.op == "call_module":
            return normalize_module(
                root, str(self.target), self.args, dict(self.kwargs), normalize_to_only_use_kwargs
            )
        return None

    @property
    def stack_trace(self) -> str | None:
        """Where the program made the call, if the tracer noted it."""
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    # -- text

    def _rename(self, candidate: str) -> None:
        if candidate != self.name:
            self.name = self.graph._graph_namespace.create_name(candidate, None)
            self.graph._graph_namespace._rename_object(self, self.name)

    def __repr__(self) -> str:
        return self._repr_fn(self) if self._repr_fn else self.name

    def _pretty_print_target(self, target: object) -> str:
        if isinstance(target, str):
            return target
        if getattr(target, "__module__", None) == "builtins" and hasattr(builtins, target.__name__):  # type: ignore[attr-defined]
            return f"builtins.{target.__name__}"  # type: ignore[attr-defined]
        try:
            return naming.qualified_name(target)  # type: ignore[arg-type]
        except RuntimeError:
            return f"{getattr(target, '__module__', '')}.{getattr(target, '__name__', target)}"

    def format_node(
        self,
        placeholder_names: list[str] | None = None,
        maybe_return_typename: list[str] | None = None,
        *,
        include_tensor_metadata: bool = False,
    ) -> str | None:
        """Return the line that a printed graph has for it.

        Args:
            placeholder_names: where the names of placeholders are collected; their lines are then
                left out.
            maybe_return_typename: where the output's annotation is put.
            include_tensor_metadata: whether the shape noted in `meta` is told.
        """
        head = f"{self._head(include_tensor_metadata)}["
        if self.op == "placeholder":
            if placeholder_names is not None:
                annotation = f": {_type_repr(self.type)}" if self.type else ""
                placeholder_names.append(f"{self.target}{annotation}")
                return None
            default = f"(default={self.args[0]})" if self.args else ""
            return f"{head}target={self.target}]{default}"
        if self.op == "get_attr":
            return f"{head}target={self._pretty_print_target(self.target)}]"
        if self.op == "output":
            if self.type and maybe_return_typename:
                maybe_return_typename[0] = f" -> {_type_repr(self.type)}"
            return f"return {self.args[0]}"
        return (
            f"{head}target={self._pretty_print_target(self.target)}]"
            f"(args = {_format_arg(self.args)}, kwargs = {_format_arg(self.kwargs)})"
        )

    def _head(self, with_metadata: bool) -> str:
        annotation = f"{_type_repr(self.type)} " if self.type else ""
        if with_metadata and self.meta.get("tensor_meta") is not None:
            meta = self.meta["tensor_meta"]
            annotation += f"{meta.dtype}{list(meta.shape)} "
        return f"%{self.name} : {annotation}[num_users={len(self.users)}] = {self.op}"


def map_arg(a: Any, fn: Callable[[Node], Any]) -> Any:
    """Return an argument with a function applied to every node in it.

    Raises:
        AssertionError: `fn` is not callable.
    """
    if not callable(fn):
        raise AssertionError("torch.fx.map_arg(a, fn): fn must be a callable")
    return map_aggregate(a, lambda x: fn(x) if isinstance(x, Node) else x)


def map_aggregate(a: Any, fn: Callable[[Any], Any]) -> Any:
    """Apply a function to every leaf of an argument; lists and dicts become immutable."""
    if isinstance(a, tuple):
        items = [map_aggregate(x, fn) for x in a]
        return type(a)(*items) if hasattr(a, "_fields") else tuple(items)
    if isinstance(a, list):
        return immutable_list([map_aggregate(x, fn) for x in a])
    if isinstance(a, dict):
        return immutable_dict({k: map_aggregate(v, fn) for k, v in a.items()})
    if isinstance(a, slice):
        return slice(*(map_aggregate(x, fn) for x in (a.start, a.stop, a.step)))
    return fn(a)
