"""Faults of devices with several indices."""

from __future__ import annotations

import time
from typing import Any

from tangrad_testing.loopback import Loopback
from tangrad_testing.mutants.fault import fault
from tangrad_testing.streaming_loopback import Counted


@fault
class MemoryIsOfTheOtherIndex(Counted):
    """Memory asked for on index 1 is taken from index 0."""

    def allocate(self, nbytes: int, index: int) -> int:
        return super().allocate(nbytes, 0)


@fault
class MemoryIsOfTheCurrentIndex(Counted):
    """Memory is taken from the index that the thread chose, whatever is asked for."""

    def allocate(self, nbytes: int, index: int) -> int:
        return super().allocate(nbytes, self.current_device())


@fault
class IndicesCountTheirHandles(Counted):
    """The handles of each index start anew."""

    def allocate(self, nbytes: int, index: int) -> int:
        kept, self._next = self._next, self.__dict__.setdefault(f"next{index}", 0x1001)
        if self._next in self._blocks:
            self.__dict__[f"next{index}"] += 2
            handle, self._next = self._next, kept
            self.where[handle] = index
            self.taken[index] += nbytes
            return handle
        handle = super().allocate(nbytes, index)
        self.__dict__[f"next{index}"], self._next = self._next, kept
        return handle


@fault
class AllocatingChoosesAnIndex(Counted):
    """allocate() leaves the thread on the index of the memory."""

    def allocate(self, nbytes: int, index: int) -> int:
        self.chosen.index = index
        return super().allocate(nbytes, index)


@fault
class CopyingChoosesAnIndex(Counted):
    """copy_from_host leaves the thread on the index of the memory."""

    def copy_from_host(self, handle: int, offset: int, source: memoryview) -> None:
        super().copy_from_host(handle, offset, source)
        self.chosen.index = self.where[handle]


@fault
class WaitingChoosesAnIndex(Counted):
    """synchronize(index) leaves the thread on the index."""

    def synchronize(self, index: int | None = None) -> None:
        if index is not None:
            self.chosen.index = index


@fault
class AskingChoosesAnIndex(Counted):
    """properties(index) leaves the thread on the index."""

    def properties(self, index: int) -> dict[str, object]:
        self.chosen.index = index
        return super().properties(index)


@fault
class ThreadsChooseForAll(Counted):
    """set_device chooses for all threads."""

    def current_device(self) -> int:
        return self.__dict__.get("all", 0)

    def set_device(self, index: int) -> None:
        super().set_device(index)
        self.__dict__["all"] = index


@fault
class AnyIndexIsChosen(Counted):
    """set_device takes an index that does not exist."""

    def set_device(self, index: int) -> None:
        self.chosen.index = index


@fault
class TheChoiceIsForgotten(Counted):
    """set_device changes nothing."""

    def set_device(self, index: int) -> None:
        Loopback.set_device(self, index)


@fault
class OnlyTheFirstCanWait(Counted):
    """synchronize() of index 1 fails."""

    def synchronize(self, index: int | None = None) -> None:
        if index:
            raise ValueError("loopback: which device?")


@fault
class TheSecondLosesTails(Counted):
    """Writes to index 1 stop at a page."""

    def copy_from_host(self, handle: int, offset: int, source: memoryview) -> None:
        keep = 4096 if self.where.get(handle) else len(source)
        super().copy_from_host(handle, offset, source[:keep])


@fault
class TheSecondIgnoresOffsets(Counted):
    """Reads of index 1 begin at the start."""

    def copy_to_host(self, handle: int, offset: int, target: memoryview) -> None:
        super().copy_to_host(handle, 0 if self.where.get(handle) else offset, target)


@fault
class TheSecondReleasesTheFirst(Counted):
    """release() on index 1 takes a piece of index 0 of the same size away, if there is one."""

    def release(self, handle: int, nbytes: int) -> None:
        if self.where.get(handle):
            for other, index in list(self.where.items()):
                if not index and len(self._blocks[other]) == nbytes:
                    self._blocks[other], self._blocks[handle] = (
                        self._blocks[handle], self._blocks[other])  # fmt: skip
                    break
        super().release(handle, nbytes)


@fault
class TheSecondCopiesBackwards(Counted):
    """copy_within on index 1 copies the target to the source."""

    def copy_within(self, handle, offset, source, source_offset, nbytes):  # type: ignore
        if self.where.get(handle) and self.where.get(source):
            handle, offset, source, source_offset = source, source_offset, handle, offset
        super().copy_within(handle, offset, source, source_offset, nbytes)


@fault
class CopiesAcrossLoseOffsets(Counted):
    """copy_within from index 0 to 1 writes at the start."""

    def copy_within(self, handle, offset, source, source_offset, nbytes):  # type: ignore
        across = self.where.get(handle) == 1 and self.where.get(source) == 0
        super().copy_within(handle, 0 if across else offset, source, source_offset, nbytes)


@fault
class CopiesAcrossStopAtAPage(Counted):
    """copy_within between indices stops at 65,536 bytes."""

    def copy_within(self, handle, offset, source, source_offset, nbytes):  # type: ignore
        across = self.where.get(handle) != self.where.get(source)
        part = min(nbytes, 65536) if across else nbytes
        super().copy_within(handle, offset, source, source_offset, part)


@fault
class OneIndexRunsOut(Counted):
    """When index 1 has no memory, index 0 has none either."""

    empty = False

    def allocate(self, nbytes: int, index: int) -> int:
        if self.empty and not index:
            raise MemoryError("loopback")
        try:
            return super().allocate(nbytes, index)
        except MemoryError:
            self.empty = self.empty or index == 1
            raise


@fault
class TheCountChanges(Loopback):
    """device_count() is less when memory is in use on index 1."""

    used = False

    def device_count(self) -> int:
        return 1 if self.used else 2

    def allocate(self, nbytes: int, index: int) -> int:
        self.used = self.used or index == 1
        return super().allocate(nbytes, index)


@fault
class ThreadsSwapIndices(Counted):
    """Two threads that allocate at once may get the memory of each other's index."""

    asked: Any = None

    def allocate(self, nbytes: int, index: int) -> int:
        self.asked = index
        time.sleep(1e-4)
        return super().allocate(nbytes, self.asked)
