"""State what a device with several streams, or with page-locked host memory, provides.

A driver whose work is done when a call returns has neither; of one that only records events, there
is one stream for each device. One that has several sets `DeviceDriver.streams` to a
`DeviceStreams` and `DeviceDriver.pinned` to a `PinnedMemory`, in `open`; `tangrad.Stream`,
`tangrad.Event`, `tangrad.accelerator`, `pin_memory` and `non_blocking=True` are then served by
them.
"""

from __future__ import annotations

from functools import cache
from itertools import count
from typing import Any


class DeviceStreams:
    """Drive streams and events of one type of device; both are numbers of the driver's choice.

    The number of a stream tells its device as well, so no two devices share one: `default_stream`
    of device 1 must differ from that of device 0, and 0 is device 0's.
    """

    def default_stream(self, index: int) -> int:
        """Return the stream that a thread works in until it chooses another."""
        raise NotImplementedError

    def current_stream(self, index: int) -> int:
        """Return the stream of a device that the calling thread gives work to."""
        raise NotImplementedError

    def set_stream(self, stream: int) -> None:
        """Let the calling thread give work for the stream's device to the stream."""
        raise NotImplementedError

    def device_index(self, stream: int) -> int:
        """Return the device of a stream."""
        raise NotImplementedError

    def new_stream(self, index: int, priority: int) -> int:
        """Return a stream; lower numbers of priority go first. It may be given out before."""
        raise NotImplementedError

    def priority_range(self) -> tuple[int, int]:
        """Return the least and the greatest priority, as numbers: (0, -5)."""
        return 0, 0

    def query_stream(self, stream: int) -> bool:
        """Return whether all work given to a stream is done."""
        raise NotImplementedError

    def synchronize_stream(self, stream: int) -> None:
        """Wait for all work given to a stream."""
        raise NotImplementedError

    def new_event(self, index: int, timing: bool, blocking: bool, interprocess: bool) -> int:
        """Return a new event."""
        raise NotImplementedError

    def destroy_event(self, event: int) -> None:
        """Give an event back; may be called while the interpreter shuts down."""
        raise NotImplementedError

    def record(self, event: int, stream: int) -> None:
        """Let the event happen when the work so far given to a stream is done."""
        raise NotImplementedError

    def query_event(self, event: int) -> bool:
        """Return whether an event has happened."""
        raise NotImplementedError

    def synchronize_event(self, event: int) -> None:
        """Wait for an event."""
        raise NotImplementedError

    def wait_event(self, stream: int, event: int) -> None:
        """Let work given to a stream from now on wait for an event."""
        raise NotImplementedError

    def elapsed_time(self, start: int, end: int) -> float:
        """Return the milliseconds between two events made with `timing`.

        Raises:
            RuntimeError: one of them has not happened.
        """
        raise NotImplementedError

    def copy_from_host(
        self, handle: int, offset: int, source: memoryview, stream: int, owner: Any
    ) -> None:
        """Start a copy to `handle` + `offset` in a stream; `owner` keeps the source alive."""
        raise NotImplementedError

    def copy_to_host(
        self, handle: int, offset: int, target: memoryview, stream: int, owner: Any
    ) -> None:
        """Start a copy from `handle` + `offset` in a stream; `owner` keeps the target alive."""
        raise NotImplementedError


class OnlyStream(DeviceStreams):
    """The stream of a driver that records events and has no streams to choose among."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        self._numbers = count(1)
        self._timed: dict[int, bool] = {}
        self._recorded: dict[int, Any] = {}

    def current_stream(self, index: int) -> int:
        """Return the driver's."""
        return int(self._driver.current_stream(index))

    def new_stream(self, index: int, priority: int) -> int:
        """Return the one that there is."""
        return self.current_stream(index)

    def set_stream(self, stream: int) -> None:
        """Go on with the one that there is."""

    def query_stream(self, stream: int) -> bool:
        """Return whether an event recorded now has happened."""
        event = self._driver.record_event(stream)
        try:
            return bool(self._driver.query_event(event))
        finally:
            self._forget(event)

    def synchronize_stream(self, stream: int) -> None:
        """Wait for an event recorded now."""
        event = self._driver.record_event(stream)
        self._driver.synchronize_event(event)
        self._forget(event)

    def new_event(self, index: int, timing: bool, blocking: bool, interprocess: bool) -> int:
        """Return a number, which stands for the event that the driver records last for it."""
        number = next(self._numbers)
        self._timed[number] = timing
        return number

    def record(self, event: int, stream: int) -> None:
        """Have the driver record an event in the place of the one before."""
        self._forget(self._recorded.pop(event, None))
        record = self._timed[event] and self._driver.record_timed_event
        self._recorded[event] = (record or self._driver.record_event)(stream)

    def query_event(self, event: int) -> bool:
        """Ask the driver."""
        return bool(self._driver.query_event(self._recorded[event]))

    def synchronize_event(self, event: int) -> None:
        """Ask the driver to wait."""
        self._driver.synchronize_event(self._recorded[event])

    def wait_event(self, stream: int, event: int) -> None:
        """Do nothing: work that comes later in the one stream is done later."""

    def elapsed_time(self, start: int, end: int) -> float:
        """Ask the driver, if it has a clock."""
        if self._driver.elapsed_time is None:
            raise RuntimeError(f"device '{self._driver.name}' does not tell when events happened")
        return float(self._driver.elapsed_time(self._recorded[start], self._recorded[end]))

    def destroy_event(self, event: int) -> None:
        """Forget an event."""
        self._timed.pop(event, None)
        self._forget(self._recorded.pop(event, None))

    def _forget(self, event: Any) -> None:
        if event is not None and self._driver.destroy_event is not None:
            self._driver.destroy_event(event)


@cache
def only_stream(driver: Any) -> OnlyStream:
    """Return the streams of a driver with one, the same at each call."""
    return OnlyStream(driver)


class PinnedMemory:
    """Hand out page-locked memory of the host, which a device copies without a detour."""

    def allocate(self, nbytes: int) -> Any:
        """Return writable memory as an object with the buffer protocol, which owns it.

        Raises:
            RuntimeError: the system refuses; the message says what to do.
        """
        raise NotImplementedError

    def holds(self, address: int) -> bool:
        """Return whether an address of the host lies in page-locked memory."""
        raise NotImplementedError

    def empty_cache(self) -> None:
        """Give memory that nobody uses back to the system."""
