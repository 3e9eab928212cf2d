"""Loopback with kernels of its own, and loopback whose work is done later.

They stand for devices that compute: what the kit must accept, and what the planted faults of
`tangrad_testing.mutants` are made over.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tangrad.plugin import Tensor, location
from tangrad_testing.loopback import Loopback

FLOATS = ("float32", "float64")
REALS = ("int32", "int64", *FLOATS)


class Computing(Loopback):
    """Compute a dozen ops by NumPy on the device's own bytes."""

    def register_kernels(self, register: Any) -> None:
        """Register a kernel of every kind."""
        for op, (kernel, dtypes) in self.kernels().items():
            register(op, kernel, dtypes=dtypes)

    def kernels(self) -> dict[str, tuple[Callable[..., None], tuple[str, ...]]]:
        """Return {op: (kernel, dtypes)}."""
        return {
            "add_plain": (self.pointwise(np.add), REALS),
            "mul": (self.pointwise(np.multiply), REALS),
            "maximum": (self.pointwise(np.maximum), REALS),
            "neg": (self.pointwise(np.negative), REALS),
            "exp": (self.pointwise(np.exp), FLOATS),
            "where_choice": (self.pointwise(np.where), FLOATS),
            "sum": (self.fold(np.sum), ("int64", *FLOATS)),
            "amax": (self.fold(np.max), REALS),
            "cumsum": (self.scan(np.cumsum), ("int64", *FLOATS)),
            "mm": (self.mm, FLOATS),
            "index_select": (self.index_select, REALS),
            "copy_": (self.copy, REALS),
        }

    def array(self, value: Any) -> Any:
        """Return a tensor as an array over the device's bytes; a number as it is."""
        if not isinstance(value, Tensor):
            return value
        dtype = np.dtype(value.dtype.name)
        if value.numel() == 0:
            return np.empty(tuple(value.shape), dtype)
        handle, offset = location(value)
        strides = [stride * dtype.itemsize for stride in value.stride()]
        return np.ndarray(tuple(value.shape), dtype, self._block(handle), offset, strides)

    def pointwise(self, function: Callable[..., Any]) -> Callable[..., None]:
        """Make a kernel of a function of arrays that broadcast."""

        def kernel(outs: Any, inputs: Any, params: dict[str, Any]) -> None:
            with np.errstate(all="ignore"):
                self.array(outs[0])[...] = function(*map(self.array, inputs))

        return kernel

    def fold(self, function: Callable[..., Any]) -> Callable[..., None]:
        """Make a kernel of a function that takes axes away."""

        def kernel(outs: Any, x: Any, dims: Any, params: dict[str, Any]) -> None:
            array = self.array(x)
            with np.errstate(all="ignore"):
                folded = function(array, axis=tuple(dims), keepdims=True)
            self.array(outs[0])[...] = folded

        return kernel

    def scan(self, function: Callable[..., Any]) -> Callable[..., None]:
        """Make a kernel of a function along one axis."""

        def kernel(outs: Any, x: Any, dim: int, params: dict[str, Any]) -> None:
            with np.errstate(all="ignore"):
                self.array(outs[0])[...] = function(self.array(x), axis=dim)

        return kernel

    def mm(self, outs: Any, args: Any) -> None:
        """Multiply two matrices."""
        left, right = map(self.array, args)
        with np.errstate(all="ignore"):
            self.array(outs[0])[...] = left @ right

    def copy(self, outs: Any, args: Any) -> None:
        """Copy between strides and dtypes."""
        with np.errstate(all="ignore"):
            self.array(outs[0])[...] = self.array(args[1])

    def index_select(self, outs: Any, args: Any) -> None:
        """Take rows."""
        x, dim, index = args
        rows = self.array(index)
        if rows.size and (rows.min() < 0 or rows.max() >= max(x.shape[dim], 0)):
            raise IndexError(f"index_select: an index is out of bounds of dimension {dim}")
        self.array(outs[0])[...] = np.take(self.array(x), rows, axis=dim)


class Queued(Loopback):
    """Copy within the device in a thread of its own, in the order of the calls."""

    PAUSE = 2e-4  # per copy: work takes its time

    def open(self) -> None:
        """Start the thread."""
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._events: dict[int, threading.Event] = {}
        self._lock, self._number, self._process = threading.Lock(), 0, os.getpid()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            self._work.get()()

    def copy_within(
        self, handle: int, offset: int, source: int, source_offset: int, nbytes: int
    ) -> None:
        """Queue a copy."""
        target = self._range(handle, offset, nbytes)
        origin = self._range(source, source_offset, nbytes)

        def copy() -> None:
            threading.Event().wait(self.PAUSE)
            target[:] = bytes(origin)

        self._work.put(copy)

    def copy_to_host(self, handle: int, offset: int, target: memoryview) -> None:
        """Copy when all that is queued is done."""
        self.synchronize()
        super().copy_to_host(handle, offset, target)

    def copy_from_host(self, handle: int, offset: int, source: memoryview) -> None:
        """Copy when all that is queued is done."""
        self.synchronize()
        super().copy_from_host(handle, offset, source)

    def release(self, handle: int, nbytes: int) -> None:
        """Give memory back when all that is queued is done."""
        self.synchronize()
        super().release(handle, nbytes)

    def synchronize(self, index: int | None = None) -> None:
        """Wait for the queue."""
        event = self.record_event(0)
        self.synchronize_event(event)
        self.destroy_event(event)

    def record_event(self, stream: int) -> int:
        """Queue an event."""
        event = threading.Event()
        with self._lock:
            self._number += 1
            number = self._number
            self._events[number] = event
        self._work.put(event.set)
        return number

    def query_event(self, event: int) -> bool:
        """Return whether the work before an event is done."""
        return self._events[event].is_set()

    def _require_own_process(self) -> None:
        if os.getpid() != self._process:
            raise RuntimeError("loopback: its thread did not survive fork; open it in the child")

    def synchronize_event(self, event: int) -> None:
        """Wait for an event."""
        self._require_own_process()
        self._events[event].wait()

    def destroy_event(self, event: int) -> None:
        """Forget an event."""
        del self._events[event]


class Timed(Queued):
    """Tell when the work between two events was done."""

    def open(self) -> None:
        """Start the thread and the clock."""
        self._happened: dict[int, float] = {}
        super().open()

    def record_event(self, stream: int) -> int:
        """Queue an event, and a look at the clock before it happens."""
        event = threading.Event()
        with self._lock:
            self._number += 1
            number = self._number
            self._events[number] = event

        def happen() -> None:
            self._happened[number] = time.perf_counter()
            event.set()

        self._work.put(happen)
        return number

    def elapsed_time(self, event: int, later: int) -> float:
        """Return the milliseconds between two events.

        Raises:
            RuntimeError: one of them has not happened.
        """
        if not (self.query_event(event) and self.query_event(later)):
            raise RuntimeError("loopback: elapsed_time of an event that has not happened")
        return (self._happened[later] - self._happened[event]) * 1000

    def destroy_event(self, event: int) -> None:
        """Forget an event and its time."""
        super().destroy_event(event)
        self._happened.pop(event, None)
