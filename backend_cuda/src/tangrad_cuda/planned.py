"""What cuDNN and cuBLASLt have in common: calls that may refuse, handles of devices, and plans.

A plan is what a library proposed for one kind of work, with the descriptions that it is given.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any, ClassVar

__all__ = ["Calls", "DeviceHandle", "handle_on"]

# Kinds of work whose plans are kept for each library and device.
MOST_PLANS = 1024


class Calls:
    """Call functions of a library; what it refuses is an error.

    Args:
        library: opens it.
        named: what the library calls a status.
        without: what a program says to go on without it.
    """

    def __init__(
        self, library: Callable[[], ctypes.CDLL], named: Callable[[int], str], without: str
    ) -> None:
        self._library, self._named, self._without = library, named, without

    def __call__(self, function: str, *arguments: Any) -> None:
        """Call a function that returns a status.

        Raises:
            RuntimeError: the library refuses.
        """
        self.check(getattr(self._library(), function)(*arguments), function)

    def made(self, function: str, *arguments: Any) -> int:
        """Call a function that returns a handle through its first argument."""
        handle = ctypes.c_void_p()
        self(function, ctypes.byref(handle), *arguments)
        return handle.value or 0

    def check(self, status: int, function: str) -> None:
        """Raise the error of a status that is one."""
        if status:
            raise RuntimeError(
                f"{function}: {self._named(status)}; to go on without it: {self._without}"
            )


class DeviceHandle:
    """A library on one device, with its plans for the work met so far.

    Attributes:
        calls: of the library.
        creates: the function that makes its handle.
        number: the handle.
        lock: to be held while a plan is looked up and used.
    """

    calls: ClassVar[Calls]
    creates: ClassVar[str]

    def __init__(self, driver: Any, index: int) -> None:
        self.driver, self.index, self.lock = driver, index, threading.Lock()
        driver.contexts.enter(index)
        self.number = self.calls.made(self.creates)
        self._plans: dict[Any, Any] = {}

    def plan_for(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return the plan of a key, None where the library has none; the oldest one makes room."""
        if key not in self._plans:
            if len(self._plans) >= MOST_PLANS:
                self.forget(self._plans.pop(next(iter(self._plans))))
            self._plans[key] = make()
        return self._plans[key]

    def forget(self, plan: Any) -> None:
        """Give back what describes a plan; None has nothing."""
        raise NotImplementedError(f"{type(self).__name__} has no forget")

    def stream(self) -> int:
        """Return the number of the stream that the calling thread gives work to."""
        number: int = self.driver.streams.handle(self.driver.current_stream(self.index))
        return number


_handles: dict[tuple[type, int], Any] = {}
_opening = threading.Lock()


def handle_on(kind: type[DeviceHandle], driver: Any, index: int) -> Any:
    """Return a library's handle on a device, made when it is first needed."""
    with _opening:
        if (kind, index) not in _handles:
            _handles[kind, index] = kind(driver, index)
        return _handles[kind, index]
