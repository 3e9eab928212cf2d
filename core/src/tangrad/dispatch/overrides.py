"""`__torch_function__`: subclasses and modes that take over calls of the public API."""

from __future__ import annotations

from functools import cache
from types import FunctionType
from typing import Any

from tangrad import _C
from tangrad.dispatch.binding import call_form
from tangrad.dispatch.python_forms import as_pytorch_hands
from tangrad.dispatch.stack import Stack, current


def refuse_strangers(op: _C.Op, args: tuple[Any, ...]) -> None:
    """Let no object that only has `__torch_function__` reach a kernel when nobody took it over."""
    for a in args:
        kind = type(a)
        if not isinstance(a, _C.Tensor) and hasattr(kind, "__torch_function__"):
            raise TypeError(
                f"{op.title}(): argument must be Tensor, not {kind.__qualname__}, whose "
                "__torch_function__ is switched off here"
            )


def overloaded_arguments(args: tuple[Any, ...], stack: Stack) -> list[Any]:
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


def call_torch_function(
    stack: Stack,
    op: _C.Op,
    functional: _C.Op,
    args: tuple[Any, ...],
    out: Any,
    overloaded: list[Any],
) -> Any:
    """Offer a bound call (an operator's, whose arguments nobody wrote out), as `hand_over` does."""
    given, kwargs = call_form(functional, args)
    if out is not None:
        kwargs["out"] = out
    return hand_over(stack, op, overloaded, given, kwargs)


