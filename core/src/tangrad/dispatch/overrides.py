"""`__torch_function__`: subclasses and modes that take over calls of the public API."""

from __future__ import annotations

from typing import Any

from tangrad import _C
from tangrad.dispatch import intercept


def call_torch_function(
    stack: intercept.Stack,
    op: _C.Op,
    functional: _C.Op,
    args: tuple[Any, ...],
    out: Any,
    overloaded: list[Any],
) -> Any:
    """Offer a call to the innermost mode, then to the arguments' classes.

    Raises:
        TypeError: nobody handled it.
    """
    given, kwargs = call_form(functional, args)
    if out is not None:
        kwargs["out"] = out
    types = tuple(type(a) for a in overloaded)
    if stack.function_modes:
        mode = stack.function_modes.pop()
        stack.install()
        try:
            result = mode.__torch_function__(op, types, given, kwargs)
        finally:
            stack.function_modes.append(mode)
            stack.install()
        if result is not NotImplemented:
            return result
    for a in overloaded:
        result = type(a).__torch_function__(op, types, given, kwargs)
        if result is not NotImplemented:
            return result
    if not overloaded:
        intercept._refuse_strangers(op, given)
        return intercept.observed(op, functional, args, out, stack)
    names = ", ".join(sorted({t.__qualname__ for t in types}))
    raise TypeError(
        f"Multiple dispatch failed for 'tangrad.{op.title}'; all __torch_function__ handlers "
        f"returned NotImplemented ({names}). Handle the op there, or call "
        "super().__torch_function__."
    )


def call_form(op: _C.Op, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return (args, kwargs) of a bound call, defaults left out, as a person would write it."""
    params = op.definition.schema.params
    positional: list[Any] = []
    kwargs: dict[str, Any] = {}
    skipped = False
    for p, value in zip(params, args, strict=True):
        default = p.default is value or (
            type(value) in (bool, int, float, str, tuple)
            and p.default == value
            and type(p.default) is type(value)
        )
        if default:
            skipped = True
            continue
        if p.keyword_only or skipped:
            kwargs[p.name] = value
        else:
            positional.append(value)
    return tuple(positional), kwargs


class DisableTorchFunctionSubclass:
    """Context manager: subclasses' `__torch_function__` is not called in this thread."""

    def __enter__(self) -> None:
        intercept.current().functions_disabled += 1

    def __exit__(self, *exc: Any) -> None:
        intercept.current().functions_disabled -= 1


class DisableTorchFunction:
    """Context manager: neither subclasses' nor modes' `__torch_function__` is called."""

    def __enter__(self) -> None:
        stack = intercept.current()
        stack.functions_disabled += 1
        self.modes = stack.function_modes
        stack.function_modes = []
        stack.install()

    def __exit__(self, *exc: Any) -> None:
        stack = intercept.current()
        stack.functions_disabled -= 1
        stack.function_modes = self.modes
        stack.install()


def default_torch_function(
    cls: type, func: Any, types: tuple[type, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Run `func` with overrides off and convert results to `cls`."""
    if not all(issubclass(cls, t) for t in types):
        return NotImplemented
    with DisableTorchFunctionSubclass():
        result = func(*args, **kwargs)
    return result if func in _unconverted() else as_class(result, cls)


_plain: set[Any] = set()


def _unconverted() -> set[Any]:
    return _plain


def as_class(result: Any, cls: type) -> Any:
    """Give tensors in a result the class `cls`, keeping their history."""
    if isinstance(result, _C.Tensor):
        if isinstance(result, cls):
            return result
        if cls is _C.Parameter:
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
        stack = intercept.current()
        stack.function_modes.append(self)
        stack.install()
        return self

    def __exit__(self, *exc: Any) -> None:
        stack = intercept.current()
        stack.function_modes.remove(self)
        stack.install()


def has_torch_function(relevant_args: tuple[Any, ...]) -> bool:
    """Return whether an argument's class overrides `__torch_function__`, or a mode is active."""
    stack = intercept.current()
    return bool(stack.function_modes) or bool(intercept._overloaded(tuple(relevant_args), stack))


def handle_torch_function(
    public_api: Any, relevant_args: tuple[Any, ...], *args: Any, **kwargs: Any
) -> Any:
    """Offer a call of a Python function to modes and overriding arguments.

    Raises:
        TypeError: nobody handled it.
    """
    stack = intercept.current()
    overloaded = intercept._overloaded(tuple(relevant_args), stack)
    types = tuple(type(a) for a in overloaded)
    if stack.function_modes:
        mode = stack.function_modes.pop()
        stack.install()
        try:
            result = mode.__torch_function__(public_api, types, args, kwargs)
        finally:
            stack.function_modes.append(mode)
            stack.install()
        if result is not NotImplemented:
            return result
    for a in overloaded:
        result = type(a).__torch_function__(public_api, types, args, kwargs)
        if result is not NotImplemented:
            return result
    name = getattr(public_api, "__name__", repr(public_api))
    raise TypeError(
        f"no implementation found for '{name}' on types that implement __torch_function__: "
        f"{[t.__name__ for t in types]}"
    )
