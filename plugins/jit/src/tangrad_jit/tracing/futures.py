"""`fork` and `wait`: as in PyTorch outside of scripts, what is forked runs at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["Future", "fork", "wait"]


class Future:
    """A result that is there, or an exception in its place."""

    def __init__(self, *, devices: Any = None) -> None:
        self._done = False
        self._value: Any = None
        self._error: BaseException | None = None

    def set_result(self, result: Any) -> None:
        """Give the result.

        Raises:
            RuntimeError: there is one.
        """
        if self._done:
            raise RuntimeError("Future can only be marked completed once")
        self._done, self._value = True, result

    def set_exception(self, result: BaseException) -> None:
        """Give an exception in the place of a result."""
        self._done, self._error = True, result

    def done(self) -> bool:
        """Return whether there is a result or an exception."""
        return self._done

    def wait(self) -> Any:
        """Return the result, or raise the exception."""
        return self.value()

    def value(self) -> Any:
        """Return the result, or raise the exception.

        Raises:
            RuntimeError: there is neither.
        """
        if self._error is not None:
            raise self._error
        if not self._done:
            raise RuntimeError("the future has no result, and nothing that runs will give it one")
        return self._value

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """Return a future of what a function makes of this one."""
        made = Future()
        made.set_result(callback(self))
        return made


def fork(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Future:
    """Run a function and return its result as a future."""
    made = Future()
    made.set_result(func(*args, **kwargs))
    return made


def wait(future: Future) -> Any:
    """Return a future's result."""
    return future.wait()
