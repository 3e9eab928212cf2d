"""Results that come later: `Future` and `Await`, and what makes and awaits them outside of scripts.

As in PyTorch, what Python forks runs at once; in scripts it runs on a thread of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

__all__ = [
    "Await",
    "Future",
    "_awaitable",
    "_awaitable_nowait",
    "_awaitable_wait",
    "fork",
    "wait",
]

T = TypeVar("T")


class Future(Generic[T]):
    """A result, or an exception in its place, that somebody gives."""

    def __init__(self, *, devices: Any = None) -> None:
        self._given = threading.Event()
        self._lock = threading.Lock()
        self._value: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[], None]] = []
        #: What gives the result where nobody else does; who waits runs it.
        self.run: Callable[[], None] | None = None

    def _finish(self, value: Any, error: BaseException | None) -> None:
        with self._lock:
            if self._given.is_set():
                raise RuntimeError("Future can only be marked completed once")
            self._value, self._error = value, error
            self._given.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def set_result(self, result: T) -> None:
        """Give the result.

        Raises:
            RuntimeError: there is one.
        """
        self._finish(result, None)

    def set_exception(self, result: BaseException) -> None:
        """Give an exception in the place of a result.

        Raises:
            RuntimeError: there is a result.
        """
        self._finish(None, result)

    def done(self) -> bool:
        """Return whether there is a result or an exception."""
        return self._given.is_set()

    def wait(self) -> T:
        """Return the result when it is there, or raise the exception.

        Raises:
            RuntimeError: there is no result, and nothing that runs will give it one.
        """
        if not self._given.is_set():
            if self.run is None:
                raise RuntimeError(
                    "the future has no result, and nothing that runs will give it one"
                )
            self.run()
            self._given.wait()
        return self.value()

    def value(self) -> T:
        """Return the result, or raise the exception.

        Raises:
            RuntimeError: there is neither.
        """
        if self._error is not None:
            raise self._error
        if not self._given.is_set():
            raise RuntimeError("the future has no result yet: wait for it")
        return self._value

    def add_done_callback(self, callback: Callable[[Future[T]], None]) -> None:
        """Call a function when there is a result."""
        with self._lock:
            if not self._given.is_set():
                self._callbacks.append(lambda: callback(self))
                return
        callback(self)

    def then(self, callback: Callable[[Future[T]], Any]) -> Future[Any]:
        """Return a future of what a function makes of this one."""
        made: Future[Any] = Future()
        made.run = self.wait  # type: ignore[assignment]

        def follow(future: Future[T]) -> None:
            try:
                made.set_result(callback(future))
            except Exception as error:  # whoever waits gets it
                made.set_exception(error)

        self.add_done_callback(follow)
        return made


class Await(Generic[T]):
    """A call that is made when somebody asks for its result; outside of scripts, by any use."""

    def __init__(
        self, function: Any, args: tuple[Any, ...], kwargs: Any = None, done: bool = False
    ) -> None:
        self._call = function, args, kwargs or {}
        self._done, self._value = done, args[0] if done else None
        self._is_nowait = done

    def wait(self) -> T:
        """Return the result."""
        if not self._done:
            function, args, kwargs = self._call
            self._value = function(*args, **kwargs)
            self._done = True
        return self._value  # type: ignore[return-value]

    def fn(self) -> Callable[..., T]:
        """Return the function."""
        return self._call[0]

    def args(self) -> tuple[Any, ...]:
        """Return its arguments."""
        return self._call[1]

    def is_nowait(self) -> bool:
        """Return whether the result was given from the beginning."""
        return self._is_nowait

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.wait(), name)


def _awaitable(func: Callable[..., T], *args: Any, **kwargs: Any) -> Await[T]:
    """Return a call that is made when its result is asked for."""
    return Await(func, args, kwargs)


def _awaitable_wait(aw: Any) -> Any:
    """Return the result of an `Await`."""
    return aw.wait() if isinstance(aw, Await) else aw


def _awaitable_nowait(o: T) -> Await[T]:
    """Return an `Await` whose result is there."""
    return Await(None, (o,), None, True)


def fork(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
    """Run a function and return its result as a future."""
    made: Future[Any] = Future()
    made.set_result(func(*args, **kwargs))
    return made


def wait(future: Future[T]) -> T:
    """Return a future's result."""
    return future.wait()


# PyTorch's older names.
_Await, _fork, _wait = Await, fork, wait
