"""State what a device with several streams, or with page-locked host memory, provides.

A driver whose work is done when a call returns has neither. One that has sets
`DeviceDriver.streams` to a `DeviceStreams` and `DeviceDriver.pinned` to a `PinnedMemory`, in
`open`; `tangrad.Stream`, `tangrad.Event`, `tangrad.accelerator`, `pin_memory` and
`non_blocking=True` are then served by them.
"""

from __future__ import annotations

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
