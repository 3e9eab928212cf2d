"""Back ends: what runs a graph in our place, `backend(graph_module, example_inputs)`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tangrad
from tangrad.plugin import load_by_name, plugin_names
from tangrad_jit.graph.ir import Graph
from tangrad_jit.graph.types import TensorType

__all__ = ["GROUP", "aot_eager", "backend_named", "eager", "list_backends", "run_by_backend"]

API = 1
GROUP = "tangrad.compilers"
_OWN = (None, "tangrad", "inductor")


def backend_named(backend: Any) -> Callable[..., Any] | None:
    """Return the back end of a name, or None for our own.

    Args:
        backend: a name, a function, or None. "inductor", which programs written for PyTorch name,
            is ours.

    Raises:
        LookupError: no installed package offers it.
    """
    if backend in _OWN:
        return None
    if callable(backend):
        return backend
    if backend == "default":
        raise LookupError("'default' is the compiler, not one of its back ends")
    return load_by_name(GROUP, backend)


def list_backends() -> list[str]:
    """Return the names that `backend` may have."""
    return sorted({"tangrad", *plugin_names(GROUP)} - {"default"})


def eager(graph_module: Any, example_inputs: Sequence[Any]) -> Any:
    """Run the graph as it is."""
    return graph_module


def aot_eager(graph_module: Any, example_inputs: Sequence[Any]) -> Any:
    """Run the graph as it is: graphs of `compile` are below autograd already."""
    return graph_module


def run_by_backend(graph: Graph, backend: Callable[..., Any]) -> Callable[[list[Any]], list[Any]]:
    """Return what runs a graph by a back end."""
    from tangrad_jit.graph.fx_conversion import to_fx

    examples = []
    for entry in graph.inputs:
        type = entry.value.type
        if entry.tensor is not None or not isinstance(type, TensorType):
            examples.append(entry.tensor if entry.tensor is not None else 0)
            continue
        dtype = getattr(tangrad, type.dtype)
        examples.append(
            tangrad.empty_strided(type.shape, type.stride, dtype=dtype, device=type.device)
        )
    run = backend(to_fx(graph), examples)

    def call(inputs: list[Any]) -> list[Any]:
        with tangrad.no_grad():
            made = run(*inputs)
        return list(made) if isinstance(made, (tuple, list)) else [made]

    return call
