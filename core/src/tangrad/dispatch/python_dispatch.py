"""`__torch_dispatch__`: subclasses and modes that see calls below recording."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tangrad import _C
from tangrad.discovery import namespaces
from tangrad.dispatch.binding import handled_form, public_form
from tangrad.dispatch.random_state import drawn
from tangrad.dispatch.stack import Stack, current, flat_tensors
from tangrad.tensor import indexing, methods


def recorded(op: _C.Op, functional: _C.Op, args: tuple[Any, ...], out: Any, stack: Stack) -> Any:
    """Record and run, unless a dispatch mode or wrapper subclass takes the call below recording."""
    if stack.tracers:
        return followed(op, functional, drawn(functional, args), out, stack)
    if not stack.dispatch_disabled and (stack.dispatch_modes or _has_dispatch(args)):
        return call_below_recording(stack, op, functional, args, out)
    if of_other_layout(args, out):
        return of_layouts(op, functional, args, out)
    if op is not functional:
        return _C.call_recorded(functional, args, args[0], True)
    return _C.call_recorded(functional, args, out, False)


_TENSORS = (_C.Tensor, _C.Parameter)
_CONSTANTS = (int, float, bool, type(None), str, _C.dtype)


def traces_alone(stack: Stack) -> bool:
    """Return whether nothing but a tracer stands between calls and their kernels."""
    return bool(stack.tracers) and not (
        stack.function_modes
        or stack.rewriters
        or stack.levels
        or stack.dispatch_modes
        or stack.write_watchers
        or stack.watching is not None
    )


def are_plain(args: Any) -> bool:
    """Return whether arguments are constants and tensors of the core's own classes and layout."""
    for a in args:
        kind = type(a)
        if kind in _TENSORS:
            if _C.level_of(a) is not None or _C.contents_of(a) is not None:
                return False
        elif kind is tuple or kind is list:
            if not are_plain(a):
                return False
        elif kind not in _CONSTANTS:
            return False
    return True


def followed(
    op: _C.Op, functional: _C.Op, args: tuple[Any, ...], out: Any, stack: Stack, plain: bool = False
) -> Any:
    """Tell the innermost tracer of a call, before and after it; `plain` ones go to the kernel."""
    tracer = stack.tracers.pop()
    try:
        call = tracer.enter(op, functional, args, out)
        if not plain:
            result = recorded(op, functional, args, out, stack)
        elif op is functional:
            result = _C.call_recorded(functional, args, out, False)
        else:
            result = _C.call_recorded(functional, args, args[0], True)
        tracer.leave(call, result)
        return result
    except BaseException:
        getattr(tracer, "failed", bool)()
        raise
    finally:
        stack.tracers.append(tracer)


def of_other_layout(args: tuple[Any, ...], out: Any = None) -> bool:
    """Return whether a tensor of another layout takes part in a call."""
    return any(_C.contents_of(t) is not None for t in flat_tensors((*args, out)))


def of_layouts(op: _C.Op, functional: _C.Op, args: tuple[Any, ...], out: Any) -> Any:
    """Run a call in which one takes part; the part above replaces this before there is any."""
    raise NotImplementedError(op.title)


def composite_of_layouts(
    op: _C.Op, functional: _C.Op, args: tuple[Any, ...], out: Any
) -> tuple[bool, Any]:
    """Run a composite that has a kernel of its own for a layout: (done, result); as above."""
    return False, None


def makes_wrapper(stack: Stack, op: _C.Op, args: tuple[Any, ...]) -> bool:
    """Return whether a composite makes new memory like that of a wrapper subclass.

    Its tensor code takes only sizes and dtype from the wrapper, so nothing in it would reach the
    handler, and the result would be a wrapper around nothing.
    """
    makes = "pin_memory" in op.definition.parameter_names
    return makes and not stack.dispatch_disabled and _has_dispatch(args)


def made_by_handler(stack: Stack, op: _C.Op, args: tuple[Any, ...]) -> Any:
    """Return what `__torch_dispatch__` gives for such a call."""
    place = op.definition.parameter_names.index("requires_grad")
    plain = (*args[:place], False, *args[place + 1 :])
    previous = _C._set_grad_enabled(False)
    try:
        made = _offer(stack, op, op, plain, None)
    finally:
        _C._set_grad_enabled(previous)
    return _C.requiring_grad(made) if args[place] else made


def _has_dispatch(args: tuple[Any, ...]) -> bool:
    return any(hasattr(type(a), "__torch_dispatch__") for a in flat_tensors(args))