def offer(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Offer a call as it was written; NotImplemented if nobody takes it."""
    stack = current()
    overloaded = overloaded_arguments((*args, *kwargs.values()), stack)
    if not overloaded and not stack.function_modes:
        return NotImplemented
    modes = stack.function_modes
    given, named = as_pytorch_hands(function, args, kwargs, modes)
    return hand_over(stack, function, overloaded, given, named)


# The operators, in the order of the compiled core: the method of Tensor that PyTorch hands over
# for a tensor on the left; for a tensor on the right alone; and for the form in place.
_FORWARD = (
    "add sub mul div __floordiv__ remainder __pow__ matmul __and__ __or__ __xor__ __lshift__ "
    "__rshift__ lt le eq ne gt ge"
).split()
_REFLECTED = (
    "add __rsub__ mul __rtruediv__ __rfloordiv__ __rmod__ __rpow__ __rmatmul__ bitwise_and "
    "bitwise_or bitwise_xor __rlshift__ __rrshift__"
).split()
_IN_PLACE = (
    "add_ sub_ mul_ div_ floor_divide_ remainder_ __ipow__ __imatmul__ __iand__ __ior__ __ixor__ "
    "__ilshift__ __irshift__"
).split()


def offer_operator(which: int, left: Any, right: Any) -> Any:
    """Offer an operator that has a tensor among its operands; NotImplemented if nobody takes it."""
    if isinstance(left, _C.Tensor):
        name = _FORWARD[which]
        if name == "eq" and (type(left) is not _C.Tensor or current().function_modes):
            name = "__eq__"
        return offer(getattr(_C.Tensor, name), (left, right), {})
    return offer(getattr(_C.Tensor, _REFLECTED[which]), (right, left), {})


def offer_in_place(which: int, left: Any, right: Any) -> Any:
    """Offer an operator that writes its left operand; NotImplemented if nobody takes it."""
    return offer(getattr(_C.Tensor, _IN_PLACE[which]), (left, right), {})


def hand_over(
    stack: Stack,
    function: Any,
    overloaded: list[Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Offer a call to the innermost mode, then to the arguments' classes.

    Returns:
        The result, or NotImplemented where modes alone were asked and left the call as it is.

    Raises:
        TypeError: no class of an argument handled it.
    """
    types = tuple(type(a) for a in overloaded)
    if stack.function_modes:
        mode = stack.function_modes.pop()
        stack.install()
        try:
            result = mode.__torch_function__(function, types, args, kwargs)
        finally:
            stack.function_modes.append(mode)
            stack.install()
        if result is not NotImplemented:
            return result
    for a in overloaded:
        # Of the object, as some have it there alone.
        result = a.__torch_function__(function, types, args, kwargs)
        if result is not NotImplemented:
            return result
    if not overloaded:
        return NotImplemented
    name = getattr(function, "title", None) or getattr(function, "__name__", repr(function))
    names = ", ".join(sorted({t.__qualname__ for t in types}))
    raise TypeError(
        f"Multiple dispatch failed for 'tangrad.{name}'; all __torch_function__ handlers "
        f"returned NotImplemented ({names}). Handle the op there, or call "
        "super().__torch_function__."
    )


class DisableTorchFunctionSubclass:
    """Context manager: subclasses' `__torch_function__` is not called in this thread."""

    def __enter__(self) -> None:
        current().functions_disabled += 1

    def __exit__(self, *exc: Any) -> None:
        current().functions_disabled -= 1


class DisableTorchFunction:
    """Context manager: neither subclasses' nor modes' `__torch_function__` is called."""

    def __enter__(self) -> None:
        stack = current()
        stack.functions_disabled += 1
        self.modes = stack.function_modes
        stack.function_modes = []
        stack.install()

    def __exit__(self, *exc: Any) -> None:
        stack = current()
        stack.functions_disabled -= 1
        stack.function_modes = self.modes
        stack.install()


def default_torch_function(
    cls: type, func: Any, types: tuple[type, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Run `func` with overrides off and convert results to `cls`.

    A class with `__torch_dispatch__` and no `__torch_function__` of its own says there what its
    results are.
    """
    plain = issubclass(cls, _C.Parameter)  # what is computed of a parameter is none
    if not plain and not all(issubclass(cls, t) for t in types):
        return NotImplemented
    with DisableTorchFunctionSubclass():
        result = func(*args, **kwargs)
    if (
        plain
        or func in _unconverted()
        or (
            hasattr(cls, "__torch_dispatch__")
            and next(k for k in cls.__mro__ if "__torch_function__" in vars(k)) is _C.Tensor
        )
    ):
        return result
    return as_class(result, cls)


@cache
def _unconverted() -> set[Any]:
    """Return what reads a tensor that is kept: to convert it would give another at each reading."""
    read = (_C.Tensor.grad, _C.Tensor._base, _C.Tensor._grad)
    return {descriptor.__get__ for descriptor in read}


def as_class(result: Any, cls: type) -> Any:
    """Give tensors in a result the class `cls`, keeping their history."""
    if isinstance(result, _C.Tensor):
        if isinstance(result, cls):
            return result
        return _C.share_history(_C.as_class(result, cls), result)
    if isinstance(result, tuple):
        converted = [as_class(r, cls) for r in result]
        return type(result)(*converted) if hasattr(result, "_fields") else type(result)(converted)
    if isinstance(result, list):
        return [as_class(r, cls) for r in result]
    return result


class TorchFunctionMode:
    """Take over every public call in a `with` block: override `__torch_function__`."""

    def __torch_function__(
        self,
        func: Any,
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define __torch_function__")

    def __enter__(self) -> TorchFunctionMode:
        _C.offer_members()
        stack = current()
        stack.function_modes.append(self)
        stack.install()
        return self

    def __exit__(self, *exc: Any) -> None:
        stack = current()
        stack.function_modes.remove(self)
        stack.install()


def has_torch_function(relevant_args: tuple[Any, ...]) -> bool:
    """Return whether an argument's class overrides `__torch_function__`, or a mode is active."""
    stack = current()
    if stack.redispatches:
        stack.redispatches = False
        return False
    return bool(stack.function_modes) or bool(overloaded_arguments(tuple(relevant_args), stack))


def has_torch_function_unary(obj: Any) -> bool:
    """Return what `has_torch_function` does for one argument."""
    return has_torch_function((obj,))


def has_torch_function_variadic(*relevant_args: Any) -> bool:
    """Return what `has_torch_function` does, for arguments that are not in a tuple."""
    return has_torch_function(relevant_args)


def redispatch_function(
    func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None
) -> Any:
    """Call what a handler was given past it; calls inside a Python function are seen again."""
    inside = getattr(func, "__wrapped__", None) if isinstance(func, _C.Overridable) else None
    if inside is not None:
        return inside(*args, **(kwargs or {}))
    if not isinstance(func, FunctionType):
        with DisableTorchFunction():
            return func(*args, **(kwargs or {}))
    stack = current()
    stack.redispatches = True
    try:
        return func(*args, **(kwargs or {}))
    finally:
        stack.redispatches = False


def handle_torch_function(
    public_api: Any, relevant_args: tuple[Any, ...], *args: Any, **kwargs: Any
) -> Any:
    """Offer a call of a Python function to modes and overriding arguments.

    Raises:
        TypeError: nobody handled it.
    """
    stack = current()
    overloaded = overloaded_arguments(tuple(relevant_args), stack)
    result = hand_over(stack, public_api, overloaded, args, kwargs)
    if result is not NotImplemented:
        return result
    types = tuple(type(a) for a in overloaded)
    name = getattr(public_api, "__name__", repr(public_api))
    raise TypeError(
        f"no implementation found for '{name}' on types that implement __torch_function__: "
        f"{[t.__name__ for t in types]}"
    )
