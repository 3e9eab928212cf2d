"""`tangrad._dynamo`: the names of PyTorch's front end that programs use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tangrad.plugin import submodules_on_demand
from tangrad_jit.compiler import (
    allow_in_graph,
    assume_constant_result,
    disable,
    is_compiling,
    list_backends,
    reset,
    set_stance,
    substitute_in_graph,
)
from tangrad_jit.compiling.backends import backend_named, register_backend
from tangrad_jit.compiling.compiled import refuse
from tangrad_jit.compiling.explanation import explain as _explain
from tangrad_jit.compiling.frontend import OptimizedModule
from tangrad_jit.compiling.frontend import compile as _compile
from tangrad_jit.compiling.sizes import mark

__all__ = [
    "OptimizedModule",
    "allow_in_graph",
    "assume_constant_result",
    "disable",
    "disallow_in_graph",
    "explain",
    "export",
    "forbid_in_graph",
    "graph_break",
    "is_compiling",
    "is_dynamo_supported",
    "list_backends",
    "lookup_backend",
    "mark_dynamic",
    "mark_static",
    "mark_static_address",
    "mark_unbacked",
    "maybe_mark_dynamic",
    "nonstrict_trace",
    "optimize",
    "register_backend",
    "reset",
    "set_stance",
    "substitute_in_graph",
]


__getattr__ = submodules_on_demand(__name__)

nonstrict_trace = allow_in_graph


def lookup_backend(compiler_fn: Any) -> Any:
    """Return the back end of a name: a function of a graph module and example inputs.

    Raises:
        LookupError: nobody offers it.
    """
    from tangrad_jit.compiling.backends import eager

    return backend_named(compiler_fn) or eager


def explain(f: Callable[..., Any], *extra_args: Any, **extra_kwargs: Any) -> Any:
    """Return a function that takes arguments and returns what the compiler makes of the call."""
    if extra_args or extra_kwargs:
        return _explain(f, *extra_args, **extra_kwargs)
    return lambda *args, **kwargs: _explain(f, *args, **kwargs)


def optimize(backend: Any = None, *, nopython: bool = False, **kwargs: Any) -> Any:
    """Return a decorator that compiles a function.

    Args:
        backend: as in `compile`.
        nopython: `fullgraph` of `compile`.
        kwargs: accepted.
    """
    return lambda function: _compile(function, fullgraph=nopython, backend=backend)


def export(*args: Any, **kwargs: Any) -> Any:
    """Refuse.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError("_dynamo.export: use jit.trace, whose graphs can be saved")


def graph_break(msg: str = "") -> None:
    """End the graph: a recorded run that comes here is none."""
    refuse(f"graph_break() was called{': ' + msg if msg else ''}")


def is_dynamo_supported() -> bool:
    """Return whether functions can be compiled here."""
    return True


def disallow_in_graph(fn: Any) -> Any:
    """Return a function that no graph contains."""
    return disable(fn)


forbid_in_graph = disallow_in_graph


def mark_dynamic(t: Any, index: Any, *, min: int | None = None, max: int | None = None) -> None:
    """Mark dimensions whose sizes differ from call to call: they are no recordings.

    Args:
        t: an argument of calls to come.
        index: a dimension, or a list or tuple of them.
        min, max: accepted.

    Raises:
        IndexError: the tensor has no such dimension.
    """
    mark(t, index, True)


maybe_mark_dynamic = mark_unbacked = mark_dynamic


def mark_static(t: Any, index: Any = None) -> None:
    """Mark dimensions whose sizes stay: each other size is a recording.

    Args:
        t: an argument of calls to come; of a module's class, nothing is marked.
        index: a dimension, a list or tuple of them, or None for all.

    Raises:
        IndexError: the tensor has no such dimension.
    """
    if not isinstance(t, type):
        mark(t, index, False)


def mark_static_address(t: Any, guard: bool = True) -> Any:
    """Return what is given: tensors may move."""
    return t
