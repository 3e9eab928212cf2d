"""The values that flow while a program is traced: every use of one becomes a node."""

from __future__ import annotations

import bisect
import collections
import copy
import dataclasses
import dis
import enum
import inspect
import operator
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import tangrad
from tangrad_fx.codegen import MAGIC_METHODS
from tangrad_fx.graph import Graph
from tangrad_fx.node import Argument, Node, Target, base_types, map_aggregate
from tangrad_fx.operator_schemas import check_for_mutable_operation

__all__ = [
    "Attribute",
    "GraphAppendingTracer",
    "ParameterProxy",
    "Proxy",
    "Scope",
    "ScopeContextManager",
    "TraceError",
    "TracerBase",
]

REFLECTABLE = "add sub mul floordiv truediv mod pow lshift rshift and_ or_ xor matmul".split()
_OWN_FILES = __file__.rpartition("/")[0]


class TraceError(ValueError):
    """A program does what cannot be traced: it decides by a value that is not known yet."""


class Scope:
    """The module that is being traced: its path and class."""

    def __init__(self, module_path: str, module_type: Any) -> None:
        self.module_path, self.module_type = module_path, module_type


class ScopeContextManager:
    """Put another module into a scope for a while."""

    def __init__(self, scope: Scope, current_scope: Scope) -> None:
        self._scope, self._before = scope, copy.copy(scope)
        scope.module_path, scope.module_type = current_scope.module_path, current_scope.module_type

    def __enter__(self) -> Scope:
        return self._scope

    def __exit__(self, *exc: object) -> None:
        self._scope.module_path = self._before.module_path
        self._scope.module_type = self._before.module_type


