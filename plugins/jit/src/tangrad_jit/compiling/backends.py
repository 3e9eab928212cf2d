"""Back ends: what runs a graph in our place, `backend(graph_module, example_inputs)`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tangrad
from tangrad.plugin import load_by_name, plugin_names
from tangrad_jit.graph.ir import Graph
from tangrad_jit.graph.types import TensorType

__all__ = [
    "GROUP",
    "aot_eager",
    "backend_named",
    "default_backend",
    "eager",
    "list_backends",
    "register_backend",
    "run_by_backend",
    "set_default_backend",
    "with_options",
]

GROUP = "tangrad.compilers"
_OWN = (None, "tangrad", "inductor")


_registered: dict[str, Callable[..., Any]] = {}
_default: Any = None


def register_backend(
    compiler_fn: Callable[..., Any] | None = None, name: str | None = None, tags: Any = ()
) -> Any:
    """Give a function a name under which `compile` finds it, in this process; also a decorator.

    Args:
        compiler_fn: takes (graph module, example inputs) and returns what runs.
        name: by default the function's.
        tags: accepted.

    Raises:
        ValueError: another function has the name.
    """
    if compiler_fn is None:
        return lambda function: register_backend(function, name, tags)
    called = name or compiler_fn.__name__
    if called in _OWN or called in plugin_names(GROUP) or called in _registered:
        raise ValueError(f"register_backend: there is a back end '{called}'; take another name")
    _registered[called] = compiler_fn
    return compiler_fn


def set_default_backend(backend: Any = None) -> None:
    """Set what `compile` takes where it is given no back end.

    Args:
        backend: a name or function; None: ours.

    Raises:
        LookupError: nobody offers the name.
    """
    global _default
    backend_named(backend)
    _default = backend


def default_backend() -> Any:
    """Return what `compile` takes where it is given no back end: a name or a function."""
    return "tangrad" if _default is None else _default


def backend_named(backend: Any) -> Callable[..., Any] | None:
    """Return the back end of a name, or None for our own.

    Args:
        backend: a name, a function, or None for the default. "inductor", which programs written
            for PyTorch name, is ours.

    Raises:
        LookupError: no installed package offers it.
    """
    if backend is None:
        backend = _default
    if backend in _OWN:
        return None
    if callable(backend):
        return backend
    if backend in _registered:
        return _registered[backend]
    if backend == "default":
        raise LookupError("'default' is the compiler, not one of its back ends")
    return load_by_name(GROUP, backend)


def list_backends(exclude_tags: Any = ()) -> list[str]:
    """Return the names that `backend` may have.

    Args:
        exclude_tags: accepted; back ends have none here.
    """
    return sorted({"tangrad", *plugin_names(GROUP), *_registered} - {"default"})


def with_options(
    backend: Callable[..., Any], mode: str | None, options: dict[str, Any] | None
) -> Callable[..., Any]:
    """Return a back end that is given a mode and options, as far as there are any, by keyword."""
    given: dict[str, Any] = {} if mode in (None, "default") else {"mode": mode}
    if options:
        given["options"] = options
    if not given:
        return backend
    made = functools.partial(backend, **given)
    if getattr(backend, "bw_compiler", None) is not None:
        made.bw_compiler = backend.bw_compiler  # type: ignore[attr-defined]
    return made


def eager(graph_module: Any, example_inputs: Sequence[Any], **ignored: Any) -> Any:
    """Run the graph as it is, whatever options there are."""
    return graph_module


def aot_eager(graph_module: Any, example_inputs: Sequence[Any], **ignored: Any) -> Any:
    """Run the graph as it is: graphs of `compile` are below autograd already."""
    return graph_module


def run_by_backend(
    graph: Graph, backend: Callable[..., Any], backward: bool = False
) -> Callable[[list[Any]], list[Any]]:
    """Return what runs a graph by a back end.

    Args:
        graph: the graph.
        backend: the back end; if it has an attribute `bw_compiler`, that gets derivatives.
        backward: whether the graph is of derivatives.
    """
    if backward:
        backend = getattr(backend, "bw_compiler", None) or backend
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
            made = run(list(inputs)) if getattr(run, "_boxed_call", False) else run(*inputs)
        return list(made) if isinstance(made, (tuple, list)) else [made]

    return call
