"""The way of a call through everything that can stand between it and its kernel.

`__torch_function__` -> observers -> autocast -> transform levels -> recording ->
`__torch_dispatch__` -> kernel. The compiled core comes here only when a thread's interceptor
pointer is set, or an argument is of a subclass or belongs to a level.
"""

from __future__ import annotations

from typing import Any

from tangrad import _C
from tangrad.dispatch import python_dispatch
from tangrad.dispatch.binding import call_by_name
from tangrad.dispatch.levels import levelled
from tangrad.dispatch.overrides import call_torch_function, overloaded_arguments, refuse_strangers
from tangrad.dispatch.phases import phase, phase_is_watched
from tangrad.dispatch.python_dispatch import (
    are_plain,
    followed,
    item_below_recording,
    of_other_layout,
    traces_alone,
)
from tangrad.dispatch.random_state import drawn
from tangrad.dispatch.stack import Stack, current, flat_tensors


def dispatch(op: _C.Op, functional: _C.Op, args: tuple[Any, ...], out: Any) -> Any:
    """Run a bound call through what stands between.

    Args:
        op: the op that was called (an in-place form, or `functional` itself).
        functional: the op whose signature `args` follow.
        args: arguments in schema order.
        out: the out= argument or None.
    """
    stack = current()
    overloaded = overloaded_arguments(args, stack)
    if overloaded or stack.function_modes:
        result = call_torch_function(stack, op, functional, args, out, overloaded)
        if result is not NotImplemented:
            return result
    return offered(op, functional, args, out)


def offered(op: _C.Op, functional: _C.Op, args: tuple[Any, ...], out: Any) -> Any:
    """Run a bound call that `__torch_function__` has left through the rest."""
    stack = current()
    if traces_alone(stack) and functional.kind != "composite" and are_plain((*args, out)):
        return followed(op, functional, drawn(functional, args), out, stack, True)
    refuse_strangers(op, args)
    return observed(op, functional, args, out, stack)


def observed(op: _C.Op, functional: _C.Op, args: tuple[Any, ...], out: Any, stack: Stack) -> Any:
    """Run observers around the rest."""
    if stack.watching is None:
        return rewritten(op, functional, args, out, stack)
    return _C.observe_call(stack.watching, op, functional, args, out, rewritten, stack)


def rewritten(op: _C.Op, functional: _C.Op, args: tuple[Any, ...], out: Any, stack: Stack) -> Any:
    """Let autocast and its like change the arguments; in-place forms and out= stay as they are."""
    if stack.rewriters:
        if op is not functional or out is not None:
            return unrewritten(op, functional, args, out, stack)
        taken = False
        for rewrite in stack.rewriters:
            changed = rewrite(op, args)
            if changed is not None:
                args, taken = changed, True
        if taken:
            # The ops that it is made of are of the dtype that was chosen for it.
            return unrewritten(op, functional, args, None, stack)
    return entered(op, functional, args, out, stack)


def unrewritten(op: _C.Op, functional: _C.Op, args: tuple[Any, ...], out: Any, stack: Stack) -> Any:
    """Run a call that a rewriter took, or must not touch, without rewriters for what it calls."""
    kept, stack.rewriters = stack.rewriters, []
    stack.install()
    try:
        return entered(op, functional, args, out, stack)
    finally:
        stack.rewriters = kept
        stack.install()


def entered(op: _C.Op, functional: _C.Op, args: tuple[Any, ...], out: Any, stack: Stack) -> Any:
    """Expand a composite, or enter the levels."""
    if functional.kind == "composite":
        return expanded(op, functional, args, out, stack)
    if stack.write_watchers and (targets := written(op, functional, args, out)):
        with stack.write_watchers[-1](targets):
            return unwatched(op, functional, args, out, stack)
    return unwatched(op, functional, args, out, stack)


def unwatched(op: _C.Op, functional: _C.Op, args: tuple[Any, ...], out: Any, stack: Stack) -> Any:
    """Enter the levels."""
    if stack.levels and functional.definition.schema.written_lists:
        return in_tensor_code(functional, args)
    return levelled(op, functional, args, out, stack)


