"""Switches of recording, as context managers and decorators."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Self, TypeVar, overload

from tangrad import _C

_F = TypeVar("_F", bound=Callable[..., Any])


class _ModeBase:
    """A context manager that is also a decorator of functions and generators."""

    def clone(self) -> _ModeBase:
        """Return a fresh context of the same setting."""
        return type(self)()

    def __enter__(self) -> Any:
        raise NotImplementedError

    def __exit__(self, *exc: Any) -> None:
        raise NotImplementedError

    def __call__(self, function: _F) -> _F:
        from functools import wraps

        if isinstance(function, type):
            import warnings

            warnings.warn(
                "Decorating classes is deprecated: only the making of an object is then inside "
                f"{type(self).__name__}. Decorate __init__, or the methods that are meant.",
                FutureWarning,
                stacklevel=2,
            )
        if function.__code__.co_flags & 0x20 if hasattr(function, "__code__") else False:
            return self._generator(function)

        @wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with self.clone():
                return function(*args, **kwargs)

        return inside  # type: ignore[return-value]

    def _generator(self, function: Callable[..., Any]) -> Any:
        from functools import wraps

        @wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            generator = function(*args, **kwargs)
            try:
                with self.clone():
                    item = next(generator)
                while True:
                    try:
                        sent = yield item
                    except GeneratorExit:
                        with self.clone():
                            generator.close()
                        raise
                    except BaseException as error:
                        with self.clone():
                            item = generator.throw(error)
                    else:
                        with self.clone():
                            item = generator.send(sent)
            except StopIteration as stop:
                return stop.value

        return inside


class _GradMode(_ModeBase):
    mode = True
    previous: list[bool]

    @overload
    def __new__(cls, orig_func: None = None) -> Self: ...
    @overload
    def __new__(cls, orig_func: Callable[..., Any]) -> Any: ...
    def __new__(cls, orig_func: Any = None) -> Any:
        made = object.__new__(cls)
        made.previous = []
        return made if orig_func is None else made(orig_func)

    def __enter__(self) -> None:
        self.previous.append(_C._set_grad_enabled(self.mode))

    def __exit__(self, *exc: Any) -> None:
        _C._set_grad_enabled(self.previous.pop())


class no_grad(_GradMode):
    """Switch recording off."""

    mode = False


class enable_grad(_GradMode):
    """Switch recording on."""

    mode = True


class set_grad_enabled(_ModeBase):
    """Switch recording on or off, at once and for a `with` block or decorated function."""

    def __init__(self, mode: bool) -> None:
        self.mode = bool(mode)
        self.previous = _C._set_grad_enabled(self.mode)

    def __enter__(self) -> None:
        _C._set_grad_enabled(self.mode)

    def __exit__(self, *exc: Any) -> None:
        _C._set_grad_enabled(self.previous)

    def clone(self) -> set_grad_enabled:
        """Return a fresh context of the same setting."""
        return type(self)(self.mode)

    def __call__(self, function: _F) -> _F:
        """Decorate a function; outside of it the switch is as it was before."""
        _C._set_grad_enabled(self.previous)
        return super().__call__(function)


_multithreading = threading.local()


def is_multithreading_enabled() -> bool:
    """Return what `set_multithreading_enabled` has set in this thread, True at first."""
    return getattr(_multithreading, "enabled", True)


class set_multithreading_enabled(_ModeBase):
    """Keep whether backward may use threads of its own, at once and for a `with` block.

    Backward runs in the thread that calls it, whatever is set.

    Args:
        mode: what `is_multithreading_enabled` tells.
    """

    def __init__(self, mode: bool) -> None:
        self.mode = mode
        self.previous = is_multithreading_enabled()
        _multithreading.enabled = mode

    def __enter__(self) -> None:
        """Do nothing: it was set when the context was made."""

    def __exit__(self, *exc: Any) -> None:
        _multithreading.enabled = self.previous

    def clone(self) -> set_multithreading_enabled:
        """Return a fresh context of the same setting."""
        return type(self)(self.mode)


class inference_mode(_ModeBase):
    """Switch off recording and version checks; tensors made inside cannot enter a graph."""

    def __new__(cls, mode: Any = True) -> Any:
        """Return the context, or, used as a bare decorator, the function inside of it."""
        made = super().__new__(cls)
        if callable(mode) and not isinstance(mode, bool):
            made.__init__(True)  # type: ignore[misc]
            return made(mode)
        return made

    def __init__(self, mode: bool = True) -> None:
        self.mode = mode
        self.previous: list[tuple[bool, bool]] = []

    def __enter__(self) -> None:
        self.previous.append((_C._set_inference(self.mode), _C._set_grad_enabled(not self.mode)))

    def __exit__(self, *exc: Any) -> None:
        inference, grad = self.previous.pop()
        _C._set_inference(inference)
        _C._set_grad_enabled(grad)

    def clone(self) -> inference_mode:
        """Return a fresh context of the same setting."""
        return type(self)(self.mode)
