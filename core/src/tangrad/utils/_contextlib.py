"""Context managers that decorate functions and generators too."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator
from typing import Any

__all__ = ["context_decorator"]


def _wrap_generator(make: Callable[[], Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Have a generator run inside a context, which it leaves whenever it yields."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        generator = function(*args, **kwargs)
        try:
            with make():
                value = next(generator)
            while True:
                try:
                    sent = yield value
                except GeneratorExit:
                    with make():
                        generator.close()
                    raise
                except BaseException as error:
                    with make():
                        value = generator.throw(error)
                else:
                    with make():
                        value = generator.send(sent)
        except StopIteration as end:
            return end.value

    return wrapped


def context_decorator(ctx: Any, func: Callable[..., Any]) -> Callable[..., Any]:
    """Have a function run inside a context.

    Args:
        ctx: what makes the context, or the context itself.
        func: the function, or a generator function.
    """
    make = ctx if callable(ctx) and not hasattr(ctx, "__enter__") else lambda: ctx
    if inspect.isgeneratorfunction(func):
        return _wrap_generator(make, func)

    @functools.wraps(func)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        with make():
            return func(*args, **kwargs)

    return decorated


class _DecoratorContextManager:
    """Base class of context managers that decorate functions; each call has a copy of its own."""

    def __call__(self, orig_func: Callable[..., Any]) -> Callable[..., Any]:
        return context_decorator(self.clone, orig_func)

    def __enter__(self) -> None:
        raise NotImplementedError

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        raise NotImplementedError

    def clone(self) -> Any:
        """Return a copy that is entered for one call."""
        return self.__class__()


class _NoParamDecoratorContextManager(_DecoratorContextManager):
    """Base class of those that take no arguments: the class itself decorates as well."""

    def __new__(cls, orig_func: Any = None) -> Any:
        """Make a context manager, or decorate a function."""
        if orig_func is None:
            return super().__new__(cls)
        return cls()(orig_func)
