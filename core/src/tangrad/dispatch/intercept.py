"""Everything that can stand between a call and recording, in its fixed order.

`__torch_function__` -> observers -> autocast -> transform levels -> recording ->
`__torch_dispatch__` -> kernel. The compiled core comes here only when a thread's interceptor
pointer is set, or an argument is of a subclass or belongs to a level.
"""

from __future__ import annotations

import threading
from typing import Any

from tangrad import _C
from tangrad.dispatch.binding import call_by_name


class Stack:
    """What stands between in one thread.

    Attributes:
        function_modes: active TorchFunctionMode objects, innermost last.
        observers: objects with enter(op) -> token and leave(op, token).
        rewriters: callables (op, args) -> args, e.g. autocast.
        levels: transform levels in order of entry.
        dispatch_modes: active TorchDispatchMode objects.
        functions_disabled: > 0 while `__torch_function__` of subclasses is off.
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
        "rewriters",
    )

    def __init__(self) -> None:
        self.function_modes: list[Any] = []
        self.observers: list[Any] = []
        self.rewriters: list[Any] = []
        self.levels: list[Any] = []
        self.dispatch_modes: list[Any] = []
        self.functions_disabled = 0
        self.dispatch_disabled = 0
        self.creating = 0

    def install(self) -> None:
        """Set or clear the thread's pointer according to whether anything is active."""
        active = (
            self.function_modes
            or self.observers
            or self.rewriters
            or self.levels
            or self.dispatch_modes
        )
        _C.set_intercept(self if active else None)

    def lift(self, made: Any) -> Any:
        """Take a freshly made tensor into the levels that act in this thread."""
        from tangrad.dispatch.levels import lift

        return lift(made)


class _Thread(threading.local):
    def __init__(self) -> None:
        self.stack = Stack()


_thread = _Thread()


def current() -> Stack:
    """Return this thread's stack."""
    return _thread.stack


def dispatch(op: _C.Op, functional: _C.Op, args: tuple[Any, ...], out: Any) -> Any:
    """Run a bound call through what stands between.

    Args:
        op: the op that was called (an in-place form, or `functional` itself).
        functional: the op whose signature `args` follow.
        args: arguments in schema order.
        out: the out= argument or None.
    """
    stack = _thread.stack
    overloaded = _overloaded(args, stack)
    if overloaded or stack.function_modes:
        from tangrad.dispatch.overrides import call_torch_function

        return call_torch_function(stack, op, functional, args, out, overloaded)
    _refuse_strangers(op, args)
    return observed(op, functional, args, out, stack)


def _refuse_strangers(op: _C.Op, args: tuple[Any, ...]) -> None:
    """Let no object that only has `__torch_function__` reach a kernel when nobody took it over."""
    for a in args:
        kind = type(a)
        if not isinstance(a, _C.Tensor) and hasattr(kind, "__torch_function__"):
            raise TypeError(
                f"{op.title}(): argument must be Tensor, not {kind.__qualname__}, whose "
                "__torch_function__ is switched off here"
            )


def _overloaded(args: tuple[Any, ...], stack: Stack) -> list[Any]:
    """Return one argument per class that overrides `__torch_function__`, subclasses first."""
    if stack.functions_disabled:
        return []
    found: list[Any] = []
    for a in args:
        for x in a if isinstance(a, (list, tuple)) else (a,):
            kind = type(x)
            if kind is _C.Tensor or kind is _C.Parameter or not hasattr(kind, "__torch_function__"):
                continue
            if kind.__torch_function__ is _disabled or any(type(f) is kind for f in found):
                continue
            position = next(
                (i for i, f in enumerate(found) if issubclass(kind, type(f))), len(found)
            )
            found.insert(position, x)
    return found


def _disabled(*args: Any) -> Any:
    """Stand for `__torch_function__` of a subclass that wants none of it."""
    return NotImplemented


def observed(op: _C.Op, functional: _C.Op, args: tuple[Any, ...], out: Any, stack: Stack) -> Any:
    """Run observers around the rest."""
    if not stack.observers:
        return rewritten(op, functional, args, out, stack)
    entered: list[tuple[Any, Any]] = []
    try:
        for observer in stack.observers:
            entered.append((observer, observer.enter(op)))
        return rewritten(op, functional, args, out, stack)
    finally:
        for observer, token in reversed(entered):
            observer.leave(op, token)