def call_below_recording(
    stack: Stack, op: _C.Op, functional: _C.Op, args: tuple[Any, ...], out: Any
) -> Any:
    """Record the call at this level and let `__torch_dispatch__` compute its results."""
    args = drawn(functional, args)
    schema = functional.definition.schema
    needs = (
        _C.is_grad_enabled()
        and out is None
        and functional.definition.differentiable
        and _C.needs_gradient(functional, args)
    )
    if out is None and (op is not functional or schema.written >= 0):
        return _written(stack, op, functional, args, needs)
    result = _C.call_unrecorded(_offer, stack, op, functional, args, out)
    if functional.kind == "view" and functional.definition.differentiable:
        _mark_as_views(result, args)
    if needs and not schema.written_lists:
        result = fresh(result, args)
        _C.record_call(functional, args, result)
    return result


def _mark_as_views(result: Any, args: tuple[Any, ...]) -> None:
    """Have writes into what a handler gave for a view reach the history of its base."""
    several = not isinstance(result, _C.Tensor)
    for view in flat_tensors((result,)):
        if view is not args[0] and not view._is_view():
            _C.mark_as_view(view, args[0], several)


def _written(stack: Stack, op: _C.Op, functional: _C.Op, args: tuple[Any, ...], needs: bool) -> Any:
    """Let handlers compute a write, and record it where it needs gradients."""
    target = args[max(functional.definition.schema.written, 0)]
    if needs and functional.kind == "view":
        return _C.adopt(target, call_below_recording(stack, functional, functional, args, None))
    node, version = None, target._version
    if needs:
        saved = args
        if op is not functional and _C.saves_first_input(functional, args):
            saved = (_C.stand_in(_copy_unseen(stack, target), target), *args[1:])
        node = _C.record_write(functional, saved, target, op.title)
    _C.call_unrecorded(_offer, stack, op, functional, args, None)
    if target._version == version and not target.is_inference():  # only what a wrapper holds
        _C.increment_version(target)
    _C.finish_write(node, target)
    return target


def _copy_unseen(stack: Stack, t: Any) -> Any:
    hidden = not _has_dispatch((t,))  # the program makes no copy
    stack.dispatch_disabled += hidden
    try:
        return _C.call_unrecorded(_C.lookup_op("clone"), t)
    finally:
        stack.dispatch_disabled -= hidden


def fresh(result: Any, args: tuple[Any, ...]) -> Any:
    """Make sure that results are new objects, so that they can carry their own history."""
    given = flat_tensors(args)

    def one(r: Any) -> Any:
        if isinstance(r, _C.Tensor) and any(r is a for a in given):
            return _C.as_class(r, type(r))
        return r

    if isinstance(result, (tuple, list)):
        return (
            type(result)(*map(one, result))
            if hasattr(result, "_fields")
            else type(result)(map(one, result))
        )
    return one(result)


def _offer(stack: Stack, op: _C.Op, functional: _C.Op, args: tuple[Any, ...], out: Any) -> Any:
    if out is None and op.name in calls_shown.leaves and is_shown(stack, args):
        result = calls_shown.leaves[op.name](op, args)
        if result is not NotImplemented:
            return result
    given, kwargs = handled_form(functional, args)
    shown = calls_shown.handed(public_form(op, given, kwargs), given, kwargs, out)
    form = op, given, kwargs if out is None else {**kwargs, "out": out}

    def run() -> Any:
        stack.dispatch_disabled += 1
        try:
            return recorded(op, functional, args, out, stack)
        finally:
            stack.dispatch_disabled -= 1

    return handle(stack, shown, form, run, op.title)


def handle(stack: Stack, shown: Any, form: Any, run: Callable[[], Any], title: str) -> Any:
    """Offer a call to the innermost mode, then to the classes of its tensors.

    Args:
        stack: the thread's.
        shown: (function, args, kwargs), as handlers get them.
        form: the same for modes that see forms.
        run: computes the call where no class of the arguments has a handler.
        title: the name in messages.

    Raises:
        TypeError: no handler of the arguments' classes takes the call.
    """
    tensors = flat_tensors((*shown[1], *shown[2].values()))
    kinds = [type(t) for t in tensors if hasattr(type(t), "__torch_dispatch__")]
    types = tuple(dict.fromkeys(kinds))
    if stack.dispatch_modes:
        mode = stack.dispatch_modes.pop()
        stack.install()
        try:
            func, args, kwargs = form if mode.sees_forms else shown
            result = mode.__torch_dispatch__(func, types, args, kwargs)
        finally:
            stack.dispatch_modes.append(mode)
            stack.install()
        if result is not NotImplemented:
            return result
    func, args, kwargs = shown
    for kind in sorted(types, key=lambda k: -len(k.__mro__)):
        result = kind.__torch_dispatch__(func, types, args, kwargs)
        if result is not NotImplemented:
            return result
    if not types:
        return run()
    raise TypeError(
        f"{title}: all __torch_dispatch__ handlers returned NotImplemented "
        f"({', '.join(k.__name__ for k in types)})"
    )


