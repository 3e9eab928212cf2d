"""`functorch.compile`: functions and modules handed to two compilers below autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tangrad_jit.compiling.frontend import compile
from tangrad_jit.dynamo.backends.common import AotAutograd

__all__ = ["aot_function", "aot_module", "make_boxed_compiler", "make_boxed_func", "nop"]


def make_boxed_func(f: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    """Return a function of one list, which may drop its arguments early, for one of several."""

    def boxed(args: list[Any]) -> Any:
        return f(*args)

    boxed._boxed_call = True  # type: ignore[attr-defined]
    return boxed


def make_boxed_compiler(compiler: Callable[..., Any]) -> Callable[..., Any]:
    """Return a compiler whose results take one list."""
    return lambda graph_module, inputs: make_boxed_func(compiler(graph_module, inputs))


def nop(fx_g: Any, _: Any) -> Any:
    """Return the graph module: it runs as it is."""
    return fx_g


def aot_function(
    fn: Callable[..., Any],
    fw_compiler: Callable[..., Any],
    bw_compiler: Callable[..., Any] | None = None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Return a function whose graphs of results and of derivatives go to compilers.

    Args:
        fn: the function.
        fw_compiler: takes (graph module, example inputs) and returns what runs.
        bw_compiler: the same for derivatives; by default `fw_compiler`.
        args, kwargs: accepted; see `AotAutograd`.
    """
    backend = AotAutograd(fw_compiler=fw_compiler, bw_compiler=bw_compiler)
    return compile(fn, backend=backend, fullgraph=True)


aot_module = aot_function