def rewritten(op: _C.Op, functional: _C.Op, args: tuple[Any, ...], out: Any, stack: Stack) -> Any:
    """Let autocast and its like change the arguments, expand composites, enter the levels."""
    for rewrite in stack.rewriters:
        args = rewrite(op, args)
    if functional.kind == "composite":
        return expanded(op, functional, args, out, stack)
    if stack.levels and functional.definition.schema.written_lists:
        return in_tensor_code(functional, args)
    return levelled(op, functional, args, out, stack)


def expanded(op: _C.Op, functional: _C.Op, args: tuple[Any, ...], out: Any, stack: Stack) -> Any:
    """Run a composite's tensor code; out= inside transforms is left to the levels to refuse."""
    if out is not None and stack.levels:
        return stack.levels[-1].process(op, functional, args, out)
    draws = functional.definition.module == "tangrad.ops.random"
    stack.creating += draws
    try:
        return _C.call_recorded(
            functional, args, args[0] if op is not functional else out, op is not functional
        )
    finally:
        stack.creating -= draws


def in_tensor_code(op: _C.Op, args: tuple[Any, ...]) -> Any:
    """Run the decomposition of an op that writes lists: the levels know the ops in it."""
    definition = op.definition
    named = dict(zip(definition.parameter_names, args, strict=True))
    call_by_name(definition.decompose, named)
    return args[definition.schema.written_lists[0]] if definition.schema.returns else None


def levelled(op: _C.Op, functional: _C.Op, args: tuple[Any, ...], out: Any, stack: Stack) -> Any:
    """Hand the call to the innermost transform level, or on to recording."""
    if stack.levels:
        return stack.levels[-1].process(op, functional, args, out)
    escaped = next((a for a in flat_tensors(args) if _C.level_of(a) is not None), None)
    if escaped is not None:
        if _C.level_of(escaped).level.lenient:
            from tangrad.dispatch.levels import map_tensors, open_tensor

            return levelled(op, functional, map_tensors(open_tensor, args), out, stack)
        raise RuntimeError(
            f"{op.title}: a tensor of a transform (vmap, grad, jvp) was used after the transform "
            "ended; return it from the transformed function instead of keeping it"
        )
    return recorded(op, functional, args, out, stack)


def recorded(op: _C.Op, functional: _C.Op, args: tuple[Any, ...], out: Any, stack: Stack) -> Any:
    """Record and run, unless a dispatch mode or wrapper subclass takes the call below recording."""
    if not stack.dispatch_disabled and (stack.dispatch_modes or _has_dispatch(args)):
        from tangrad.dispatch.python_dispatch import call_below_recording

        return call_below_recording(stack, op, functional, args, out)
    if op is not functional:
        return _C.call_recorded(functional, args, args[0], True)
    return _C.call_recorded(functional, args, out, False)


def _has_dispatch(args: tuple[Any, ...]) -> bool:
    return any(hasattr(type(a), "__torch_dispatch__") for a in flat_tensors(args))


def flat_tensors(args: Any) -> list[Any]:
    """Return the tensors among arguments, looking into lists and tuples."""
    found = []
    for a in args:
        if isinstance(a, _C.Tensor):
            found.append(a)
        elif isinstance(a, (list, tuple)):
            found.extend(flat_tensors(a))
    return found


# --- entering and leaving ------------------------------------------------------------------------


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


def push_observer(observer: Any) -> None:
    """Add an observer (enter, leave) of every op in this thread."""
    _thread.stack.observers.append(observer)
    _thread.stack.install()


def pop_observer(observer: Any) -> None:
    """Remove an observer."""
    _thread.stack.observers.remove(observer)
    _thread.stack.install()


def pop_c_observer(context: int) -> None:
    """Remove the C observer with that context pointer."""
    for o in _thread.stack.observers:
        if isinstance(o, _C.CInterceptor) and _C._c_interceptor_context(o) == context:
            pop_observer(o)
            return
    raise RuntimeError("no interceptor with that context is installed in this thread")


def intercept_item(t: Any) -> tuple[bool, Any]:
    """Answer item() of a tensor that stands for something else: (handled, value)."""
    record = _C.level_of(t)
    if record is not None:
        return True, record.item()
    if (
        type(t) is not _C.Tensor
        and type(t) is not _C.Parameter
        and hasattr(type(t), "__torch_dispatch__")
    ):
        from tangrad.dispatch.python_dispatch import item_below_recording

        return item_below_recording(t)
    return False, None


_C.set_slow_dispatch(dispatch)