def _given(func: Any, args: Any, kwargs: dict[str, Any], out: Any) -> tuple[Any, ...]:
    return func, args, kwargs if out is None else {**kwargs, "out": out}


class CallsShown:
    """How handlers see calls. A package may bring others, as `_calls_shown`; these show our ops.

    Attributes:
        handed: (op, args, kwargs, out) -> (function, args, kwargs) for a handler.
        leaves: {name: what is called in an op's place, with the op and its arguments, below
            recording}; it may return NotImplemented.
        composites: the same above recording, for ops that are expanded otherwise.
        item: what is called in the place of `item`, or gives NotImplemented.
    """

    item = staticmethod(lambda t: NotImplemented)
    handed = staticmethod(_given)
    leaves: Mapping[str, Callable[..., Any]] = {}
    composites: Mapping[str, Callable[..., Any]] = {}


calls_shown: Any = CallsShown


def show_calls() -> None:
    """Load how handlers see calls, before there is anything that handles them."""
    global calls_shown
    if calls_shown is CallsShown and namespaces.is_listed("_calls_shown"):
        calls_shown = namespaces.resolve("_calls_shown")


def is_shown(stack: Stack, args: Any) -> bool:
    """Return whether something handles a call of these arguments, and sees it as it is shown."""
    if stack.dispatch_disabled or stack.levels or stack.tracers:
        return False
    if stack.dispatch_modes:
        return not stack.dispatch_modes[-1].sees_forms
    return _has_dispatch(args)


def offered_at_masks(name: str, x: Any, indices: list[Any], *rest: Any) -> Any:
    """Offer an indexing at masks to handlers as it is; NotImplemented where none takes it."""
    stack, args = current(), (x, indices, *rest)
    if calls_shown is CallsShown or not is_shown(stack, args):
        return NotImplemented
    if any(mode.sees_forms for mode in stack.dispatch_modes):
        return NotImplemented
    if _C.is_grad_enabled() and any(t.requires_grad for t in flat_tensors(args)):
        return NotImplemented
    op = _C.lookup_op(name)
    return _offer(stack, op, op, args, None)


indexing.offer_at_masks = offered_at_masks
methods.before_wrapping = show_calls


def detached(t: _C.Tensor) -> _C.Tensor:
    """Return what a wrapper subclass's `__torch_dispatch__` handler gives for `detach`."""
    previous = _C._set_grad_enabled(False)
    try:
        return _offer(current(), _C.lookup_op("detach"), _C.lookup_op("detach"), (t,), None)
    finally:
        _C._set_grad_enabled(previous)


def _local_scalar_dense(self: Any) -> Any:
    """Return the number in a tensor: what a handler receives for `item`."""
    return self.item()


def item_below_recording(t: Any) -> tuple[bool, Any]:
    """Return item() as modes answer it, or the class of a wrapper: (handled, value)."""
    stack = current()
    wraps = _has_dispatch((t,)) and not any(t.untyped_storage()._handle)
    offered = (wraps or stack.dispatch_modes) and is_shown(stack, (t,))
    result = calls_shown.item(t) if offered else NotImplemented
    if result is NotImplemented:
        if not wraps:
            return False, None
        result = type(t).__torch_dispatch__(_local_scalar_dense, (type(t),), (t,), {})
    return True, result.item() if isinstance(result, _C.Tensor) else result


class TorchDispatchMode:
    """See every call below recording in a `with` block: override `__torch_dispatch__`."""

    sees_forms = False  # True: is handed the form of a name that fitted, as graphs keep it

    def __torch_dispatch__(
        self,
        func: Any,
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define __torch_dispatch__")

    def __enter__(self) -> TorchDispatchMode:
        show_calls()
        stack = current()
        stack.dispatch_modes.append(self)
        stack.install()
        return self

    def __exit__(self, *exc: Any) -> None:
        stack = current()
        stack.dispatch_modes.remove(self)
        stack.install()
