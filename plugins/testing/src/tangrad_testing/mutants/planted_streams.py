"""Faults in streams, in their events, and in page-locked memory."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np

from tangrad_testing.mutants.fault import fault
from tangrad_testing.streaming_loopback import Copy, Moment, Pinned, Streaming, Streams


def with_streams(name: str, says: str, **methods: Any) -> type:
    """Plant a fault in the streams of the device."""
    streams = type(f"{name}Streams", (Streams,), methods)
    return fault(type(name, (Streaming,), {"__doc__": says, "STREAMS": streams}))


def with_pinned(name: str, says: str, **methods: Any) -> type:
    """Plant a fault in the page-locked memory of the device."""
    pinned = type(f"{name}Pinned", (Pinned,), methods)
    return fault(type(name, (Streaming,), {"__doc__": says, "PINNED": pinned}))


def nothing(*arguments: Any) -> None:
    """Do nothing."""


def record_early(self: Streams, event: int, stream: int) -> None:
    """Let an event happen at once."""
    self.events[event] = moment = Moment()
    moment.happen()


def record_elsewhere(self: Streams, event: int, stream: int) -> None:
    """Record in the default stream."""
    Streams.record(self, event, self.default_stream(self.device_index(stream)))


def record_in_the_current(self: Streams, event: int, stream: int) -> None:
    """Record in the stream of the calling thread."""
    Streams.record(self, event, self.current_stream(self.device_index(stream)))


def record_once(self: Streams, event: int, stream: int) -> None:
    """Keep the first record."""
    if not self.events[event].__dict__.get("recorded"):
        Streams.record(self, event, stream)
        self.events[event].__dict__["recorded"] = True


def record_behind_all(self: Streams, event: int, stream: int) -> None:
    """Let an event happen when every stream is done."""
    self.events[event] = moment = Moment()

    def happen() -> None:
        for other in list(self.queues.values()):
            other.wait()
        moment.happen()

    threading.Thread(target=happen, daemon=True).start()


def set_for_all(self: Streams, stream: int) -> None:
    """Choose for all threads."""
    self.__dict__.setdefault("all", {})[self.device_index(stream)] = stream


def set_for_every_index(self: Streams, stream: int) -> None:
    """Choose for both indices."""
    for index in range(self.driver.device_count()):
        self.chosen.__dict__[str(index)] = stream


def host_read_early(self: Streams, handle: int, offset: int, source: Any, stream: int,
                    owner: Any) -> None:  # fmt: skip
    """Write at once, whatever the stream still does."""
    self.driver._range(handle, offset, len(source))[:] = source


def host_write_early(self: Streams, handle: int, offset: int, target: Any, stream: int,
                     owner: Any) -> None:  # fmt: skip
    """Read at once, whatever the stream still does."""
    target[:] = self.driver._range(handle, offset, len(target))


def from_host_in_default(self: Streams, handle: int, offset: int, source: Any, stream: int,
                         owner: Any) -> None:  # fmt: skip
    """Copy in the default stream."""
    default = self.default_stream(self.device_index(stream))
    Streams.copy_from_host(self, handle, offset, source, default, owner)


def to_host_in_default(self: Streams, handle: int, offset: int, target: Any, stream: int,
                       owner: Any) -> None:  # fmt: skip
    """Copy in the default stream."""
    default = self.default_stream(self.device_index(stream))
    Streams.copy_to_host(self, handle, offset, target, default, owner)


def from_host_without_owner(self: Streams, handle: int, offset: int, source: Any, stream: int,
                            owner: Any) -> None:  # fmt: skip
    """Read by address, and let go of what holds the memory there."""
    target = self.driver._range(handle, offset, len(source))
    address, nbytes = np.frombuffer(source, np.uint8).ctypes.data, len(source)

    def copy() -> None:
        import ctypes

        threading.Event().wait(Copy.PAUSE)
        target[:] = ctypes.string_at(address, nbytes)

    self.put(stream, copy)


def from_host_keeping(self: Streams, handle: int, offset: int, source: Any, stream: int,
                      owner: Any) -> None:  # fmt: skip
    """Hold on to the owner for ever."""
    Streams.copy_from_host(self, handle, offset, source, stream, owner)
    self.__dict__.setdefault("kept", []).append(owner)


def to_host_keeping(self: Streams, handle: int, offset: int, target: Any, stream: int,
                    owner: Any) -> None:  # fmt: skip
    """Hold on to the owner for ever."""
    Streams.copy_to_host(self, handle, offset, target, stream, owner)
    self.__dict__.setdefault("kept", []).append(owner)


def elapsed_anyhow(self: Streams, start: int, end: int) -> float:
    """Tell a time of events that have not happened."""
    return (self.events[end].when - self.events[start].when) * 1000


def wait_here(self: Streams, stream: int, event: int) -> None:
    """Let the host wait in place of the stream."""
    self.events[event].happened.wait()


with_streams("DefaultStreamsAreOne", "Both indices have one default stream.",
             default_stream=lambda self, index: 0)  # fmt: skip
with_streams(
    "StreamsAreOfIndexZero",
    "Every new stream is of index 0.",
    new_stream=lambda self, index, priority: Streams.new_stream(self, 0, priority),
)
with_streams("StreamsAreTheDefault", "A new stream is the default one.",
             new_stream=lambda self, index, priority: index)  # fmt: skip
with_streams("StreamsTellAnotherIndex", "device_index of a stream of index 1 is 0.",
             device_index=lambda self, stream: 0)  # fmt: skip
with_streams("StreamsAreNotChosen", "set_stream changes nothing.", set_stream=nothing)
with_streams(
    "StreamsAreChosenForAll",
    "set_stream chooses for all threads.",
    set_stream=set_for_all,
    current_stream=lambda self, index: self.__dict__.get("all", {}).get(index, index),
)
with_streams("StreamsAreChosenForEveryIndex", "set_stream chooses for both indices.",
             set_stream=set_for_every_index)  # fmt: skip
with_streams("StreamsAreAlwaysDone", "query_stream is always True.",
             query_stream=lambda self, stream: True)  # fmt: skip
with_streams("StreamsAreNeverDone", "query_stream is always False.",
             query_stream=lambda self, stream: False)  # fmt: skip
with_streams("AskingAStreamWaits", "query_stream answers when the work is done.",
             query_stream=lambda self, stream: self.queues[stream].wait() or True)  # fmt: skip
with_streams("StreamsAreNotWaitedFor", "synchronize_stream returns at once.",
             synchronize_stream=lambda self, stream: None if stream > 1
             else Streams.synchronize_stream(self, stream))  # fmt: skip
with_streams("EventsOfStreamsHappenAtOnce", "record lets the event happen at once.",
             record=record_early)  # fmt: skip
with_streams("EventsAreRecordedElsewhere", "record takes the default stream.",
             record=record_elsewhere)  # fmt: skip
with_streams("EventsAreRecordedInTheCurrent", "record takes the thread's stream.",
             record=record_in_the_current)  # fmt: skip
with_streams("EventsAreRecordedOnce", "A second record of an event changes nothing.",
             record=record_once)  # fmt: skip
with_streams("EventsWaitForAllStreams", "An event happens when every stream is done.",
             record=record_behind_all)  # fmt: skip
with_streams("WaitsAreIgnored", "wait_event does nothing.", wait_event=nothing)
with_streams("WaitsBlockTheHost", "wait_event lets the calling thread wait.",
             wait_event=wait_here)  # fmt: skip
with_streams("WaitsAreForTheDefault", "wait_event lets the default stream wait.",
             wait_event=lambda self, stream, event: Streams.wait_event(
                 self, self.default_stream(self.device_index(stream)), event))  # fmt: skip
with_streams("EventsOfStreamsAreNotWaitedFor", "synchronize_event returns at once.",
             synchronize_event=nothing)  # fmt: skip
with_streams("EventsOfStreamsAreAlwaysDone", "query_event is always True.",
             query_event=lambda self, event: True)  # fmt: skip
with_streams("EventsHaveOneNumber", "All events have one number.",
             new_event=lambda self, *options: self.events.setdefault(7, Moment()) and 7,
             destroy_event=nothing)  # fmt: skip
with_streams(
    "StreamClocksRunBackwards",
    "elapsed_time is negative.",
    elapsed_time=lambda self, start, end: Streams.elapsed_time(self, end, start),
)
with_streams("StreamClocksTellMicroseconds", "elapsed_time is in microseconds.",
             elapsed_time=lambda self, a, b: 1000 * Streams.elapsed_time(self, a, b))  # fmt: skip
with_streams("StreamClocksDoNotRefuse", "elapsed_time of pending events is no error.",
             elapsed_time=elapsed_anyhow)  # fmt: skip
with_streams("WritesOvertakeTheStream", "copy_from_host in a stream is done at once.",
             copy_from_host=host_read_early)  # fmt: skip
with_streams("ReadsOvertakeTheStream", "copy_to_host in a stream is done at once.",
             copy_to_host=host_write_early)  # fmt: skip
with_streams("WritesTakeTheDefaultStream", "copy_from_host goes to the default stream.",
             copy_from_host=from_host_in_default)  # fmt: skip
with_streams("ReadsTakeTheDefaultStream", "copy_to_host goes to the default stream.",
             copy_to_host=to_host_in_default)  # fmt: skip
with_streams("OwnersAreLetGo", "copy_from_host does not keep its source alive.",
             copy_from_host=from_host_without_owner)  # fmt: skip
with_streams("OwnersOfSourcesAreKept", "copy_from_host keeps its source for ever.",
             copy_from_host=from_host_keeping)  # fmt: skip
with_streams("OwnersOfTargetsAreKept", "copy_to_host keeps its target for ever.",
             copy_to_host=to_host_keeping)  # fmt: skip
with_streams("PrioritiesAreTurned", "The least priority is a lower number than the greatest.",
             priority_range=lambda self: (-5, 0))  # fmt: skip

with_pinned("AllMemoryIsPinned", "holds() is True of any address.",
            holds=lambda self, address: True)  # fmt: skip
with_pinned("NoMemoryIsPinned", "holds() is False of any address.",
            holds=lambda self, address: False)  # fmt: skip
with_pinned("OnlyStartsArePinned", "holds() is True of the first byte alone.",
            holds=lambda self, address: address in self.ranges)  # fmt: skip
with_pinned(
    "PinnedMemoryIsShort",
    "allocate() gives a byte less beyond a page.",
    allocate=lambda self, nbytes: Pinned.allocate(self, nbytes - (nbytes > 4096)),
)
with_pinned(
    "PinnedMemoryIsReadOnly",
    "allocate() gives memory that may not be written.",
    allocate=lambda self, nbytes: memoryview(Pinned.allocate(self, nbytes)).toreadonly(),
)


def one_piece(self: Any, nbytes: int) -> Any:
    """Give the same memory again."""
    if self.__dict__.get("piece") is None or len(self.piece) < nbytes:
        self.piece = Pinned.allocate(self, nbytes)
    return self.piece[:nbytes]


def keeping(self: Any, nbytes: int) -> Any:
    """Never let go of memory."""
    made = Pinned.allocate(self, nbytes)
    self.__dict__.setdefault("kept", []).append(made)
    return made


with_pinned("PinnedMemoryIsShared", "allocate() gives memory that is in use.", allocate=one_piece)
with_pinned("PinnedMemoryIsKept", "Page-locked memory is never given back, not by empty_cache "
            "either.", allocate=keeping)  # fmt: skip


@fault
class TheDeviceWaitsForOneStream(Streaming):
    """synchronize waits for the current stream alone."""

    def synchronize(self, index: int | None = None) -> None:
        index = self.current_device() if index is None else index
        self.streams.synchronize_stream(self.streams.current_stream(index))


@fault
class CopiesTakeTheDefaultStream(Streaming):
    """copy_within goes to the default stream."""

    def _stream_of(self, handle: int) -> int:
        return self.streams.default_stream(self.where[handle])

    def copy_from_host(self, handle: int, offset: int, source: memoryview) -> None:
        self.synchronize(self.where[handle])
        super().copy_from_host(handle, offset, source)

    def copy_to_host(self, handle: int, offset: int, target: memoryview) -> None:
        self.synchronize(self.where[handle])
        super().copy_to_host(handle, offset, target)


@fault
class HostCopiesTakeTheDefaultStream(Streaming):
    """copy_to_host waits for the default stream, not for the current one."""

    def copy_to_host(self, handle: int, offset: int, target: memoryview) -> None:
        stream = self.streams.default_stream(self.where[handle])
        self.streams.copy_to_host(handle, offset, target, stream, None)
        self.streams.synchronize_stream(stream)


@fault
class CopiesAcrossDoNotWait(Streaming):
    """copy_within between indices does not wait for the stream of the source."""

    def copy_within(self, handle, offset, source, source_offset, nbytes):  # type: ignore
        copy = Copy(self._range(handle, offset, nbytes),
                    self._range(source, source_offset, nbytes), None)  # fmt: skip
        self.streams.put(self._stream_of(handle), copy)


@fault
class CopiesChangeTheStream(Streaming):
    """copy_within leaves the thread on the default stream."""

    def copy_within(self, handle, offset, source, source_offset, nbytes):  # type: ignore
        super().copy_within(handle, offset, source, source_offset, nbytes)
        self.streams.set_stream(self.streams.default_stream(self.where[handle]))


@fault
class TheDriverTellsAnotherStream(Streaming):
    """The driver's current_stream is always the default one."""

    def current_stream(self, index: int) -> int:
        return self.streams.default_stream(index)


@fault
class WorkOfAStreamIsUnordered(Streaming):
    """A copy in a stream may overtake the one before it."""

    def copy_within(self, handle, offset, source, source_offset, nbytes):  # type: ignore
        copy = Copy(self._range(handle, offset, nbytes),
                    self._range(source, source_offset, nbytes), None)  # fmt: skip
        done = threading.Event()

        def later() -> None:
            time.sleep(3 * Copy.PAUSE)
            copy()
            done.set()

        self.streams.put(self._stream_of(handle), threading.Thread(target=later).start)
        self.__dict__.setdefault("late", []).append(done)

    def synchronize(self, index: int | None = None) -> None:
        super().synchronize(index)
        for done in self.__dict__.pop("late", []):
            done.wait()