class TracerBase:
    """What makes nodes and proxies of a traced program's values.

    Attributes:
        graph: where nodes go.
        record_stack_traces: whether nodes note where the program made the call.
        scope, module_stack: the module that is being traced; those around it.
    """

    graph: Graph
    record_stack_traces = False
    check_mutable_operations = False
    trace_asserts = False
    proxy_buffer_attributes = False
    traced_func_name = "forward"

    def __init__(self) -> None:
        self.scope = Scope("", None)
        self.module_stack: collections.OrderedDict[str, Any] = collections.OrderedDict()
        self.num_calls: dict[str, int] = {}
        self.node_name_to_scope: dict[str, tuple[str, Any]] = {}

    def create_node(
        self,
        kind: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        name: str | None = None,
        type_expr: Any | None = None,
    ) -> Node:
        """Add a node to the graph.

        Raises:
            RuntimeError: it writes its arguments, and the tracer checks that none does.
        """
        if self.check_mutable_operations and kind == "call_function" and callable(target):
            check_for_mutable_operation(target, args, kwargs)
        node = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        self.node_name_to_scope[node.name] = (self.scope.module_path, self.scope.module_type)
        if self.module_stack:
            node.meta["nn_module_stack"] = copy.copy(self.module_stack)
        from tangrad_fx import traceback as fx_traceback

        if fx_traceback.has_preserved_node_meta():
            node.meta.update(fx_traceback.get_current_meta())
        return node

    def proxy(self, node: Node) -> Proxy:
        """Return the value of a node, for the program to go on with."""
        return Proxy(node, self)

    def create_proxy(
        self,
        kind: str,
        target: Target,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any | None = None,
        proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Proxy:
        """Add a node whose arguments are values of the program, and return its value.

        Raises:
            NotImplementedError: an argument is of a class that a graph cannot hold.
        """
        arguments = self.create_arg(args)
        keywords = self.create_arg(kwargs)
        node = self.create_node(kind, target, tuple(arguments), dict(keywords), name, type_expr)
        made = proxy_factory_fn(node) if proxy_factory_fn is not None else self.proxy(node)
        if self.record_stack_traces and not node.stack_trace:
            node.stack_trace = _program_trace()
        return made

    def create_arg(self, a: Any) -> Argument:
        """Return a value of the program as an argument of a node.

        Raises:
            NotImplementedError: it is of a class that a graph cannot hold.
        """
        if isinstance(a, Proxy):
            return a.node
        if hasattr(a, "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            arguments = tuple(self.create_arg(x) for x in a)
            if not _holds_node(arguments):
                return type(a)(*arguments)
            return self.create_node("call_function", type(a), arguments, {})
        if isinstance(a, (tuple, list)):
            return type(a)([self.create_arg(x) for x in a])
        if isinstance(a, dict):
            return self._create_dict(a)
        if isinstance(a, slice):
            return slice(*(self.create_arg(x) for x in (a.start, a.stop, a.step)))
        if isinstance(a, range):
            return range(*(self.create_arg(x) for x in (a.start, a.stop, a.step)))
        if dataclasses.is_dataclass(a) and not isinstance(a, type):
            keywords = {f.name: self.create_arg(getattr(a, f.name)) for f in dataclasses.fields(a)}
            return self.create_node("call_function", type(a), (), keywords)
        if (
            isinstance(a, (*base_types, enum.Enum))
            or a is None
            or a is ...
            or hasattr(a, "_schema")
        ):
            return a
        if isinstance(a, (tangrad.SymInt, tangrad.SymFloat, tangrad.SymBool)):
            return a
        raise NotImplementedError(f"argument of type: {type(a)}")

    def _create_dict(self, a: dict[Any, Any]) -> dict[Any, Any]:
        made = {}
        for key, value in a.items():
            if not isinstance(key, str):
                key = self.create_arg(key)
                if _holds_node(key):
                    raise RuntimeError(
                        f"Keys for dictionaries used as an argument cannot contain a Node. Got "
                        f"key: {key}"
                    )
            made[key] = self.create_arg(value)
        return made

    # -- what a program may ask of a value

    def to_bool(self, obj: Proxy) -> bool:
        """Answer `if value:`; override it to decide.

        Raises:
            TraceError: always.
        """
        raise TraceError("symbolically traced variables cannot be used as inputs to control flow")

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """Answer `for x in value`: for `a, b = value` the items, as their number is known.

        Raises:
            TraceError: the number of items is not known.
        """
        raise TraceError(
            "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a "
            "loop or as a *args or **kwargs function argument. See the torch.fx docs on "
            "pytorch.org for a more detailed explanation of what types of control flow can be "
            "traced, and check out the Proxy docstring for help troubleshooting Proxy iteration "
            "errors"
        )

    def keys(self, obj: Proxy) -> Any:
        """Answer `value.keys()`, which `**value` asks."""
        return Attribute(obj, "keys")()


def _holds_node(argument: Any) -> bool:
    found: list[Node] = []
    map_aggregate(argument, lambda x: found.append(x) if isinstance(x, Node) else x)
    return bool(found)


def _program_trace() -> str:
    """Return the frames of the program, without those of tangrad."""
    frames = traceback.extract_stack()
    ours = tangrad.__file__.rpartition("/")[0]
    kept = [f for f in frames if not f.filename.startswith((_OWN_FILES, ours))]
    return "".join(traceback.StackSummary.from_list(kept).format()).rstrip("\n")


class GraphAppendingTracer(TracerBase):
    """Adds nodes to a graph for what is done with its proxies, outside any tracing."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph


def assert_fn(x: Any) -> None:
    """Assert what a traced program asserts."""
    if not x:
        raise AssertionError


class Proxy:
    """The value of a node: whatever is done with it becomes a node too.

    Args:
        node: the node.
        tracer: what makes further nodes; by default they are added to the node's graph.
    """

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        self.tracer = GraphAppendingTracer(node.graph) if tracer is None else tracer
        self.node = node

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, k: str) -> Attribute:
        if k in ("tracer", "node"):  # asked before they are set, while it is copied
            raise AttributeError(k)
        return Attribute(self, k)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state

    def __deepcopy__(self, memo: dict[int, Any]) -> Proxy:
        made = type(self).__new__(type(self))
        made.__dict__ = {
            k: v if k in ("tracer", "node") else copy.deepcopy(v, memo)
            for k, v in self.__dict__.items()
        }
        return made

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        """Note that the value is called."""
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        frame = inspect.currentframe()
        count = _unpacked(None if frame is None else frame.f_back)
        if count is not None:
            return (self[i] for i in range(count))
        return self.tracer.iter(self)

    def __abs__(self) -> Proxy:
        return self.tracer.create_proxy("call_function", operator.abs, (self,), {})

    def __bool__(self) -> bool:
        if self.tracer.trace_asserts:
            self.tracer.create_proxy("call_function", assert_fn, (self,), {})
            return True
        return self.tracer.to_bool(self)

    def keys(self) -> Any:
        """Answer `value.keys()`."""
        return self.tracer.keys(self)

    def __len__(self) -> int:
        raise RuntimeError(
            "'len' is not supported in symbolic tracing by default. If you want this call to be "
            "recorded, please call torch.fx.wrap('len') at module scope"
        )

    @classmethod
    def __torch_function__(
        cls,
        orig_method: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Proxy:
        tracers: dict[TracerBase, None] = {}

        def find(value: Any) -> Any:
            if isinstance(value, Proxy):
                tracers[value.tracer] = None
            return value

        map_aggregate(args, find)
        map_aggregate(kwargs or {}, find)
        if len(tracers) > 1:
            raise RuntimeError(
                f"Found multiple different tracers {list(tracers)} while trying to trace "
                f"operations {orig_method}"
            )
        tracer = next(iter(tracers))
        if _is_method_only(orig_method):
            return tracer.create_proxy("call_method", orig_method.__name__, args, kwargs or {})
        return tracer.create_proxy(
            "call_function",
            orig_method,
            args,
            kwargs or {},
            name=tracer.graph._target_to_str(getattr(orig_method, "__name__", str(orig_method))),
        )


def _is_method_only(function: Any) -> bool:
    """Return whether a call that arrived can be written as a method alone."""
    definition = getattr(function, "definition", None)
    if definition is None:
        return False
    name = function.__name__
    return getattr(tangrad, name, None) is not function and (
        getattr(tangrad.Tensor, name, None) is function
    )


def _unpacked(frame: FrameType | None) -> int | None:
    """Return how many names a frame is about to unpack a value into, or None."""
    if frame is None:
        return None
    instructions = list(dis.get_instructions(frame.f_code))
    at = bisect.bisect_left(instructions, frame.f_lasti, key=lambda i: i.offset)
    found = instructions[at]
    return int(found.argval) if found.opname == "UNPACK_SEQUENCE" else None


class Attribute(Proxy):
    """An attribute of a value; it becomes a node only if it is used otherwise than as a method."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root, self.attr, self.tracer = root, attr, root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        """The node that reads it."""
        if self._node is None:
            self._node = self.tracer.create_proxy(
                "call_function", getattr, (self.root, self.attr), {}
            ).node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        """Note that the method of this name is called."""
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class ParameterProxy(Proxy):
    """A parameter that keeps its shape, so that a program may decide by it."""

    def __init__(self, tracer: TracerBase, node: Node, name: str, param: Any) -> None:
        super().__init__(node, tracer)
        self.param, self.name = param, name

    def __repr__(self) -> str:
        return f"ParameterProxy({self.name})"

    @property
    def shape(self) -> Any:
        """The shape of the parameter."""
        return self.param.shape

    def size(self, *dim: int) -> Any:
        """Return the size of the parameter."""
        return self.param.size(*dim)

    def dim(self) -> int:
        """Return the number of dimensions of the parameter."""
        return int(self.param.dim())

    @property
    def ndim(self) -> int:
        """The number of dimensions of the parameter."""
        return int(self.param.ndim)

    def numel(self) -> int:
        """Return the number of elements of the parameter."""
        return int(self.param.numel())

    def nelement(self) -> int:
        """Return the number of elements of the parameter."""
        return int(self.param.nelement())


def _forward(function: Callable[..., Any], reflected: bool) -> Callable[..., Proxy]:
    def traced(self: Proxy, *args: Any, **kwargs: Any) -> Proxy:
        given = (args[0], self) if reflected else (self, *args)
        return self.tracer.create_proxy("call_function", function, given, kwargs)

    return traced


for _name in MAGIC_METHODS:
    setattr(Proxy, f"__{_name.strip('_')}__", _forward(getattr(operator, _name), False))
for _name in REFLECTABLE:
    setattr(Proxy, f"__r{_name.strip('_')}__", _forward(getattr(operator, _name), True))


@contextmanager
def scope_of(tracer: TracerBase, path: str, kind: Any) -> Iterator[None]:
    """Note for a while which module is being traced."""
    with ScopeContextManager(tracer.scope, Scope(path, kind)):
        number = tracer.num_calls.get(path, 0)
        tracer.num_calls[path] = number + 1
        key = path if number == 0 else f"{path}@{number}"
        tracer.module_stack[key] = (path, kind)
        try:
            yield
        finally:
            tracer.module_stack.popitem(last=True)
