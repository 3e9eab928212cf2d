"""`tangrad.compile`: runs what it is given as it is, until a package brings a compiler."""

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
    """Return a function or module as it is; warn once that nothing is compiled.

    Args:
        model: function or module; None to use this as a decorator with arguments.
        mode, options: of which only one may be given.
        disable: do nothing, without the warning.
        fullgraph, dynamic, backend, name, recompile_limit, isolate_recompiles, shapes_spec:
            for compilers.

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

    if not disable:
        _warn_once()
    return unchanged if model is None else unchanged(model)


def _warn_once() -> None:
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            "tangrad.compile runs the function as it is: no package that compiles is installed",
            UserWarning,
            stacklevel=3,
        )
