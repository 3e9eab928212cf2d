"""The stack of one thread: everything that is active between a call and its kernel."""

from __future__ import annotations

import threading
from typing import Any

from tangrad import _C


class Stack:
    """What stands between in one thread.

    Attributes:
        function_modes: active TorchFunctionMode objects, innermost last.
        observers: what is told of every op; see `_C.Observers`.
        rewriters: callables (op, args) -> args, or None to leave the call alone, e.g. autocast.
        levels: transform levels in order of entry.
        dispatch_modes: active TorchDispatchMode objects.
        tracers: objects with `call`, `constant` and `read`, see `traced_calls`; the last acts.
        functions_disabled: > 0 while `__torch_function__` of subclasses is off.
        redispatches: whether the next question of `has_torch_function` is answered by no.
        write_watchers: callables (tensors) -> context in which a call writes them; the last acts.
        creating: > 0 while a composite that draws a fresh tensor is expanded.
    """

    __slots__ = (
        "__weakref__",
        "creating",
        "dispatch_disabled",
        "dispatch_modes",
        "function_modes",
        "functions_disabled",
        "levels",
        "observers",
        "redispatches",
        "rewriters",
        "tracers",
        "watching",
        "write_watchers",
    )

    def __init__(self) -> None:
        self.function_modes: list[Any] = []
        self.observers: tuple[Any, ...] = ()
        self.watching: _C.Observers | None = None
        self.rewriters: list[Any] = []
        self.levels: list[Any] = []
        self.write_watchers: list[Any] = []
        self.dispatch_modes: list[Any] = []
        self.tracers: list[Any] = []
        self.functions_disabled = 0
        self.redispatches = False
        self.dispatch_disabled = 0
        self.creating = 0

    def install(self) -> None:
        """Set or clear the thread's pointer according to whether anything is active."""
        more = bool(
            self.function_modes
            or self.rewriters
            or self.levels
            or self.dispatch_modes
            or self.tracers
            or self.write_watchers
        )
        active = more or self.watching is not None
        _C.set_intercept(self if active else None, more, self.watching)

    def observe(self, observers: tuple[Any, ...]) -> None:
        """Tell these of the ops to come; calls in progress end with those they began with."""
        self.watching = _C.Observers(observers) if observers else None
        self.observers = observers
        self.install()

    def __del__(self, leave: Any = _C.leave_thread) -> None:
        # A thread that ends while something stands between may still run destructors that compute.
        leave(self)

    def lift(self, made: Any) -> Any:
        """Take a freshly made tensor into the levels that act in this thread."""
        self.tell_of_constant(made)
        return self.levels[-1].lift(made, None, self.levels[:-1]) if self.levels else made

    def refuse_in_transforms(self, method: str) -> None:
        """Refuse a method of tensors that a transform, which has records of its own, would not see.

        Raises:
            RuntimeError: a transform of functions runs in this thread.
        """
        if any(not level.lenient for level in self.levels):
            raise RuntimeError(
                f"You are attempting to call Tensor.{method} inside of a function being "
                "transformed by a functorch transform, which does not see it: use grad, vjp, "
                "jacrev, jacfwd or hessian there, or call it outside"
            )

    def tell_of_allocation(self, made: Any) -> None:
        """Tell the tracer of a tensor that has no values yet."""
        if self.tracers:
            self.tracers[-1].allocated(made)

    def tell_of_constant(self, made: Any) -> None:
        """Tell the tracer of a tensor that no op made: of numbers, zeros, another's memory."""
        if self.tracers:
            self.tracers[-1].constant(made)

    def tell_of_gradient(self, tensor: Any) -> None:
        """Tell the tracer, where it asks, that `.grad` of a tensor is looked at or set."""
        told = getattr(self.tracers[-1], "gradient", None) if self.tracers else None
        if told is not None:
            told(tensor)


class _Thread(threading.local):
    def __init__(self) -> None:
        self.stack = Stack()


_thread = _Thread()


def current() -> Stack:
    """Return this thread's stack."""
    return _thread.stack


class entered:
    """Context manager: put an item on one list of the thread's stack."""

    def __init__(self, which: str, item: Any) -> None:
        self.which, self.item = which, item

    def __enter__(self) -> Any:
        stack = _thread.stack
        getattr(stack, self.which).append(self.item)
        stack.install()
        return self.item

    def __exit__(self, *exc: Any) -> None:
        stack = _thread.stack
        items = getattr(stack, self.which)
        for i in range(len(items) - 1, -1, -1):
            if items[i] is self.item:
                del items[i]
                break
        stack.install()


def flat_tensors(args: Any) -> list[Any]:
    """Return the tensors among arguments, looking into lists and tuples."""
    found = []
    for a in args:
        if isinstance(a, _C.Tensor):
            found.append(a)
        elif isinstance(a, (list, tuple)):
            found.extend(flat_tensors(a))
    return found
