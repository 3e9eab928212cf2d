"""Loopback with two indices that count their memory, and with streams among which threads choose.

As `computing_loopback`, they stand for devices that the kit must accept.
"""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np

from tangrad.plugin import DeviceStreams, PinnedMemory
from tangrad_testing.loopback import Loopback

TOTAL = 2**34


class Counted(Loopback):
    """Tell how much memory each index has left."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.taken, self.where = [0, 0], dict[int, int]()
        self.chosen = threading.local()

    def properties(self, index: int) -> dict[str, object]:
        """Tell the name and the memory."""
        return {"name": f"{self.name} {index}", "total_memory": TOTAL,
                "free_memory": TOTAL - self.taken[index]}  # fmt: skip

    def current_device(self) -> int:
        """Return what the thread chose."""
        return getattr(self.chosen, "index", 0)

    def set_device(self, index: int) -> None:
        """Choose for the thread."""
        super().set_device(index)
        self.chosen.index = index

    def allocate(self, nbytes: int, index: int) -> int:
        """Take memory of an index."""
        if nbytes > TOTAL - self.taken[index]:
            raise MemoryError("loopback")
        handle = super().allocate(nbytes, index)
        self.where[handle] = index
        self.taken[index] += nbytes
        return handle

    def release(self, handle: int, nbytes: int) -> None:
        """Give it back."""
        super().release(handle, nbytes)
        self.taken[self.where.pop(handle)] -= nbytes


class Queue:
    """One stream: a thread that works in the order of the calls."""

    def __init__(self, index: int) -> None:
        self.index, self.pending = index, 0
        self.work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self) -> None:
        """Work for ever."""
        while True:
            self.work.get()()

    def put(self, work: Callable[[], None]) -> None:
        """Queue work."""
        self.work.put(work)

    def wait(self) -> None:
        """Wait for all that is queued."""
        done = threading.Event()
        self.put(done.set)
        done.wait()


class Moment:
    """An event as it was recorded last.

    Attributes:
        happened: set when the work before it is done.
        when: by the clock, then.
    """

    def __init__(self) -> None:
        self.happened, self.when = threading.Event(), 0.0

    def happen(self) -> None:
        """Look at the clock and tell those who wait."""
        self.when = time.perf_counter()
        self.happened.set()


class Streams(DeviceStreams):
    """Streams and events of a `Streaming` device."""

    def __init__(self, driver: Any) -> None:
        self.driver, self.chosen = driver, threading.local()
        self.queues = {index: Queue(index) for index in range(driver.device_count())}
        self.numbers, self.events = count(100), dict[int, Moment]()

    def default_stream(self, index: int) -> int:
        """Return the stream whose number is the index."""
        return index

    def current_stream(self, index: int) -> int:
        """Return what the thread chose."""
        return int(self.chosen.__dict__.get(str(index), self.default_stream(index)))

    def set_stream(self, stream: int) -> None:
        """Choose for the thread and the stream's index."""
        self.chosen.__dict__[str(self.device_index(stream))] = stream

    def device_index(self, stream: int) -> int:
        """Return the index of a stream."""
        return self.queues[stream].index

    def new_stream(self, index: int, priority: int) -> int:
        """Start one more thread."""
        number = next(self.numbers)
        self.queues[number] = Queue(index)
        return number

    def put(self, stream: int, work: Callable[[], None]) -> None:
        """Give work to a stream."""
        self.queues[stream].put(work)

    def query_stream(self, stream: int) -> bool:
        """Tell whether an event recorded now has happened."""
        moment = Moment()
        self.put(stream, moment.happen)
        time.sleep(1e-3)  # the thread has its turn
        return moment.happened.is_set()

    def synchronize_stream(self, stream: int) -> None:
        """Wait for the queue."""
        self.queues[stream].wait()

    def new_event(self, index: int, timing: bool, blocking: bool, interprocess: bool) -> int:
        """Return a number."""
        number = next(self.numbers)
        self.events[number] = Moment()
        return number

    def destroy_event(self, event: int) -> None:
        """Forget an event."""
        self.events.pop(event, None)

    def record(self, event: int, stream: int) -> None:
        """Queue the event."""
        self.events[event] = moment = Moment()
        self.put(stream, moment.happen)

    def query_event(self, event: int) -> bool:
        """Tell whether it has happened."""
        return self.events[event].happened.is_set()

    def synchronize_event(self, event: int) -> None:
        """Wait for it."""
        self.events[event].happened.wait()

    def wait_event(self, stream: int, event: int) -> None:
        """Queue a wait."""
        moment = self.events[event]
        self.put(stream, lambda: moment.happened.wait() and None)

    def elapsed_time(self, start: int, end: int) -> float:
        """Return the milliseconds between two events.

        Raises:
            RuntimeError: one has not happened.
        """
        first, last = self.events[start], self.events[end]
        if not (first.happened.is_set() and last.happened.is_set()):
            raise RuntimeError("loopback: elapsed_time of an event that has not happened")
        return (last.when - first.when) * 1000

    def copy_from_host(
        self, handle: int, offset: int, source: memoryview, stream: int, owner: Any
    ) -> None:
        """Queue a copy."""
        target = self.driver._range(handle, offset, len(source))
        self.put(stream, Copy(target, source, owner))

    def copy_to_host(
        self, handle: int, offset: int, target: memoryview, stream: int, owner: Any
    ) -> None:
        """Queue a copy."""
        source = self.driver._range(handle, offset, len(target))
        self.put(stream, Copy(target, source, owner))


