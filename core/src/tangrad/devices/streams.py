"""Streams and events by PyTorch's device-independent names, and the error of accelerators.

The host has one stream in which everything is done when the call returns. A device with streams
of its own shows them under its own name (`tangrad.<device>.Stream`).
"""

from __future__ import annotations

from typing import Any

from tangrad import _C

__all__ = ["AcceleratorError", "Event", "Stream"]


class AcceleratorError(RuntimeError):
    """An error that an accelerator reported.

    Attributes:
        error_code: the accelerator's own number of it, or None.
    """

    error_code: int | None = None


def _host(name: str, device: Any) -> Any:
    """Return the device, which must work in order with its caller.

    Raises:
        NotImplementedError: it has streams of its own.
    """
    found = _C.get_default_device() if device is None else _C.device(device)
    from tangrad.devices.registry import get_driver

    if not get_driver(found.type).host:
        raise NotImplementedError(
            f"{name}: device '{found.type}' shows its own: tangrad.{found.type}.{name}"
        )
    return found


class Stream:
    """The host's stream: work is done when the call that gives it returns.

    Args:
        device: a device of the host.
        priority: means nothing here.

    Raises:
        NotImplementedError: the device has streams of its own.
    """

    def __init__(self, device: Any = None, *, priority: int = 0) -> None:
        self.device = _host("Stream", device)
        self.stream_id, self.device_index = 0, -1

    def query(self) -> bool:
        """Return whether all work is done: it is."""
        return True

    def synchronize(self) -> None:
        """Wait for all work; there is none left."""

    def wait_event(self, event: Event) -> None:
        """Let work to come wait for an event; it has happened."""

    def wait_stream(self, stream: Stream) -> None:
        """Let work to come wait for another stream; its work is done."""

    def record_event(self, event: Event | None = None) -> Event:
        """Return the event of all work so far."""
        event = Event(self.device) if event is None else event
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc_info: object) -> None:
        return None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.device == self.device

    def __hash__(self) -> int:
        return hash((self.device, self.stream_id))

    def __repr__(self) -> str:
        return (
            f"tangrad.Stream device_type={self.device.type}, device_index={self.device_index}, "
            f"stream_id={self.stream_id}"
        )


class Event:
    """A place in the host's stream, which has been reached once it is recorded.

    Args:
        device: a device of the host.
        enable_timing: whether `elapsed_time` may be asked for.
        blocking, interprocess: mean nothing here.

    Raises:
        NotImplementedError: the device has events of its own.
    """

    def __init__(
        self,
        device: Any = None,
        *,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
    ) -> None:
        self.device = _host("Event", device)
        self.event_id = 0
        self._timed = enable_timing
        self._recorded: float | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Note the time: all work so far is done."""
        from time import perf_counter

        self._recorded = perf_counter()

    def query(self) -> bool:
        """Return whether the work before it is done: it is."""
        return True

    def wait(self, stream: Stream | None = None) -> None:
        """Let work to come wait for it; it has happened."""

    def synchronize(self) -> None:
        """Wait for it; it has happened."""

    def elapsed_time(self, end_event: Event) -> float:
        """Return the milliseconds from this event to another.

        Raises:
            RuntimeError: one of them was made without `enable_timing` or not recorded.
        """
        for event in (self, end_event):
            if not event._timed or event._recorded is None:
                raise RuntimeError(
                    "Event.elapsed_time: both events must be made with enable_timing=True and be "
                    "recorded"
                )
        assert self._recorded is not None
        assert end_event._recorded is not None
        return (end_event._recorded - self._recorded) * 1000

    def __repr__(self) -> str:
        return (
            f"tangrad.Event device_type={self.device.type}, device_index=-1, "
            f"event_flag={int(self._timed)}, event_id={self.event_id}"
        )
