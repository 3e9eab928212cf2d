"""`tangrad.compiler`: what programs ask of, and tell, the compiler."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from tangrad import nn
from tangrad.plugin import keeps_branches
from tangrad_jit.compiling.backends import default_backend as get_default_backend
from tangrad_jit.compiling.backends import list_backends, set_default_backend
from tangrad_jit.compiling.compiled import is_compiling as is_dynamo_compiling
from tangrad_jit.compiling.compiled import outside_of_compiling, refuse
from tangrad_jit.compiling.frontend import OptimizedModule, compile, reset
from tangrad_jit.compiling.stance import set_stance

__all__ = [
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "cudagraph_mark_step_begin",
    "disable",
    "get_default_backend",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "keep_portable_guards_unsafe",
    "keep_tensor_guards_unsafe",
    "list_backends",
    "load_compiled_function",
    "nested_compile_region",
    "reset",
    "set_default_backend",
    "set_stance",
    "skip_all_guards_unsafe",
    "skip_guard_on_all_nn_modules_unsafe",
    "skip_guard_on_globals_unsafe",
    "skip_guard_on_inbuilt_nn_modules_unsafe",
    "substitute_in_graph",
]


F = TypeVar("F", bound=Callable[..., Any])


def is_compiling() -> bool:
    """Return whether this thread records a program, for `compile` or for `tangrad.export`."""
    return is_dynamo_compiling() or keeps_branches()


def is_exporting() -> bool:
    """Return whether this thread records a program for `tangrad.export`."""
    return keeps_branches()


def allow_in_graph(fn: F) -> F:
    """Return what is given: recording follows the ops of every function."""
    return fn


def assume_constant_result(fn: F) -> F:
    """Return what is given: a result that is a number is a constant of the graph anyway."""
    return fn


def substitute_in_graph(original_fn: Any, **kwargs: Any) -> Callable[[F], F]:
    """Return a decorator that gives back what it is given: recording follows every function."""
    return allow_in_graph


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Return a function that no graph contains: who calls it in a recorded run is refused.

    Args:
        fn: the function or module; of a class, the calls of its objects are kept out of graphs;
            None to use this as a decorator with arguments.
        recursive: accepted.
        reason: why, for the message.
    """
    if fn is None:
        return lambda function: disable(function, recursive, reason=reason)

    if isinstance(fn, nn.Module):
        return _OutsideModule(fn, reason)
    if isinstance(fn, type):
        fn.__call__ = disable(fn.__call__, recursive, reason=reason)  # type: ignore[method-assign]
        return fn

    @functools.wraps(fn)
    def outside(*args: Any, **kwargs: Any) -> Any:
        _refuse_call(fn, reason)
        with outside_of_compiling():
            return fn(*args, **kwargs)

    return outside


def _refuse_call(fn: Any, reason: str | None) -> None:
    name = getattr(fn, "__name__", type(fn).__name__)
    refuse(
        f"{name}() is kept out of graphs by compiler.disable" + (f": {reason}" if reason else "")
    )


class _OutsideModule(OptimizedModule):
    """A module that no graph contains."""

    def __init__(self, module: nn.Module, reason: str | None) -> None:
        nn.Module.__init__(self)
        self.__dict__["_reason"] = reason
        self.add_module("_orig_mod", module)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module; refuse to, in a recorded run."""
        _refuse_call(self._orig_mod, self._reason)
        with outside_of_compiling():
            return self._orig_mod(*args, **kwargs)

    def __reduce__(self) -> Any:
        return _OutsideModule, (self._orig_mod, self._reason)


def nested_compile_region(fn: Any = None, **kwargs: Any) -> Any:
    """Return what is given: code that repeats is recorded as often, which takes microseconds."""
    return allow_in_graph if fn is None else fn


def _keep_guards(guard_entries: Any) -> list[bool]:
    """Say of each guard that it stays: here they are looked at in any case."""
    return [True for _ in guard_entries]


keep_portable_guards_unsafe = _keep_guards
keep_tensor_guards_unsafe = _keep_guards
skip_all_guards_unsafe = _keep_guards
skip_guard_on_all_nn_modules_unsafe = _keep_guards
skip_guard_on_globals_unsafe = _keep_guards
skip_guard_on_inbuilt_nn_modules_unsafe = _keep_guards


def cudagraph_mark_step_begin() -> None:
    """Do nothing: there are no graphs of CUDA here."""


def load_compiled_function(*args: Any, **kwargs: Any) -> Any:
    """Refuse: nothing compiled is written to disk.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError("load_compiled_function: compiled functions are not written to disk")
