"""`make_fx`: run a function on tensors and keep the graph of the ops below autograd."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import tangrad
from tangrad.nn import Module
from tangrad.plugin import bind_arguments, traced_calls
from tangrad.utils import _pytree
from tangrad.utils._python_dispatch import TorchDispatchMode
from tangrad_fx.arguments import told_apart
from tangrad_fx.graph import Graph
from tangrad_fx.graph_module import GraphModule, _assign_attr
from tangrad_fx.node import Argument, Node
from tangrad_fx.proxy import Proxy, TracerBase

__all__ = [
    "ProxyTorchDispatchMode",
    "PythonKeyTracer",
    "disable_proxy_modes_tracing",
    "get_proxy_mode",
    "is_sym_node",
    "make_fx",
]

_modes: list[ProxyTorchDispatchMode] = []


class PythonKeyTracer(TracerBase):
    """Makes nodes of ops on tensors; tensors that it does not know become attributes.

    Attributes:
        origin: the name of the call that is running, where a graph is traced anew.
    """

    def __init__(self) -> None:
        super().__init__()
        self.origin: str | None = None
        self.graph = Graph()
        self.root = Module()
        self.constants: dict[int, str] = {}

    def create_arg(self, a: Any) -> Argument:
        """Return a value as an argument of a node."""
        if isinstance(a, tangrad.Tensor):
            name = self.constants.get(id(a))
            if name is None:
                kind = (
                    "_param_constant"
                    if isinstance(a, tangrad.nn.Parameter)
                    else ("_tensor_constant")
                )
                name = f"{kind}{sum(n.startswith(kind) for n in self.constants.values())}"
                self.constants[id(a)] = name
                _assign_attr(a, self.root, name)
            return self.create_node("get_attr", name, (), {})
        return super().create_arg(a)


class ProxyTorchDispatchMode(TorchDispatchMode):
    """Add a node to a graph for every op on tensors that it follows.

    Args:
        tracer: what makes the nodes.
        tracing_mode: "real"; the graph holds for the sizes of the example.
        decompositions: {op: function of the same arguments} for ops that are to be taken apart.
    """

    sees_forms = True  # what reads the graphs, exporters say, knows ops by their forms

    def __init__(
        self,
        tracer: PythonKeyTracer,
        tracing_mode: str = "real",
        decompositions: dict[Any, Callable[..., Any]] | None = None,
    ) -> None:
        self.tracer, self.tracing_mode = tracer, tracing_mode
        self.decompositions = decompositions or {}
        self.enable_tracing = True
        # By memory, as recording wraps tensors anew; they are kept, so that it stays theirs. First
        # by the object: a tensor and what `detach` gives see one memory in one way.
        self._proxies: dict[Any, tuple[Any, Proxy]] = {}
        # Tensors that no op made: whether they have values, in which call.
        self._made: dict[Any, tuple[Any, bool, str | None]] = {}
        self._draws: dict[int, tuple[Any, Node, int]] = {}  # seeds and offsets: who drew them
        self._watching: list[traced_calls] = []

    def track(self, value: Any, proxy: Proxy) -> None:
        """Follow the tensors of a nested value from now on."""
        if isinstance(value, tangrad.Tensor):
            self._proxies[id(value)] = self._proxies[_memory(value)] = (value, proxy)
            proxy.node.meta["val"] = value.detach()
        elif isinstance(value, (tuple, list)):
            for i, item in enumerate(value):
                if isinstance(item, (tangrad.Tensor, tuple, list)):
                    self.track(item, proxy[i])

    def proxy_of(self, value: Any) -> Any:
        """Return the proxy of a tensor that is followed, or what was given."""
        if isinstance(value, tangrad.Tensor):
            memory = _memory(value)
            known = self._proxies.get(id(value)) or self._proxies.get(memory)
            if known is not None:
                return known[1]
            if memory in self._made:
                _, has_values, origin = self._made[memory]
                proxy = self._create(value, has_values)
                proxy.node.meta["origin"] = origin
                self.track(value, proxy)
                return proxy
        if id(value) in self._draws:
            return self._number(value)
        return value

    def note(self, made: Any, has_values: bool) -> None:
        """Note a tensor that the program has made without an op, each time that it runs."""
        if self.enable_tracing:
            self._made[_memory(made)] = (made, has_values, self.tracer.origin)

    def _create(self, made: Any, has_values: bool) -> Proxy:
        """Add the node that makes a tensor which no op has made."""
        if has_values:  # a copy, as the program may write into it
            with disable_proxy_modes_tracing():
                held = made.detach().clone()
            return self.tracer.create_proxy("call_function", tangrad.clone, (held,), {})
        kwargs = {"dtype": made.dtype, "device": made.device}
        shape, stride = tuple(made.shape), made.stride()
        if made.is_contiguous():
            return self.tracer.create_proxy("call_function", tangrad.empty, (shape,), kwargs)
        return self.tracer.create_proxy(
            "call_function", tangrad.empty_strided, (shape, tuple(stride)), kwargs
        )

    def _number(self, value: Any) -> Proxy:
        """Return the proxy of a seed or offset that an earlier call drew."""
        _, node, place = self._draws[id(value)]
        if "seed" not in node.kwargs:
            graph = node.graph
            with graph.inserting_before(node):
                pair = graph.call_function(draw, (node.target, *node.args), dict(node.kwargs))
                seed = graph.call_function(operator.getitem, (pair, 0))
                offset = graph.call_function(operator.getitem, (pair, 1))
            node.kwargs = {**node.kwargs, "seed": seed, "offset": offset}
        return Proxy(node.kwargs[("seed", "offset")[place]], self.tracer)

    def __enter__(self) -> ProxyTorchDispatchMode:
        _modes.append(self)
        super().__enter__()
        self._watching.append(traced_calls(_Makings(self)))
        self._watching[-1].__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._watching.pop().__exit__(*exc)
        _modes.remove(self)
        super().__exit__(*exc)

    def __torch_dispatch__(
        self,
        func: Any,
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if not self.enable_tracing:
            return func(*args, **kwargs)
        if func in self.decompositions:
            with self:
                return self.decompositions[func](*args, **kwargs)
        # A call draws anew whenever it runs, but what uses the numbers of another.
        drawn = [kwargs[name] for name in ("seed", "offset") if name in kwargs]
        draws = len(drawn) == 2 and id(drawn[0]) not in self._draws
        given = _pytree.tree_map(self.proxy_of, args)
        named = _pytree.tree_map(
            self.proxy_of,
            {k: v for k, v in kwargs.items() if not (draws and k in ("seed", "offset"))},
        )
        result = func(*args, **kwargs)
        if isinstance(result, (int, float, bool)):
            return result
        proxy = self.tracer.create_proxy("call_function", func, given, named)
        for place, value in enumerate(drawn if draws else ()):
            self._draws[id(value)] = (value, proxy.node, place)
        self.track(result, proxy)
        return result


class _Makings:
    """Tells a mode of the tensors that a program makes without an op."""

    def __init__(self, mode: ProxyTorchDispatchMode) -> None:
        self.mode = mode

    def enter(self, op: Any, functional: Any, args: Any, out: Any) -> None:
        """Leave a call to the mode."""

    def leave(self, call: Any, result: Any) -> None:
        """Leave what it gave to the mode."""

    def constant(self, made: Any) -> None:
        """Note a tensor made of numbers."""
        self.mode.note(made, has_values=True)

    def allocated(self, made: Any) -> None:
        """Note a tensor without values."""
        self.mode.note(made, has_values=False)

    def read(self, t: Any) -> None:
        """Let Python read a value as it is."""

    def value_reads(self) -> int:
        """Return that reads are not counted."""
        return 0


def draw(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Return the seed and offset that a call of a random op takes of its stream."""
    functional = getattr(op, "functional", None) or op
    return functional.definition.draw(bind_arguments(functional, args, kwargs)[0])