def written(op: _C.Op, functional: _C.Op, args: tuple[Any, ...], out: Any) -> list[Any]:
    """Return the tensors that a call is about to write."""
    schema = functional.definition.schema
    places = [args[0]] if op is not functional else []
    if schema.written >= 0:
        places.append(args[schema.written])
    return flat_tensors([*places, *(args[k] for k in schema.written_lists), out])


def expanded(op: _C.Op, functional: _C.Op, args: tuple[Any, ...], out: Any, stack: Stack) -> Any:
    """Run a composite's tensor code; out= inside transforms is left to the levels to refuse."""
    if out is not None and stack.levels:
        return stack.levels[-1].process(op, functional, args, out)
    if not stack.levels and of_other_layout(args):
        done, result = python_dispatch.composite_of_layouts(op, functional, args, out)
        if done:
            return result
    if not stack.levels and out is None:
        shown = python_dispatch.calls_shown.composites.get(op.name)
        if shown is not None and python_dispatch.is_shown(stack, args):
            result = shown(op, args)
            if result is not NotImplemented:
                return result
        if python_dispatch.makes_wrapper(stack, functional, args):
            return python_dispatch.made_by_handler(stack, functional, args)
    target = functional.definition.schema.written
    draws = functional.definition.random and (target < 0 or _C.level_of(args[target]) is not None)
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


def push_observer(observer: Any) -> None:
    """Tell an observer of every op of this thread, until `pop_observer`.

    Args:
        observer: an object with `enter(op) -> token` and `leave(op, token)`, or, where it wants
            arguments and results, `enter_call(op, args) -> token` and
            `leave_call(op, token, result)`, the result being None if the op raised. With
            `enter_node(node) -> token` and `leave_node(node, token)` it is told of the steps of
            backward, too. The methods are looked up here, once.

    Raises:
        RuntimeError: the thread has sixteen observers already.
    """
    stack = current()
    stack.observe((*stack.observers, observer))


def pop_observer(observer: Any) -> None:
    """Remove an observer.

    Raises:
        ValueError: it does not observe this thread.
    """
    stack = current()
    left = list(stack.observers)
    left.remove(observer)
    stack.observe(tuple(left))


class intercepted:
    """Context manager: an interceptor that a plugin offers is active in this thread.

    Entering returns the interceptor.

    Args:
        name: what the plugin calls it.

    Raises:
        KeyError: no plugin offers an interceptor of that name (when it is entered).
        RuntimeError: several do.
        TypeError: what a plugin offers is none.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> Any:
        from tangrad.discovery.hooks import offered

        make, plugin = offered("tangrad_register_interceptors", self.name)
        if plugin is None:
            raise KeyError(
                f"no installed plugin offers an interceptor named {self.name!r}; "
                "`python -m tangrad info` lists the plugins and what failed"
            )
        try:
            self.observer = make()
            push_observer(self.observer)
        except (AttributeError, TypeError) as error:
            who = f"'{self.name}' of {plugin.distribution} {plugin.version}"
            raise TypeError(f"{who} is no interceptor: {error}") from error
        return self.observer

    def __exit__(self, *exc: Any) -> None:
        pop_observer(self.observer)


def pop_c_observer(context: int) -> None:
    """Remove the C observer with that context pointer."""
    for o in current().observers:
        if isinstance(o, _C.CInterceptor) and _C._c_interceptor_context(o) == context:
            pop_observer(o)
            return
    raise RuntimeError("no interceptor with that context is installed in this thread")


def intercept_item(t: Any) -> tuple[bool, Any]:
    """Answer item() of a tensor that stands for something else: (handled, value)."""
    tracers = current().tracers
    number = tracers[-1].read(t) if tracers else None
    if number is not None:
        return True, number
    record = _C.level_of(t)
    if record is not None:
        return True, record.item()
    held = _C.contents_of(t)
    if held is not None:
        return True, held.layout.definition.item(t)
    plain = type(t) is _C.Tensor or type(t) is _C.Parameter
    if current().dispatch_modes or (not plain and hasattr(type(t), "__torch_dispatch__")):
        handled, value = item_below_recording(t)
        if handled:
            return True, value
    if phase_is_watched():
        with phase("aten::item"):
            return True, _C._item_of_memory(t)
    return False, None


_C.set_slow_dispatch(dispatch, offered)
