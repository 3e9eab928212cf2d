"""Streams and events of CUDA, and which stream a thread works in."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad import plugin
from tangrad_cuda.driver import Cuda
from tangrad_cuda.namespace._place import driver, index_of


class Stream(tangrad.Stream):
    """A stream of a GPU, out of a pool of 32 for each priority.

    Args:
        device: where; the current device.
        priority: 0, or a negative number to go first.
        stream_id: the number of a stream that exists.
    """

    def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
        if not isinstance(priority, int):
            raise TypeError(
                f"tangrad.cuda.Stream: priority must be an int, not {type(priority).__name__}"
            )
        place = kwargs.pop("device_index", None) if device is None else device
        kwargs.pop("device_type", None)
        super().__init__(tangrad.device("cuda", index_of(place)), priority=priority, **kwargs)

    @property
    def cuda_stream(self) -> int:
        """The driver's handle; 0 is the default stream."""
        handle: int = driver().streams.handle(self.stream_id)
        return handle

    @property
    def priority(self) -> int:
        """The driver's answer; a number below the range was made the nearest in it."""
        found: int = driver().streams.priority(self.stream_id)
        return found

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Return the least and the greatest priority, as numbers: (0, -5)."""
        found: tuple[int, int] = driver().streams.priority_range()
        return found

    @property
    def __cuda_stream__(self) -> Any:
        """The stream as other libraries take it over: (version, handle)."""
        return lambda: (0, self.cuda_stream)

    def record_event(self, event: Any = None) -> Any:
        """Return the event of all work so far."""
        return super().record_event(Event() if event is None else event)

    def __repr__(self) -> str:
        return f"<tangrad.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"


class ExternalStream(Stream):
    """A stream that another library made, and keeps alive as long as this is used.

    Args:
        stream_ptr: its handle.
        device: its device; the current one.
    """

    def __init__(self, stream_ptr: int, device: Any = None, **kwargs: Any) -> None:
        index = index_of(device)
        super().__init__(index, stream_id=driver().streams.adopt(int(stream_ptr), index))


class Event(tangrad.Event):
    """A place in a stream of a GPU.

    Args:
        enable_timing: whether `elapsed_time` may be asked for.
        blocking: whether `synchronize` sleeps in place of asking again and again.
        interprocess: refused: events are not shared with processes yet.
        external: accepted; it means something in graphs only.
    """

    def __init__(
        self,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
    ) -> None:
        if interprocess:
            raise NotImplementedError(
                "tangrad.cuda.Event: events between processes are not supported yet"
            )
        super().__init__(
            tangrad.device("cuda", index_of()), enable_timing=enable_timing, blocking=blocking
        )

    @property
    def cuda_event(self) -> int:
        """The driver's handle; 0 before the event is recorded."""
        return self.event_id

    def ipc_handle(self) -> bytes:
        """Refuse: events between processes are not supported yet."""
        raise NotImplementedError(
            "tangrad.cuda.Event.ipc_handle: events between processes are not supported yet"
        )

    @classmethod
    def from_ipc_handle(cls, device: Any, handle: bytes) -> Event:
        """Refuse: events between processes are not supported yet."""
        raise NotImplementedError(
            "tangrad.cuda.Event.from_ipc_handle: events between processes are not supported yet"
        )

    def __repr__(self) -> str:
        if not self.event_id:
            return "<tangrad.cuda.Event uninitialized>"
        return f"<tangrad.cuda.Event {self.event_id:#x}>"


class StreamContext:
    """Make a stream, and its device, current in a `with` block; None changes nothing."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self._before: list[tuple[int, int, int]] = []

    def __enter__(self) -> None:
        if self.stream is None:
            return
        opened, index = driver(), self.stream.device.index
        streams = opened.streams
        self._before.append((opened.current_device(), index, streams.current_stream(index)))
        opened.set_device(index)
        set_stream(self.stream)

    def __exit__(self, *exc_info: object) -> None:
        if self.stream is None:
            return
        opened = driver()
        device, _, stream = self._before.pop()
        opened.streams.set_stream(stream)
        opened.set_device(device)


def stream(stream: Any) -> StreamContext:
    """Return a context in which a stream is the current one."""
    return StreamContext(stream)


def set_stream(stream: Any) -> None:
    """Let the calling thread give work for the stream's device to the stream; None nothing."""
    if stream is not None:
        plugin.set_stream(stream)


def current_stream(device: Any = None) -> Stream:
    """Return the stream of a device that the calling thread gives work to."""
    index = index_of(device)
    return Stream(index, stream_id=driver().streams.current_stream(index))


def default_stream(device: Any = None) -> Stream:
    """Return the stream of a device in which work goes that chose no other."""
    index = index_of(device)
    return Stream(index, stream_id=driver().streams.default_stream(index))


def get_stream_from_external(data_ptr: int, device: Any = None) -> Stream:
    """Return a stream that another library made, by its handle."""
    return ExternalStream(data_ptr, device)


def is_current_stream_capturing() -> bool:
    """Return whether what the calling thread gives the GPU becomes part of a graph."""
    if not Cuda.opened:
        return False
    streams, index = driver().streams, driver().current_device()
    captures: bool = streams.is_capturing(streams.current_stream(index))
    return captures
