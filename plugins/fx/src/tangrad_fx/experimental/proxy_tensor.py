"""`make_fx`: run a function on tensors and keep the graph of the ops below autograd."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import tangrad
from tangrad.nn import Module
from tangrad.utils import _pytree
from tangrad.utils._python_dispatch import TorchDispatchMode
from tangrad_fx.graph import Graph
from tangrad_fx.graph_module import GraphModule, _assign_attr
from tangrad_fx.node import Argument
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
    """Makes nodes of ops on tensors; tensors that it does not know become attributes."""

    def __init__(self) -> None:
        super().__init__()
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

    def __init__(
        self,
        tracer: PythonKeyTracer,
        tracing_mode: str = "real",
        decompositions: dict[Any, Callable[..., Any]] | None = None,
    ) -> None:
        self.tracer, self.tracing_mode = tracer, tracing_mode
        self.decompositions = decompositions or {}
        self.enable_tracing = True
        # By memory, as recording wraps tensors anew; they are kept, so that it stays theirs.
        self._proxies: dict[Any, tuple[Any, Proxy]] = {}

    def track(self, value: Any, proxy: Proxy) -> None:
        """Follow the tensors of a nested value from now on."""
        if isinstance(value, tangrad.Tensor):
            self._proxies[_memory(value)] = (value, proxy)
            proxy.node.meta["val"] = value.detach()
        elif isinstance(value, (tuple, list)):
            for i, item in enumerate(value):
                if isinstance(item, (tangrad.Tensor, tuple, list)):
                    self.track(item, proxy[i])

    def proxy_of(self, value: Any) -> Any:
        """Return the proxy of a tensor that is followed, or what was given."""
        if isinstance(value, tangrad.Tensor):
            known = self._proxies.get(_memory(value))
            return value if known is None else known[1]
        return value

    def __enter__(self) -> ProxyTorchDispatchMode:
        _modes.append(self)
        super().__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
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
        given = _pytree.tree_map(self.proxy_of, args)
        named = _pytree.tree_map(self.proxy_of, kwargs)
        result = func(*args, **kwargs)
        if isinstance(result, (int, float, bool)):
            return result
        proxy = self.tracer.create_proxy("call_function", func, given, named)
        self.track(result, proxy)
        return result


def _memory(t: Any) -> Any:
    """Return what two tensors share that see the same memory in the same way."""
    if t.numel() == 0 or t.device.type == "meta":
        return id(t)
    return t.data_ptr(), t.dtype, tuple(t.shape), t.stride()


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
