"""Faults in the order of work and in events."""

from __future__ import annotations

import queue
import threading
import time

from tangrad_testing.computing_loopback import Queued, Timed
from tangrad_testing.loopback import Loopback
from tangrad_testing.mutants.fault import fault


@fault
class EventsAreAlwaysDone(Queued):
    """query_event is always True."""

    def query_event(self, event: int) -> bool:
        return True


@fault
class EventsAreDoneWhenRecorded(Queued):
    """An event is done when it is recorded, to those who ask and to those who wait."""

    def record_event(self, stream: int) -> int:
        number = super().record_event(stream)
        event, self._events[number] = self._events[number], threading.Event()
        self._events[number].set()
        self.__dict__.setdefault("real", {})[number] = event
        return number

    def synchronize(self, index: int | None = None) -> None:
        self._require_own_process()
        number = super().record_event(0)
        self._events[number].wait()


@fault
class EventsAreNeverDone(Queued):
    """query_event is always False."""

    def query_event(self, event: int) -> bool:
        return False


@fault
class EventsAreOne(Queued):
    """All events that are recorded have one number."""

    def record_event(self, stream: int) -> int:
        self._number = 0
        return super().record_event(stream)

    def destroy_event(self, event: int) -> None:
        self._events.pop(event, None)


@fault
class WaitingForEventsDoesNotWait(Queued):
    """synchronize_event returns at once; reads and writes wait for themselves."""

    def synchronize_event(self, event: int) -> None:
        return None

    def synchronize(self, index: int | None = None) -> None:
        self._require_own_process()
        number = self.record_event(0)
        self._events[number].wait()


@fault
class WaitingForTheDeviceDoesNotWait(Queued):
    """synchronize returns at once; reads and writes wait for themselves."""

    def synchronize(self, index: int | None = None) -> None:
        return None

    def copy_to_host(self, handle: int, offset: int, target: memoryview) -> None:
        Queued.synchronize(self)
        Loopback.copy_to_host(self, handle, offset, target)

    def copy_from_host(self, handle: int, offset: int, source: memoryview) -> None:
        Queued.synchronize(self)
        Loopback.copy_from_host(self, handle, offset, source)


@fault
class DestroyingOneEventDestroysAll(Queued):
    """destroy_event forgets every event."""

    def destroy_event(self, event: int) -> None:
        self._events.clear()


@fault
class ReadsDoNotWait(Queued):
    """copy_to_host reads before queued copies are done."""

    def copy_to_host(self, handle: int, offset: int, target: memoryview) -> None:
        Loopback.copy_to_host(self, handle, offset, target)


@fault
class WritesDoNotWait(Queued):
    """copy_from_host writes before queued copies are done."""

    def copy_from_host(self, handle: int, offset: int, source: memoryview) -> None:
        Loopback.copy_from_host(self, handle, offset, source)


@fault
class ReleaseDoesNotWait(Queued):
    """Memory is cleared when it is released, before queued copies from it are done."""

    def release(self, handle: int, nbytes: int) -> None:
        self._block(handle)[:] = bytes(nbytes)
        Loopback.release(self, handle, nbytes)


@fault
class TheLastComesFirst(Queued):
    """Queued work is done in the wrong order."""

    def open(self) -> None:
        super().open()
        self._work = queue.LifoQueue()  # type: ignore[assignment]
        threading.Thread(target=self._run, daemon=True).start()


@fault
class CopiesReadTooEarly(Queued):
    """A queued copy reads its source when it is queued."""

    def copy_within(
        self, handle: int, offset: int, source: int, source_offset: int, nbytes: int
    ) -> None:
        target = self._range(handle, offset, nbytes)
        early = bytes(self._range(source, source_offset, nbytes))

        def copy() -> None:
            threading.Event().wait(self.PAUSE)
            target[:] = early

        self._work.put(copy)


@fault
class QueriesWait(Queued):
    """query_event answers when the event has happened."""

    def query_event(self, event: int) -> bool:
        self._events[event].wait()
        return True


@fault
class WaitingIsForOnesOwnWork(Queued):
    """synchronize waits for what the calling thread gave; reads and writes wait for all."""

    last = threading.local()

    def copy_within(
        self, handle: int, offset: int, source: int, source_offset: int, nbytes: int
    ) -> None:
        super().copy_within(handle, offset, source, source_offset, nbytes)
        self.last.event = self.record_event(0)

    def synchronize(self, index: int | None = None) -> None:
        self._require_own_process()
        event = getattr(self.last, "event", None)
        if event in self._events:
            self._events[event].wait()

    def copy_to_host(self, handle: int, offset: int, target: memoryview) -> None:
        Queued.synchronize(self)
        Loopback.copy_to_host(self, handle, offset, target)

    def copy_from_host(self, handle: int, offset: int, source: memoryview) -> None:
        Queued.synchronize(self)
        Loopback.copy_from_host(self, handle, offset, source)


@fault
class OneIndexWaitsForNothing(Queued):
    """synchronize of an index that is named returns at once."""

    def synchronize(self, index: int | None = None) -> None:
        if index is None:
            super().synchronize()


@fault
class DestroyedEventsTakeWorkAlong(Queued):
    """Work that is queued when an event is destroyed is forgotten."""

    def destroy_event(self, event: int) -> None:
        if not self._events[event].is_set():
            while not self._work.empty():
                self._work.get()
        super().destroy_event(event)


@fault
class EventsAreKept(Queued):
    """destroy_event keeps the event, and a kilobyte with it."""

    kept: dict[int, bytes] = {}

    def destroy_event(self, event: int) -> None:
        self.kept[event] = bytes(1024) + b"\1"


@fault
class EventsOfThreadsAreApart(Queued):
    """An event that another thread recorded is not known."""

    def record_event(self, stream: int) -> int:
        number = super().record_event(stream)
        self.__dict__.setdefault("owner", {})[number] = threading.get_ident()
        return number

    def query_event(self, event: int) -> bool:
        if self.__dict__["owner"].get(event) != threading.get_ident():
            raise ValueError("loopback: no such event")
        return super().query_event(event)


@fault
class HalfOfTheWorkIsCounted(Queued):
    """An event happens before the last of the work that was given."""

    def record_event(self, stream: int) -> int:
        kept = []
        while not self._work.empty():
            kept.append(self._work.get())
        for work in kept[:-1]:
            self._work.put(work)
        number = super().record_event(stream)
        for work in kept[-1:]:
            self._work.put(work)
        return number


@fault
class ClocksTellSeconds(Timed):
    """elapsed_time is in seconds."""

    def elapsed_time(self, event: int, later: int) -> float:
        return super().elapsed_time(event, later) / 1000


@fault
class ClocksRunBackwards(Timed):
    """elapsed_time is negative."""

    def elapsed_time(self, event: int, later: int) -> float:
        return -super().elapsed_time(event, later)


@fault
class ClocksStandStill(Timed):
    """elapsed_time is always zero."""

    def elapsed_time(self, event: int, later: int) -> float:
        return 0.0


@fault
class ClocksTellWhenEventsWereRecorded(Timed):
    """elapsed_time is between the calls of record_event, not between the work."""

    def record_event(self, stream: int) -> int:
        number = super().record_event(stream)
        self.__dict__.setdefault("recorded", {})[number] = time.perf_counter()
        return number

    def elapsed_time(self, event: int, later: int) -> float:
        when = self.__dict__["recorded"]
        return (when[later] - when[event]) * 1000
