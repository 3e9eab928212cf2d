"""Values that come later: `tangrad.futures`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

__all__ = ["Future", "collect_all", "wait_all"]

T = TypeVar("T")


class Future(Generic[T]):
    """Hold a value, or an error, that another thread will set.

    Args:
        devices: devices whose streams the value may still be computed on; each is synchronized
            before callbacks see the value.
    """

    def __init__(self, *, devices: Sequence[Any] | None = None) -> None:
        self._devices = list(devices or ())
        self._set = threading.Condition()
        self._done = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Future[Any]], Any]] = []

    def done(self) -> bool:
        """Tell whether a value or an error is there."""
        return self._done

    def wait(self) -> T:
        """Wait for the value and return it, or raise the error."""
        with self._set:
            # In slices, or Ctrl-C would not arrive.
            while not self._done:
                self._set.wait(0.1)
        return self.value()

    def value(self) -> T:
        """Return the value, or raise the error.

        Raises:
            RuntimeError: neither is there yet.
        """
        if not self._done:
            raise RuntimeError("the future holds no value yet: wait() for it")
        if self._error is not None:
            raise self._error
        return self._value

    def set_result(self, result: T) -> None:
        """Set the value and run the callbacks.

        Raises:
            RuntimeError: there is one already.
        """
        self._finish(result, None)

    def set_exception(self, result: BaseException) -> None:
        """Set an error, which `wait` and `value` raise.

        Raises:
            TypeError: it is no exception.
            RuntimeError: there is a value already.
        """
        if not isinstance(result, BaseException):
            raise TypeError(f"set_exception needs an exception, got {result!r}")
        self._finish(None, result)

    def _finish(self, value: Any, error: BaseException | None) -> None:
        with self._set:
            if self._done:
                raise RuntimeError("Future can only be marked completed once")
            self._value, self._error, self._done = value, error, True
            callbacks, self._callbacks = self._callbacks, []
            self._set.notify_all()
        for callback in callbacks:
            callback(self)

    def _on_done(self, callback: Callable[[Future[Any]], Any]) -> None:
        with self._set:
            if not self._done:
                self._callbacks.append(callback)
                return
        callback(self)

    def add_done_callback(self, callback: Callable[[Future[T]], Any]) -> None:
        """Call `callback(self)` when the value is there; at once if it is."""
        self._on_done(callback)

    def then(self, callback: Callable[[Future[T]], Any]) -> Future[Any]:
        """Return a future of what `callback(self)` returns once the value is there."""
        chained: Future[Any] = Future()

        def run(done: Future[Any]) -> None:
            try:
                chained.set_result(callback(done))
            except Exception as error:
                chained.set_exception(error)

        self._on_done(run)
        return chained


def collect_all(futures: Sequence[Future[Any]]) -> Future[list[Future[Any]]]:
    """Return a future that holds all of them once each is done."""
    every = list(futures)
    result: Future[list[Future[Any]]] = Future()
    left = [len(every)]
    lock = threading.Lock()

    def one_done(_: Any) -> None:
        with lock:
            left[0] -= 1
            last = left[0] == 0
        if last:
            result.set_result(every)

    if not every:
        result.set_result(every)
    for future in every:
        future._on_done(one_done)
    return result


def wait_all(futures: Sequence[Future[Any]]) -> list[Any]:
    """Wait for all and return their values; the first error is raised."""
    return [future.wait() for future in collect_all(futures).wait()]
