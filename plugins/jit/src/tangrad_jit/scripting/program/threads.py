"""Calls of scripts that run on threads of their own."""

from __future__ import annotations

import os
import queue
import threading
from typing import Any

import tangrad
from tangrad_jit.tracing.futures import Await, Future

__all__ = ["rt_await", "rt_await_nowait", "rt_fork"]

_waiting: queue.SimpleQueue[_Task] = queue.SimpleQueue()
_lock = threading.Lock()
_threads = 0
_idle = 0


class _Task:
    """A forked call; the thread that claims it first runs it."""

    def __init__(self, function: Any, args: Any, kwargs: Any) -> None:
        self.call = function, args, kwargs
        self.future: Future[Any] = Future()
        self.future.run = self.run
        self._claim = threading.Lock()
        self._grad = tangrad.is_grad_enabled()
        self._inference = tangrad.is_inference_mode_enabled()

    def run(self) -> None:
        """Make the call unless another thread does: one that waits, or one of the pool.

        A call that waits for another runs that itself where nobody has begun it, so that calls
        within calls cannot use up the threads.
        """
        if not self._claim.acquire(blocking=False):
            return
        function, args, kwargs = self.call
        try:
            with tangrad.inference_mode(self._inference), tangrad.set_grad_enabled(self._grad):
                result = function(*args, **kwargs)
        except Exception as error:  # whoever waits gets it
            self.future.set_exception(error)
        except BaseException as error:
            self.future.set_exception(error)
            raise
        else:
            self.future.set_result(result)


def _work() -> None:
    global _idle
    while True:
        with _lock:
            _idle += 1
        task = _waiting.get()
        with _lock:
            _idle -= 1
        task.run()
        del task


def rt_fork(function: Any, *args: Any, **kwargs: Any) -> Future[Any]:
    """Have a call made by another thread, and keep its result until somebody waits."""
    global _threads
    task = _Task(function, args, kwargs)
    with _lock:
        if not _idle and _threads < max(1, os.cpu_count() or 1):
            _threads += 1
            threading.Thread(target=_work, daemon=True, name="tangrad-fork").start()
    _waiting.put(task)
    return task.future


def rt_await(function: Any, *args: Any, **kwargs: Any) -> Await[Any]:
    """Keep a call until somebody asks for its result."""
    return Await(function, args, kwargs)


def rt_await_nowait(value: Any) -> Await[Any]:
    """Return a value as the result of a call."""
    return Await(None, (value,), None, True)


def _reset() -> None:
    """Begin without threads in a process that was forked: those of its parent are not there."""
    global _threads, _idle, _lock, _waiting
    _threads = _idle = 0
    _lock, _waiting = threading.Lock(), queue.SimpleQueue()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset)