def _memory(t: Any) -> Any:
    """Return what two tensors share that see the same memory in the same way."""
    if t.numel() == 0 or t.device.type == "meta":
        return id(t)
    return t.data_ptr(), t.dtype, tuple(t.shape), t.stride(), t.is_conj(), t.is_neg()


def get_proxy_mode() -> ProxyTorchDispatchMode | None:
    """Return the mode that is tracing in this process, or None."""
    return _modes[-1] if _modes else None


get_innermost_proxy_mode = get_proxy_mode


def is_sym_node(node: Any) -> bool:
    """Return whether a node's value is a number: never, as sizes are those of the example."""
    return isinstance(node.meta.get("val"), (tangrad.SymInt, tangrad.SymFloat, tangrad.SymBool))


@contextmanager
def disable_proxy_modes_tracing(enable_current: bool = False) -> Iterator[Any]:
    """Have calls inside a `with` block leave no nodes."""
    mode = get_proxy_mode()
    if mode is None:
        yield None
        return
    before, mode.enable_tracing = mode.enable_tracing, False
    try:
        yield mode
    finally:
        mode.enable_tracing = before


def make_fx(
    f: Callable[..., Any],
    decomposition_table: dict[Any, Callable[..., Any]] | None = None,
    tracing_mode: str = "real",
    _allow_non_fake_inputs: bool = False,
    *,
    pre_dispatch: bool = False,
    record_module_stack: bool = False,
    _allow_fake_constant: bool = False,
    _error_on_data_dependent_ops: bool = True,
    record_stack_traces: bool = False,
) -> Callable[..., GraphModule]:
    """Return a function that runs `f` on example arguments and returns the graph of what it did.

    The ops are those below autograd: derivatives that `f` takes are in the graph.

    Args:
        f: the function.
        decomposition_table: {op: function} for ops that are to be taken apart.
        tracing_mode: "real" or "fake"; the sizes are those of the example.
        record_stack_traces: whether nodes note where the program made the call.
        _allow_non_fake_inputs, pre_dispatch, record_module_stack, _allow_fake_constant,
            _error_on_data_dependent_ops: accepted.

    Raises:
        NotImplementedError: `tracing_mode` is "symbolic".
        ValueError: it is something else.
    """
    if tracing_mode == "symbolic":
        raise NotImplementedError(
            "make_fx(tracing_mode='symbolic'): graphs hold for the sizes of the example; "
            "tangrad[jit] compiles for sizes that vary"
        )
    if tracing_mode not in ("real", "fake"):
        raise ValueError(f"Unexpected tracing type: {tracing_mode}")

    @wraps(f)
    def traced(*args: Any) -> GraphModule:
        tracer = PythonKeyTracer()
        tracer.record_stack_traces = record_stack_traces
        mode = ProxyTorchDispatchMode(tracer, tracing_mode, decomposition_table)
        leaves, spec = _pytree.tree_flatten(args)
        leaves = told_apart(leaves)
        for k, leaf in enumerate(leaves):
            proxy = tracer.create_proxy("placeholder", f"arg{k}_1", (), {})
            if isinstance(leaf, tangrad.Tensor):
                mode.track(leaf, proxy)
        with mode:
            result = f(*_pytree.tree_unflatten(leaves, spec))
        returned = _pytree.tree_map(mode.proxy_of, result)
        tracer.create_node("output", "output", (tracer.create_arg(returned),), {})
        graph = tracer.graph
        _number_inputs(graph, leaves, spec, args)
        return GraphModule(tracer.root, graph, getattr(f, "__name__", "GraphModule"))

    return traced


def _number_inputs(graph: Graph, leaves: list[Any], spec: Any, args: tuple[Any, ...]) -> None:
    """Have the module take nested arguments as the function took them."""
    if all(child.is_leaf() for child in spec.children()):
        return
    from tangrad_fx.codegen import PyTreeCodeGen, PyTreeInfo

    names = [f"arg{k}" for k in range(len(args))]
    graph.set_codegen(PyTreeCodeGen(PyTreeInfo(names, spec, None)))
