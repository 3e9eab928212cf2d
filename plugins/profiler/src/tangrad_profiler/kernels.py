"""When devices worked, by their own clocks, and for which op.

A device whose driver has `elapsed_time` gets an event on its current stream before and after each
op that has no op within; what lies between two events is the device's work for that op, with the
wait for its launch if the stream was idle.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any

from tangrad.plugin import allocators, get_driver
from tangrad_profiler import _record

_MOST_WAITING = 20_000  # pairs of events that may be unread before recording waits for the device


class DeviceClock:
    """The clock of one device, set by the host's.

    Args:
        number: of its allocator. device: the device.
    """

    def __init__(self, number: int, device: Any) -> None:
        self.number, self.device = number, device
        self.driver, self.index = get_driver(device.type), device.index or 0
        self.driver.synchronize(self.index)
        self._zero = self.mark(self.stream())
        self.driver.synchronize_event(self._zero)
        self._zero_ns = time.perf_counter_ns()

    def stream(self) -> int:
        """Return the stream that the calling thread gives work to."""
        return int(self.driver.current_stream(self.index))

    def mark(self, stream: int) -> Any:
        """Return a new event on a stream."""
        return (self.driver.record_timed_event or self.driver.record_event)(stream)

    def time_of(self, event: Any) -> int:
        """Return when an event happened, in nanoseconds of the host's clock."""
        return self._zero_ns + int(1e6 * self.driver.elapsed_time(self._zero, event))

    def drop(self, *events: Any) -> None:
        """Give events back."""
        if self.driver.destroy_event is not None:
            for event in events:
                self.driver.destroy_event(event)

    def close(self) -> None:
        """Give the zero back."""
        self.drop(self._zero)


def timed_devices() -> dict[int, Any]:
    """Return the open devices that have a clock, by the numbers of their allocators."""
    return {
        number: device
        for number, device in allocators().items()
        if get_driver(device.type).elapsed_time is not None
    }


def clocks() -> dict[Any, DeviceClock]:
    """Return the clocks of all open devices that have one, by device."""
    return {device: DeviceClock(number, device) for number, device in timed_devices().items()}


class KernelObserver:
    """Observe the ops of a thread on devices with a clock.

    Args:
        clocks: by device.
    """

    def __init__(self, clocks: dict[Any, DeviceClock]) -> None:
        self.clocks = clocks
        self._waiting: deque[tuple[int, DeviceClock, int, Any, Any]] = deque()
        self._open: list[list[bool]] = []  # whether something within was measured
        self._thread = threading.get_ident()

    def _clock_of(self, args: Any) -> DeviceClock | None:
        for x in args:
            device = getattr(x, "device", None)
            if device is not None and (clock := self.clocks.get(device)) is not None:
                return clock
            if isinstance(x, (list, tuple)) and (clock := self._clock_of(x)) is not None:
                return clock
        return None

    def enter_call(self, op: Any, args: Any) -> Any:
        """Put an event in front of the op's kernel."""
        # A thread may have been left behind by the session that it was recorded in.
        clock = self._clock_of(args) if _record.attached() else None
        self._open.append([False])
        if clock is None:
            return None
        stream = clock.stream()
        return _record.latest(), clock, stream, clock.mark(stream)

    def leave_call(self, op: Any, token: Any, result: Any) -> None:
        """Put an event behind it, unless ops within have theirs."""
        (within,) = self._open.pop()
        if self._open and (token is not None or within):
            self._open[-1][0] = True
        if token is None:
            return
        event, clock, stream, began = token
        if within:
            clock.drop(began)
            return
        self._waiting.append((event, clock, stream, began, clock.mark(stream)))
        if len(self._waiting) % 256 == 0:
            self.read(wait=len(self._waiting) > _MOST_WAITING)

    def forget(self) -> None:
        """Drop the events that have not been read."""
        self._waiting.clear()

    def read(self, wait: bool) -> None:
        """Write down what has happened; `wait` for all."""
        while self._waiting:
            event, clock, stream, began, ended = self._waiting[0]
            if wait:
                clock.driver.synchronize_event(ended)
            elif not clock.driver.query_event(ended):
                return
            self._waiting.popleft()
            times = clock.time_of(began), clock.time_of(ended)
            _record.kernel(self._thread, event, clock.number, stream, *times)
            clock.drop(began, ended)
