"""Let a tracer see calls of modules, and what is read of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tangrad.nn._module as _module
from tangrad.nn.modules.module import Module


@contextmanager
def intercepted_modules(
    call: Callable[..., Any], read: Callable[..., Any] | None = None
) -> Iterator[None]:
    """Have every call of a module, in all threads, go through a function inside a `with` block.

    Args:
        call: (module, args, kwargs, original) -> result; `original(module, *args, **kwargs)` calls
            the module with its hooks.
        read: (module, name, original) -> value, for registered parameters, buffers and modules and
            whatever else is no attribute by itself; None: they are read as always.
    """
    original_call: Any = Module.__call__
    original_read: Any = Module.__getattr__

    def called(self: Module, /, *args: Any, **kwargs: Any) -> Any:
        return call(self, args, kwargs, original_call)

    def found(self: Module, name: str) -> Any:
        return read(self, name, original_read)  # type: ignore[misc]

    Module.__call__ = called  # type: ignore[method-assign]
    if read is not None:
        Module.__getattr__ = found  # type: ignore[method-assign]
    try:
        yield
    finally:
        Module.__call__ = original_call  # type: ignore[method-assign]
        if read is not None:
            Module.__getattr__ = original_read  # type: ignore[method-assign]
        _accelerate(Module)


def _accelerate(cls: Any) -> None:
    """Put the compiled slots back, which the assignment has taken from all classes below."""
    _module.accelerate(cls)
    for below in cls.__subclasses__():
        _accelerate(below)
