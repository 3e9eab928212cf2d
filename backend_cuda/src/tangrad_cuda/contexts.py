"""Keep one primary context for each device, current in every thread that works with it.

pycuda keeps a stack of contexts in each thread and aborts the process if one is left on it when
the thread ends. So each thread has a guard whose end, with the thread's or the interpreter's, pops
what was pushed. The wrappers of contexts and memory are never collected: collecting them when the
interpreter ends, in an order nobody knows, is what pycuda cannot do safely; the driver takes back
everything with the process.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from contextlib import suppress
from typing import Any

from tangrad_cuda import _launch, errors


def keep_forever(wrapper: Any) -> Any:
    """Return an object of pycuda's whose destructor shall never run."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(wrapper))
    return wrapper


# A driver that refuses to leave a context once may do so later; pycuda aborts if it stays.
_ATTEMPTS = 3


def _pop(context: Any) -> None:
    """Pop a context from the calling thread's stack, whatever the driver says."""
    from pycuda.driver import Context, Error, Event

    for _ in range(_ATTEMPTS):
        try:
            context.pop()
            return
        except Error:
            continue
    # Other threads may work with it: that it is detached here must not be its end.
    with suppress(Error):
        keep_forever(Context.get_device().retain_primary_context())
        context.detach()
    # Looking for the current context, pycuda takes those that are detached off its stack.
    with suppress(Error):
        Event()


class _Guard:
    """What one thread has pushed."""

    def __init__(self) -> None:
        self.context: Any = None
        self._thread = threading.get_ident()

    def pop(self) -> None:
        """Leave the thread without a context of ours."""
        context, self.context = self.context, None
        if context is not None:
            _pop(context)

    def __del__(self) -> None:
        # What a daemon left behind is collected by another thread, whose stack is not its.
        if threading.get_ident() == self._thread:
            self.pop()


class _Thread(threading.local):
    """State of the calling thread: the device it works with, and what it has pushed.

    Which context is current is kept where launches look for it, in C.
    """

    def __init__(self) -> None:
        self.index = 0
        self.guard = _Guard()


class Contexts:
    """The primary contexts of all devices.

    Args:
        driver: the module pycuda.driver, initialised.
    """

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        with errors.translated():
            self._devices = [driver.Device(index) for index in range(driver.Device.count())]
        self._contexts: dict[int, Any] = {}
        self._lock = threading.Lock()
        self._local = _Thread()
        self.forked = False
        self.ended = False
        atexit.register(self._end)
        # What is on pycuda's stack when a process forks cannot be popped in the child.
        os.register_at_fork(before=self._leave, after_in_child=self._after_fork)

    def __len__(self) -> int:
        return len(self._devices)

    def device(self, index: int) -> Any:
        """Return pycuda's device.

        Raises:
            RuntimeError: there is none of that index.
        """
        self._refuse_fork()
        if not 0 <= index < len(self._devices):
            raise RuntimeError(
                f"CUDA error: invalid device ordinal: device 'cuda:{index}' does not exist; there "
                f"are {len(self._devices)} (CUDA_VISIBLE_DEVICES chooses which)"
            )
        return self._devices[index]

    @property
    def current(self) -> int:
        """The device that the calling thread means when it names none."""
        return self._local.index

    @current.setter
    def current(self, index: int) -> None:
        self.device(index)
        self._local.index = index

    @property
    def retained(self) -> list[int]:
        """The devices that have a context."""
        return sorted(self._contexts)

    def enter(self, index: int) -> None:
        """Make a device's context current in the calling thread.

        Raises:
            RuntimeError: the process was forked after the driver was initialised.
        """
        if _launch.entered() == index:
            return
        self._refuse_fork()
        if self.ended:
            raise RuntimeError("device 'cuda' cannot be used any more: the interpreter is ending")
        context = self._context(index)
        guard = self._local.guard
        try:
            guard.pop()
            context.push()
        except self._driver.Error as error:
            raise errors.of_pycuda(error) from error
        guard.context = context
        _launch.set_entered(index)

    def handle(self, index: int) -> int:
        """Return the driver's handle of a device's context."""
        handle: int = self._context(index).handle
        return handle

    def _context(self, index: int) -> Any:
        found = self._contexts.get(index)
        if found is not None:
            return found
        with self._lock:
            if index not in self._contexts:
                try:
                    context = self.device(index).retain_primary_context()
                except self._driver.Error as error:
                    raise errors.of_pycuda(error) from error
                self._contexts[index] = keep_forever(context)
            return self._contexts[index]

    def _refuse_fork(self) -> None:
        if self.forked:
            raise RuntimeError(
                "Cannot re-initialize CUDA in forked subprocess: the driver was initialised before "
                "the fork, and does not survive it. Use the 'spawn' start method "
                "(tangrad.multiprocessing.get_context('spawn')), or use CUDA only after the fork"
            )

    @property
    def gone(self) -> bool:
        """Whether there is nothing left to give back to: after a fork, and when Python ends."""
        return self.forked or self.ended

    def _end(self) -> None:
        self._leave()
        self.ended = True

    def _leave(self) -> None:
        if not self.forked:
            self._local.guard.pop()
            _launch.set_entered(-1)

    def _after_fork(self) -> None:
        self.forked = bool(self._contexts)
