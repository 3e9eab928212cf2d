"""`tangrad.compile`: hands a function to the compiler that is installed, or runs it as it is.

The compiler is what a package names `default` in the entry-point group `tangrad.compilers`: a
function that takes what `compile` takes. The other names of the group are back ends.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

__all__ = ["compile"]

_warned = False


def compile(
    model: Callable[..., Any] | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] | None = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: Any = None,
) -> Any:
    """Return a function or module compiled; as it is, with one warning, where no compiler is.

    Args:
        model: function or module; None to use this as a decorator with arguments.
        fullgraph: the function must be one graph; what keeps it from being one raises.
        dynamic: whether sizes are expected to vary.
        backend: name or function of what runs graphs.
        mode, options: how to compile; only one may be given.
        disable: do nothing, without the warning.
        recompile_limit: how many graphs there may be of a function.
        name, isolate_recompiles, shapes_spec: accepted.

    Raises:
        RuntimeError: both `mode` and `options` are given, or a decorator gets None.
        TypeError: `model` cannot be called.
    """
    if mode is not None and options is not None:
        raise RuntimeError(
            "Either mode or options can be specified, but both can't be specified at the same time."
        )

    def unchanged(function: Callable[..., Any] | None) -> Callable[..., Any]:
        if function is None:
            raise RuntimeError("Model can't be None")
        if not callable(function):
            raise TypeError(f"compile: expected a function or a module, got {function!r}")
        return function

    if disable:
        return unchanged if model is None else unchanged(model)
    compiler = _compiler()
    if compiler is None:
        _warn_once()
        return unchanged if model is None else unchanged(model)

    def compiled(function: Callable[..., Any] | None) -> Any:
        return compiler(
            unchanged(function),
            fullgraph=fullgraph,
            dynamic=dynamic,
            backend=backend,
            mode=mode,
            options=options,
            recompile_limit=recompile_limit,
        )

    return compiled if model is None else compiled(model)


def _compiler() -> Callable[..., Any] | None:
    """Return the installed compiler, or None."""
    from tangrad.discovery import discovery

    plugin = discovery.find("tangrad.compilers", "default")
    return None if plugin is None else discovery.load(plugin)


def _explain(model: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run a function once and return what the compiler makes of it, as an object that prints.

    Raises:
        RuntimeError: no package that compiles is installed.
    """
    compiler = _compiler()
    if compiler is None:
        raise RuntimeError(_absence("compile.explain"))
    return compiler.explain(model, *args, **kwargs)  # type: ignore[attr-defined]


compile.explain = _explain  # type: ignore[attr-defined]


def _absence(wanted: str) -> str:
    from tangrad.discovery.neutral import what_brings

    return what_brings("compiler", wanted) or f"{wanted} needs an entry point named default"


def _warn_once() -> None:
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            f"tangrad.compile runs the function as it is: {_absence('a compiler')}",
            UserWarning,
            stacklevel=3,
        )
