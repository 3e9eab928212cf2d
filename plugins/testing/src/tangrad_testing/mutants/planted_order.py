"""Faults in the order of work and in events."""

from __future__ import annotations

import queue
import threading

from tangrad_testing.computing_loopback import Queued
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