class Copy:
    """A copy of bytes that is done later, and holds what it needs until then."""

    PAUSE = 2e-4

    def __init__(self, target: memoryview, source: memoryview, owner: Any) -> None:
        self.target, self.source, self.owner = target, source, owner

    def __call__(self) -> None:
        """Copy, as if it took its time."""
        threading.Event().wait(self.PAUSE)
        self.target[:] = bytes(self.source)
        del self.target, self.source, self.owner


class Pinned(PinnedMemory):
    """Memory of NumPy that passes for page-locked."""

    def __init__(self) -> None:
        self.ranges: dict[int, int] = {}

    def allocate(self, nbytes: int) -> Any:
        """Return an array."""
        made = np.empty(nbytes, np.uint8)
        start = made.ctypes.data
        self.ranges[start] = nbytes
        weakref.finalize(made, self.ranges.pop, start, None)
        return made

    def holds(self, address: int) -> bool:
        """Tell whether an address is in one of the arrays."""
        return any(s <= address < s + n for s, n in list(self.ranges.items()))

    def empty_cache(self) -> None:
        """Do nothing: nothing is kept."""


class Streaming(Counted):
    """Copy in the stream that the calling thread chose."""

    survives_fork = False
    STREAMS: type[Streams] = Streams
    PINNED: type[Pinned] = Pinned

    def open(self) -> None:
        """Start a thread for each index."""
        self.streams, self.pinned = self.STREAMS(self), self.PINNED()
        self.query_event = self.streams.query_event
        self.synchronize_event = self.streams.synchronize_event
        self.destroy_event = self.streams.destroy_event
        self.elapsed_time = self.streams.elapsed_time
        self.record_event = self._record_event

    def _record_event(self, stream: int) -> int:
        event = self.streams.new_event(self.streams.device_index(stream), True, False, False)
        self.streams.record(event, stream)
        return event

    def current_stream(self, index: int) -> int:
        """Return what the thread chose."""
        return self.streams.current_stream(index)

    def synchronize(self, index: int | None = None) -> None:
        """Wait for all streams of an index."""
        index = self.current_device() if index is None else index
        for stream in [q for q in list(self.streams.queues.values()) if q.index == index]:
            stream.wait()

    def release(self, handle: int, nbytes: int) -> None:
        """Give memory back when its index is idle."""
        self.synchronize(self.where.get(handle, 0))
        super().release(handle, nbytes)

    def _stream_of(self, handle: int) -> int:
        self._block(handle)
        return self.streams.current_stream(self.where[handle])

    def copy_from_host(self, handle: int, offset: int, source: memoryview) -> None:
        """Copy after what the current stream was given."""
        stream = self._stream_of(handle)
        self.streams.copy_from_host(handle, offset, source, stream, None)
        self.streams.synchronize_stream(stream)

    def copy_to_host(self, handle: int, offset: int, target: memoryview) -> None:
        """Copy after what the current stream was given."""
        stream = self._stream_of(handle)
        self.streams.copy_to_host(handle, offset, target, stream, None)
        self.streams.synchronize_stream(stream)

    def copy_within(
        self, handle: int, offset: int, source: int, source_offset: int, nbytes: int
    ) -> None:
        """Queue a copy in the target's stream, after what the source's was given."""
        copy = Copy(
            self._range(handle, offset, nbytes), self._range(source, source_offset, nbytes), None
        )
        stream, other = self._stream_of(handle), self._stream_of(source)
        if stream != other:
            event = self._record_event(other)
            self.streams.wait_event(stream, event)
            self.streams.destroy_event(event)
        self.streams.put(stream, copy)
        if stream != other:  # the source is not written before it was read
            event = self._record_event(stream)
            self.streams.wait_event(other, event)
            self.streams.destroy_event(event)
