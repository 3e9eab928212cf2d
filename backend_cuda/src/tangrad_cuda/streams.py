"""Number streams and events, and keep what asynchronous copies still need.

The default stream of device i has the number i; any other is its handle, which is an address and
so larger. Events are their handles.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

from tangrad.plugin import DeviceStreams
from tangrad_cuda import _launch, driver_api
from tangrad_cuda.contexts import Contexts
from tangrad_cuda.driver_api import DriverApi

_DEFAULTS = 4096
# PyTorch gives streams out of a pool of so many for each priority, and then the first again.
_POOL = 32


class CudaStreams(DeviceStreams):
    """Streams and events of all devices."""

    def __init__(self, contexts: Contexts, api: DriverApi) -> None:
        self._contexts, self._api = contexts, api
        self._owners: dict[int, int] = {}
        self._pools: dict[tuple[int, int], list[int]] = {}
        self._next: dict[tuple[int, int], int] = {}
        self._events: dict[int, int] = {}
        self._idle: dict[int, list[int]] = {}
        self._timed: dict[int, int] = {}
        self._idle_timed: dict[int, list[int]] = {}
        self._pending: deque[tuple[int, Any]] = deque()
        self._lock = threading.Lock()
        # What copies of a graph that is being captured need, one list for each capture that runs.
        self.captures: list[list[Any]] = []

    @contextlib.contextmanager
    def relaxed(self) -> Iterator[None]:
        """Allow calls in the body that a capture forbids by default, such as to take memory."""
        if not self.captures:
            yield
            return
        mode = ctypes.c_int(driver_api.RELAXED)
        self._api.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        try:
            yield
        finally:
            self._api.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))

    def is_capturing(self, stream: int) -> bool:
        """Return whether what a stream is given becomes part of a graph."""
        if not self.captures or stream < _DEFAULTS:
            return False
        self._contexts.enter(self.device_index(stream))
        status = ctypes.c_int()
        self._api.call("cuStreamIsCapturing", self.handle(stream), ctypes.byref(status))
        return status.value != 0

    @property
    def several(self) -> bool:
        """Whether work may be in other streams than the default ones."""
        return bool(self._owners)

    # --- streams ----------------------------------------------------------------------------------

    def default_stream(self, index: int) -> int:
        """Return the number of a device's default stream, its index."""
        return index

    def current_stream(self, index: int) -> int:
        """Return the stream of a device that the calling thread gives work to."""
        return _launch.current_stream(index)

    def set_stream(self, stream: int) -> None:
        """Let the calling thread give work for the stream's device to the stream."""
        index = self.device_index(stream)
        _launch.set_stream(index, stream if stream != index else 0)

    def device_index(self, stream: int) -> int:
        """Return the device of a stream; of a foreign one that is the device it was taken for."""
        return stream if stream < _DEFAULTS else self._owners[stream]

    def handle(self, stream: int) -> int:
        """Return the driver's handle of a stream; 0 is the default one."""
        return 0 if stream < _DEFAULTS else stream

    def adopt(self, handle: int, index: int) -> int:
        """Return the number of a stream that another library made; 0 is the default stream."""
        if handle < _DEFAULTS:
            return index
        self._owners.setdefault(handle, index)
        return handle

    def new_stream(self, index: int, priority: int) -> int:
        """Return a stream of the device's pool for a priority."""
        least, greatest = self.priority_range(index)
        priority = max(greatest, min(least, priority))
        key = index, priority
        with self._lock:
            pool = self._pools.setdefault(key, [])
            place = self._next.get(key, 0)
            self._next[key] = (place + 1) % _POOL
            if place < len(pool):
                return pool[place]
            self._contexts.enter(index)
            stream = self._api.made("cuStreamCreateWithPriority", driver_api.NON_BLOCKING, priority)
            self._owners[stream] = index
            pool.append(stream)
            return stream

    def priority_range(self, index: int = 0) -> tuple[int, int]:
        """Return the least and the greatest priority, as numbers: (0, -5)."""
        self._contexts.enter(index)
        least, greatest = ctypes.c_int(), ctypes.c_int()
        self._api.call("cuCtxGetStreamPriorityRange", ctypes.byref(least), ctypes.byref(greatest))
        return least.value, greatest.value

    def priority(self, stream: int) -> int:
        """Return the priority of a stream."""
        self._contexts.enter(self.device_index(stream))
        priority = ctypes.c_int()
        self._api.call("cuStreamGetPriority", self.handle(stream), ctypes.byref(priority))
        return priority.value

    def query_stream(self, stream: int) -> bool:
        """Return whether all work given to a stream is done."""
        self._contexts.enter(self.device_index(stream))
        return self._api.query("cuStreamQuery", self.handle(stream))

    def synchronize_stream(self, stream: int) -> None:
        """Wait for all work given to a stream."""
        _launch.spoil()
        self._contexts.enter(self.device_index(stream))
        self._api.call("cuStreamSynchronize", self.handle(stream))
        self.forget_done()

    # --- events -----------------------------------------------------------------------------------

    def new_event(self, index: int, timing: bool, blocking: bool, interprocess: bool) -> int:
        """Return a new event; one without timing may have been used before."""
        flags = (0 if timing else driver_api.DISABLE_TIMING) | (
            driver_api.BLOCKING_SYNC * blocking + driver_api.INTERPROCESS * interprocess
        )
        if flags == driver_api.DISABLE_TIMING:
            idle = self._idle.get(index)
            if idle:
                return idle.pop()
        self._contexts.enter(index)
        event = self._api.made("cuEventCreate", flags)
        # Only plain events are used again.
        self._events[event] = index if flags == driver_api.DISABLE_TIMING else ~index
        return event

    def destroy_event(self, event: int) -> None:
        """Keep an event of `record_event` and its like for the next; destroy another."""
        index = self._events.get(event)
        if index is None or self._contexts.gone:
            return
        if event in self._timed:
            self._idle_timed.setdefault(self._timed[event], []).append(event)
            return
        if index >= 0:
            self._idle.setdefault(index, []).append(event)
            return
        del self._events[event]
        self._contexts.enter(~index)
        # What the driver does not destroy is lost, and nobody who lets an event go can do about it.
        with contextlib.suppress(RuntimeError):
            self._api.call("cuEventDestroy_v2", event)

    def record(self, event: int, stream: int) -> None:
        """Let the event happen when the work so far given to a stream is done."""
        _launch.spoil()
        self._contexts.enter(self.device_index(stream))
        self._api.call("cuEventRecord", event, self.handle(stream))

    def record_event(self, stream: int) -> int:
        """Return an event that happens when the work so far given to a stream is done."""
        event = self.new_event(self.device_index(stream), False, False, False)
        self.record(event, stream)
        return event

    def record_timed_event(self, stream: int) -> int:
        """Return one that tells, by `elapsed_time`, when that was."""
        index = self.device_index(stream)
        idle = self._idle_timed.get(index)
        if idle:
            event = idle.pop()
        else:
            event = self.new_event(index, True, False, False)
            self._timed[event] = index
        self.record(event, stream)
        return event

    def query_event(self, event: int) -> bool:
        """Return whether an event has happened."""
        self._enter_of(event)
        if self.captures:
            with self.relaxed():
                return self._api.query("cuEventQuery", event)
        return self._api.query("cuEventQuery", event)

    def synchronize_event(self, event: int) -> None:
        """Wait for an event."""
        _launch.spoil()
        self._enter_of(event)
        self._api.call("cuEventSynchronize", event)
        self.forget_done()

    def wait_event(self, stream: int, event: int) -> None:
        """Let work given to a stream from now on wait for an event."""
        _launch.spoil()
        self._contexts.enter(self.device_index(stream))
        self._api.call("cuStreamWaitEvent", self.handle(stream), event, 0)

    def elapsed_time(self, start: int, end: int) -> float:
        """Return the milliseconds between two events."""
        self._enter_of(start)
        elapsed = ctypes.c_float()
        self._api.call("cuEventElapsedTime", ctypes.byref(elapsed), start, end)
        return elapsed.value

    def _enter_of(self, event: int) -> None:
        index = self._events[event]
        self._contexts.enter(index if index >= 0 else ~index)

    # --- copies -----------------------------------------------------------------------------------

    def copy_from_host(
        self, handle: int, offset: int, source: memoryview, stream: int, owner: Any
    ) -> None:
        """Start a copy to the device in a stream."""
        _launch.spoil()
        self._contexts.enter(self.device_index(stream))
        self._api.call(
            "cuMemcpyHtoDAsync_v2",
            handle + offset,
            address_of(source),
            source.nbytes,
            self.handle(stream),
        )
        self._keep(owner, stream)

    def copy_to_host(
        self, handle: int, offset: int, target: memoryview, stream: int, owner: Any
    ) -> None:
        """Start a copy from the device in a stream."""
        _launch.spoil()
        self._contexts.enter(self.device_index(stream))
        self._api.call(
            "cuMemcpyDtoHAsync_v2",
            address_of(target),
            handle + offset,
            target.nbytes,
            self.handle(stream),
        )
        self._keep(owner, stream)

    def _keep(self, owner: Any, stream: int) -> None:
        """Keep the host's memory of a copy until the stream has passed it."""
        if owner is None:
            return
        if self.captures and self.is_capturing(stream):
            self.captures[-1].append(owner)  # each launch of the graph copies again
            return
        self.forget_done()
        self._pending.append((self.record_event(stream), owner))

    def forget_done(self) -> None:
        """Let go of the memory of copies that are done, oldest first."""
        while self._pending and self.query_event(self._pending[0][0]):
            event, _ = self._pending.popleft()
            self.destroy_event(event)


def address_of(memory: memoryview) -> int:
    """Return the address of the first byte of contiguous memory."""
    if memory.nbytes == 0:
        return 0
    # ctypes refuses read-only memory; NumPy tells the address of any.
    import numpy as np

    return int(np.frombuffer(memory, np.uint8).ctypes.data)
