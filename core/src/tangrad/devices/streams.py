"""Streams and events by PyTorch's device-independent names, and the error of accelerators.

The host, and a device without events, has one stream in which everything is done when the call
returns. One with events has one stream, too, unless it brings several by `DeviceDriver.streams`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tangrad import _C

if TYPE_CHECKING:
    from tangrad.devices.queues import DeviceStreams

__all__ = ["AcceleratorError", "Event", "Stream", "StreamContext", "current_stream", "set_stream"]


class AcceleratorError(RuntimeError):
    """An error that an accelerator reported.

    Attributes:
        error_code: the accelerator's own number of it, or None.
    """

    error_code: int | None = None


def _placed(name: str, device: Any) -> tuple[Any, DeviceStreams | None]:
    """Return a device, with an index where it has streams, and its streams.

    Raises:
        NotImplementedError: its tensors have no data, so it does no work.
    """
    found = _C.get_default_device() if device is None else _C.device(device)
    from tangrad.devices.registry import open_device

    driver = open_device(found.type)
    if driver.meta:
        raise NotImplementedError(f"{name}: device '{found.type}' does no work to wait for")
    streams = driver.streams
    if streams is None and driver.record_event is not None:
        from tangrad.devices.queues import only_stream

        streams = only_stream(driver)
    if driver.host and streams is None:
        return found, None
    if found.index is None:
        found = _C.device(found.type, driver.current_device())
    elif found.index >= driver.device_count():
        raise RuntimeError(
            f"{name}: device '{found}' does not exist: {found.type} has {driver.device_count()}"
        )
    return found, streams


class Stream:
    """A queue of work: what is given to one stream is done in order, streams overlap.

    On the host, work is done when the call that gives it returns. As a context manager a stream
    is the current one of its device, in the thread, until the block ends.

    Args:
        device: where; the default device, or its current one.
        priority: lower numbers go first, where the device knows priorities.
        stream_id: the number of a stream that exists.

    Attributes:
        device: the device.
        stream_id: the driver's number of the stream; 0 on the host.

    Raises:
        RuntimeError: there is no such device.
    """

    def __init__(
        self, device: Any = None, *, priority: int = 0, stream_id: int | None = None, **place: Any
    ) -> None:
        if "device_type" in place or "device_index" in place:
            device = _C.device(
                str(place.get("device_type", device or "cpu")), place.get("device_index")
            )
        self.device, self._queue = _placed("Stream", device)
        self._outer: list[int] = []
        if self._queue is None:
            self.stream_id, self.device_index = 0, -1
            return
        self.device_index = self.device.index
        if stream_id is None:
            stream_id = self._queue.new_stream(self.device_index, priority)
        self.stream_id = stream_id

    def query(self) -> bool:
        """Return whether all work given to it is done."""
        return self._queue is None or self._queue.query_stream(self.stream_id)

    def synchronize(self) -> None:
        """Wait for all work given to it."""
        if self._queue is not None:
            self._queue.synchronize_stream(self.stream_id)

    def wait_event(self, event: Event) -> None:
        """Let work to come wait for an event."""
        if self._queue is not None and event.event_id:
            self._queue.wait_event(self.stream_id, event.event_id)

    def wait_stream(self, stream: Stream) -> None:
        """Let work to come wait for what another stream has been given."""
        if stream._queue is not None:
            self.wait_event(stream.record_event())

    def record_event(self, event: Event | None = None) -> Event:
        """Return the event of all work so far."""
        event = Event(self.device) if event is None else event
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        if self._queue is not None:
            self._outer.append(self._queue.current_stream(self.device_index))
            set_stream(self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._queue is not None:
            self._queue.set_stream(self._outer.pop())

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Stream)
            and other.device == self.device
            and other.stream_id == self.stream_id
        )

    def __hash__(self) -> int:
        return hash((self.device, self.stream_id))

    def __repr__(self) -> str:
        return (
            f"tangrad.Stream device_type={self.device.type}, device_index={self.device_index}, "
            f"stream_id={self.stream_id}"
        )


class Event:
    """A place in a stream, which is reached when the work before it is done.

    On the host it has been reached once it is recorded.

    Args:
        device: where; the default device, or its current one.
        enable_timing: whether `elapsed_time` may be asked for.
        blocking: whether `synchronize` sleeps in place of asking again and again.
        interprocess: whether other processes may be told of it, where the device can.
    """

    _queue: Any = None  # of one whose making failed, too, which ends as others do

    def __init__(
        self,
        device: Any = None,
        *,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
    ) -> None:
        self.event_id, self._queue = 0, None
        self.device, self._queue = _placed("Event", device)
        self._timed, self._options = enable_timing, (enable_timing, blocking, interprocess)
        self._recorded: float | None = None

    def _made(self, index: int) -> int:
        """Return the driver's event, made when it is first recorded: then its device is known."""
        assert self._queue is not None
        if not self.event_id:
            if index != self.device.index:
                self.device = _C.device(self.device.type, index)
            self.event_id = self._queue.new_event(index, *self._options)
        return self.event_id

    def record(self, stream: Stream | None = None) -> None:
        """Let it happen when the work so far given to a stream (the current one) is done."""
        from time import perf_counter

        self._recorded = perf_counter()
        if self._queue is None:
            return
        if stream is None:
            number = self._queue.current_stream(self.device.index)
            self._queue.record(self._made(self.device.index), number)
            return
        if stream.device.type != self.device.type or (
            self.event_id and stream.device != self.device
        ):
            raise RuntimeError(
                f"Event.record: the event is of device {self.device}, the stream of "
                f"{stream.device}; record an event in streams of its own device"
            )
        self._queue.record(self._made(stream.device.index), stream.stream_id)

    def query(self) -> bool:
        """Return whether the work before it is done; so it is of one that was not recorded."""
        return self._queue is None or not self.event_id or self._queue.query_event(self.event_id)

    def wait(self, stream: Stream | None = None) -> None:
        """Let work to come in a stream (the current one) wait for it."""
        if self._queue is None or not self.event_id:
            return
        where = current_stream(self.device) if stream is None else stream
        where.wait_event(self)

    def synchronize(self) -> None:
        """Wait for it."""
        if self._queue is not None and self.event_id:
            self._queue.synchronize_event(self.event_id)

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
        if self._queue is not None:
            return self._queue.elapsed_time(self.event_id, end_event.event_id)
        assert self._recorded is not None
        assert end_event._recorded is not None
        return (end_event._recorded - self._recorded) * 1000

    def __del__(self) -> None:
        if self._queue is not None and self.event_id:
            self._queue.destroy_event(self.event_id)

    def __repr__(self) -> str:
        index = -1 if self._queue is None else self.device.index
        return (
            f"tangrad.Event device_type={self.device.type}, device_index={index}, "
            f"event_flag={int(self._timed)}, event_id={self.event_id}"
        )


class StreamContext:
    """Make a stream the current one of its device in a block; None changes nothing."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *exc_info: object) -> None:
        if self.stream is not None:
            self.stream.__exit__(*exc_info)


def current_stream(device: Any = None, kind: type[Stream] = Stream) -> Stream:
    """Return the stream of a device that the calling thread gives work to."""
    place, queue = _placed("current_stream", device)
    number = 0 if queue is None else queue.current_stream(place.index)
    return kind(place, stream_id=number)


def set_stream(stream: Stream) -> None:
    """Let the calling thread give work for the stream's device to the stream."""
    if stream._queue is not None:
        # Before the first choice all memory is of the default stream, without asking.
        _C.ask_for_streams(stream.device.type)
        stream._queue.set_stream(stream.stream_id)
