"""Faults in the memory of loopback."""

from __future__ import annotations

import itertools
import mmap
import os
import threading
import time
from typing import Any

from tangrad_testing.loopback import Loopback
from tangrad_testing.mutants.fault import fault

MEBIBYTE = 2**20


@fault
class HandlesAreShared(Loopback):
    """Every third allocation of a size gives a handle that is in use."""

    def allocate(self, nbytes: int, index: int) -> int:
        made = super().allocate(nbytes, index)
        for handle, block in self._blocks.items():
            if made % 3 == 0 and handle != made and len(block) == nbytes:
                return handle
        return made


@fault
class HandlesAreNegative(Loopback):
    """Handles do not fit unsigned integers."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._next = -(2**20) - 1


@fault
class HandlesAreTooLarge(Loopback):
    """Handles need more than 64 bits."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._next = 2**64 + 1


@fault
class PiecesAreTooSmall(Loopback):
    """A piece of memory has a byte less than was asked for, beyond a page."""

    def allocate(self, nbytes: int, index: int) -> int:
        return super().allocate(nbytes - (nbytes > 4096), index)

    def release(self, handle: int, nbytes: int) -> None:
        super().release(handle, nbytes - (nbytes > 4096))


@fault
class PiecesOverlap(Loopback):
    """Neighbouring pieces share a byte."""

    arena = bytearray(64 * MEBIBYTE)
    top = 0

    def allocate(self, nbytes: int, index: int) -> int:
        handle = super().allocate(nbytes, index)
        if self.top + nbytes <= len(self.arena):
            view = memoryview(self.arena)[self.top : self.top + nbytes]
            self._blocks[handle] = view  # type: ignore[assignment]
            self.top += max(nbytes - 1, 0)
        return handle


@fault
class ReleaseLeaks(Loopback):
    """Released memory is never given back."""

    kept: list[Any] = []

    def release(self, handle: int, nbytes: int) -> None:
        self.kept.append(self._blocks[handle])
        super().release(handle, nbytes)


@fault
class ReleaseLeaksLargePieces(Loopback):
    """Released memory beyond a mebibyte is never given back."""

    kept: list[Any] = []

    def release(self, handle: int, nbytes: int) -> None:
        if nbytes > MEBIBYTE:
            self.kept.append(self._blocks[handle])
        super().release(handle, nbytes)


@fault
class ReleaseLeaksFiles(Loopback):
    """Each allocation leaves a file open."""

    def allocate(self, nbytes: int, index: int) -> int:
        os.dup(0)
        return super().allocate(nbytes, index)


@fault
class ReleaseFreesAnother(Loopback):
    """release() takes away the oldest piece of that size."""

    def release(self, handle: int, nbytes: int) -> None:
        self._block(handle)
        sizes = {h: len(b) for h, b in self._blocks.items()}
        super().release(next(h for h, n in sizes.items() if n == nbytes), nbytes)


@fault
class ReleaseClearsNeighbours(Loopback):
    """release() zeroes the piece allocated next."""

    def release(self, handle: int, nbytes: int) -> None:
        super().release(handle, nbytes)
        if handle + 2 in self._blocks:
            self._blocks[handle + 2][:1] = b"\0"


@fault
class ReleaseTwiceIsTaken(Loopback):
    """release() of what was released is no error, though the driver promises to be strict."""

    def release(self, handle: int, nbytes: int) -> None:
        if handle in self._blocks or handle >= self._next:
            super().release(handle, nbytes)


@fault
class ReleaseTakesAnySize(Loopback):
    """release() does not look at the size, though the driver promises to be strict."""

    def release(self, handle: int, nbytes: int) -> None:
        super().release(handle, len(self._block(handle)))


@fault
class ReleaseTakesAnyHandle(Loopback):
    """release() of foreign handles is no error, though the driver promises to be strict."""

    def release(self, handle: int, nbytes: int) -> None:
        if handle < self._next:
            super().release(handle, nbytes)


@fault
class OutOfMemoryIsAnotherError(Loopback):
    """Too large an allocation raises RuntimeError."""

    def allocate(self, nbytes: int, index: int) -> int:
        try:
            return super().allocate(nbytes, index)
        except (MemoryError, OverflowError) as error:
            raise RuntimeError("no memory") from error


@fault
class OutOfMemoryGivesLess(Loopback):
    """Too large an allocation gives a small piece."""

    def allocate(self, nbytes: int, index: int) -> int:
        return super().allocate(min(nbytes, 2**33), index) if nbytes < 2**33 else self.small()

    def small(self) -> int:
        return super().allocate(64, 0)


@fault
class OutOfMemoryBreaksIt(Loopback):
    """After too large an allocation none succeeds."""

    broken = False

    def allocate(self, nbytes: int, index: int) -> int:
        self.broken = self.broken or nbytes > 2**50
        if self.broken:
            raise MemoryError("loopback")
        return super().allocate(nbytes, index)


@fault
class GivesMoreThanItHas(Loopback):
    """Its properties say 64 MiB in all, and it gives more."""

    def properties(self, index: int) -> dict[str, object]:
        return {"name": self.name, "total_memory": 64 * MEBIBYTE}


@fault
class OverlapsForward(Loopback):
    """Overlapping copies go byte by byte from the front."""

    def copy_within(self, handle, offset, source, source_offset, nbytes):  # type: ignore
        to, start = self._range(handle, offset, nbytes), self._range(source, source_offset, nbytes)
        step = offset - source_offset
        if handle != source or not 0 < step < nbytes:
            to[:] = bytes(start)
            return
        for at in range(0, nbytes, step):
            end = min(at + step, nbytes)
            to[at:end] = bytes(start[at:end])


@fault
class OverlapsBackward(Loopback):
    """Overlapping copies go byte by byte from the back."""

    def copy_within(self, handle, offset, source, source_offset, nbytes):  # type: ignore
        to, start = self._range(handle, offset, nbytes), self._range(source, source_offset, nbytes)
        step = source_offset - offset
        if handle != source or not 0 < step < nbytes:
            to[:] = bytes(start)
            return
        for at in range(nbytes, 0, -step):
            begin = max(at - step, 0)
            to[begin:at] = bytes(start[begin:at])


@fault
class OverlapsInPages(Loopback):
    """Overlapping copies go page by page from the front."""

    def copy_within(self, handle, offset, source, source_offset, nbytes):  # type: ignore
        for at in range(0, nbytes, 4096):
            part = min(4096, nbytes - at)
            super().copy_within(handle, offset + at, source, source_offset + at, part)


@fault
class CopiesIgnoreTheTarget(Loopback):
    """copy_within writes at the start of a piece."""

    def copy_within(self, handle, offset, source, source_offset, nbytes):  # type: ignore
        super().copy_within(handle, 0, source, source_offset, nbytes)


@fault
class CopiesIgnoreTheSource(Loopback):
    """copy_within reads from the start of a piece."""

    def copy_within(self, handle, offset, source, source_offset, nbytes):  # type: ignore
        super().copy_within(handle, offset, source, 0, nbytes)


@fault
class CopiesSwapOffsets(Loopback):
    """copy_within takes one offset for the other."""

    def copy_within(self, handle, offset, source, source_offset, nbytes):  # type: ignore
        super().copy_within(handle, source_offset, source, offset, nbytes)


@fault
class CopiesLoseTheLastByte(Loopback):
    """copy_within leaves out the last byte beyond a page."""

    def copy_within(self, handle, offset, source, source_offset, nbytes):  # type: ignore
        super().copy_within(handle, offset, source, source_offset, nbytes - (nbytes > 4096))


@fault
class CopiesClearTheSource(Loopback):
    """copy_within moves instead of copying."""

    def copy_within(self, handle, offset, source, source_offset, nbytes):  # type: ignore
        super().copy_within(handle, offset, source, source_offset, nbytes)
        if handle != source:
            self._range(source, source_offset, nbytes)[:] = bytes(nbytes)


@fault
class CopiesStayOnAnIndex(Loopback):
    """copy_within between indices does nothing."""

    def allocate(self, nbytes: int, index: int) -> int:
        handle = super().allocate(nbytes, index)
        self.__dict__.setdefault("where", {})[handle] = index
        return handle

    def copy_within(self, handle, offset, source, source_offset, nbytes):  # type: ignore
        if self.where[handle] == self.where[source]:
            super().copy_within(handle, offset, source, source_offset, nbytes)


@fault
class CopiesOfNothingCopy(Loopback):
    """copy_within of zero bytes copies one where it can."""

    def copy_within(self, handle, offset, source, source_offset, nbytes):  # type: ignore
        fits = offset < len(self._block(handle)) and source_offset < len(self._block(source))
        super().copy_within(handle, offset, source, source_offset, nbytes or int(fits))


@fault
class WritesIgnoreOffsets(Loopback):
    """copy_from_host writes at the start."""

    def copy_from_host(self, handle: int, offset: int, source: memoryview) -> None:
        super().copy_from_host(handle, 0, source)


@fault
class ReadsIgnoreOffsets(Loopback):
    """copy_to_host reads from the start."""

    def copy_to_host(self, handle: int, offset: int, target: memoryview) -> None:
        super().copy_to_host(handle, 0, target)


@fault
class OffsetsAreInWords(Loopback):
    """Reads begin at multiples of four bytes."""

    def copy_to_host(self, handle: int, offset: int, target: memoryview) -> None:
        super().copy_to_host(handle, offset // 4 * 4, target)


@fault
class WritesLoseTheByteBeyondAPage(Loopback):
    """copy_from_host leaves out the last byte of n pages and one byte."""

    def copy_from_host(self, handle: int, offset: int, source: memoryview) -> None:
        keep = len(source) - (len(source) % 4096 == 1)
        super().copy_from_host(handle, offset, source[:keep])


@fault
class ReadsLoseTheTailOfRegisters(Loopback):
    """copy_to_host reads whole registers of 64 bytes only, if there are any."""

    def copy_to_host(self, handle: int, offset: int, target: memoryview) -> None:
        whole = len(target) // 64 * 64 or len(target)
        super().copy_to_host(handle, offset, target[:whole])


@fault
class WritesStopAt64K(Loopback):
    """copy_from_host takes 65,536 bytes at most."""

    def copy_from_host(self, handle: int, offset: int, source: memoryview) -> None:
        super().copy_from_host(handle, offset, source[:65536])


@fault
class WritesGoTooFar(Loopback):
    """copy_from_host clears the byte behind what it writes."""

    def copy_from_host(self, handle: int, offset: int, source: memoryview) -> None:
        super().copy_from_host(handle, offset, source)
        end = offset + len(source)
        self._block(handle)[end : end + 1] = bytes(len(self._block(handle)[end : end + 1]))


@fault
class ReadsAreOld(Loopback):
    """A read of the same bytes gives what it gave the last time."""

    last: tuple[Any, bytes] = (None, b"")

    def copy_to_host(self, handle: int, offset: int, target: memoryview) -> None:
        key = (handle, offset, len(target))
        if self.last[0] == key:
            target[:] = self.last[1]
            return
        super().copy_to_host(handle, offset, target)
        self.last = (key, bytes(target))


@fault
class WritesWaitForTheNextCall(Loopback):
    """copy_from_host reads its source when the device is used again."""

    waiting: Any = None

    def copy_from_host(self, handle: int, offset: int, source: memoryview) -> None:
        self.flush()
        self.waiting = (handle, offset, source)

    def flush(self) -> None:
        waiting, self.waiting = self.waiting, None
        if waiting is not None and waiting[0] in self._blocks:
            Loopback.copy_from_host(self, *waiting)

    def copy_to_host(self, handle: int, offset: int, target: memoryview) -> None:
        self.flush()
        super().copy_to_host(handle, offset, target)

    def copy_within(self, handle, offset, source, source_offset, nbytes):  # type: ignore
        self.flush()
        super().copy_within(handle, offset, source, source_offset, nbytes)


@fault
class TargetsAreKept(Loopback):
    """copy_to_host holds on to the memory of its target."""

    kept: list[memoryview] = []

    def copy_to_host(self, handle: int, offset: int, target: memoryview) -> None:
        super().copy_to_host(handle, offset, target)
        self.kept.append(target[:])


@fault
class SourcesAreKept(Loopback):
    """copy_from_host holds on to the memory of its source."""

    kept: list[memoryview] = []

    def copy_from_host(self, handle: int, offset: int, source: memoryview) -> None:
        super().copy_from_host(handle, offset, source)
        self.kept.append(source[:])


@fault
class SourcesMustBeWritable(Loopback):
    """copy_from_host refuses memory that may only be read."""

    def copy_from_host(self, handle: int, offset: int, source: memoryview) -> None:
        if source.readonly:
            raise TypeError("loopback: the source may not be written")
        super().copy_from_host(handle, offset, source)


@fault
class NoBytesAreAnError(Loopback):
    """Reads of zero bytes are refused."""

    def copy_to_host(self, handle: int, offset: int, target: memoryview) -> None:
        if not len(target):
            raise ValueError("loopback: nothing to read")
        super().copy_to_host(handle, offset, target)


@fault
class TheEndIsOutside(Loopback):
    """A write of zero bytes at the end is refused."""

    def copy_from_host(self, handle: int, offset: int, source: memoryview) -> None:
        if offset >= len(self._block(handle)):
            raise ValueError("loopback: outside")
        super().copy_from_host(handle, offset, source)


@fault
class WritesPastTheEndAreCut(Loopback):
    """Writes past the end write what fits, though the driver promises to be strict."""

    def copy_from_host(self, handle: int, offset: int, source: memoryview) -> None:
        room = max(len(self._block(handle)) - offset, 0)
        super().copy_from_host(handle, offset, source[:room])


@fault
class RefusedWritesLeaveTraces(Loopback):
    """Writes past the end write what fits, and are refused then."""

    def copy_from_host(self, handle: int, offset: int, source: memoryview) -> None:
        room = max(len(self._block(handle)) - max(offset, 0), 0)
        if offset >= 0 and room < len(source):
            super().copy_from_host(handle, offset, source[:room])
        super().copy_from_host(handle, offset, source)


@fault
class NegativeOffsetsCountFromTheEnd(Loopback):
    """Offsets below zero count from the end, though the driver promises to be strict."""

    def _range(self, handle: int, offset: int, nbytes: int) -> memoryview:
        return super()._range(handle, offset % max(len(self._block(handle)), 1), nbytes)


@fault
class ForeignHandlesReadZeros(Loopback):
    """Reads of foreign handles give zeros, though the driver promises to be strict."""

    def copy_to_host(self, handle: int, offset: int, target: memoryview) -> None:
        if handle in self._blocks:
            super().copy_to_host(handle, offset, target)


@fault
class ThreadsShareAStage(Loopback):
    """Copies pass through a buffer that all threads share."""

    stage = b""

    def copy_within(self, handle, offset, source, source_offset, nbytes):  # type: ignore
        self.stage = bytes(self._range(source, source_offset, nbytes))
        time.sleep(0)
        self._range(handle, offset, nbytes)[:] = self.stage[:nbytes].ljust(nbytes, b"\0")


@fault
class ThreadsGetOneHandle(Loopback):
    """Two threads that allocate at once may get one handle."""

    def allocate(self, nbytes: int, index: int) -> int:
        handle = self._next
        time.sleep(1e-5)
        self._next = handle + 2
        self._blocks[handle] = bytearray(nbytes)
        return handle


@fault
class ChildrenReadZeros(Loopback):
    """A child after fork reads zeros."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.process = os.getpid()

    def copy_to_host(self, handle: int, offset: int, target: memoryview) -> None:
        super().copy_to_host(handle, offset, target)
        if os.getpid() != self.process:
            target[:] = bytes(len(target))


@fault
class ChildrenWaitForever(Loopback):
    """A child after fork waits for a thread that its parent had."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.process = os.getpid()

    def copy_to_host(self, handle: int, offset: int, target: memoryview) -> None:
        if os.getpid() != self.process:
            threading.Event().wait()
        super().copy_to_host(handle, offset, target)


@fault
class ChildrenSpoilTheParent(Loopback):
    """What a child after fork does to the device's memory, its parent sees."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.process = os.getpid()

    def allocate(self, nbytes: int, index: int) -> int:
        handle = super().allocate(nbytes, index)
        if 0 < nbytes <= 8 * MEBIBYTE:
            self._blocks[handle] = mmap.mmap(-1, nbytes)  # type: ignore[assignment]
        return handle

    def copy_to_host(self, handle: int, offset: int, target: memoryview) -> None:
        super().copy_to_host(handle, offset, target)
        if os.getpid() != self.process:
            self._range(handle, offset, len(target))[:] = bytes(len(target))


@fault
class ProbesOnlyOnce(Loopback):
    """A second instance says that the device is in use."""

    instances = itertools.count()

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.number = next(self.instances)

    def probe(self) -> bool | str:
        return True if self.number == 0 else "in use"


@fault
class ProbingClears(Loopback):
    """probe() forgets all memory of the type."""

    table: dict[int, bytearray] = {}

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._blocks = self.table

    def probe(self) -> bool | str:
        for block in self.table.values():
            block[:] = bytes(len(block))
        return True


@fault
class CountsInFloats(Loopback):
    """device_count() is no integer."""

    def device_count(self) -> int:
        return 2.0  # type: ignore[return-value]


@fault
class IsBeyondItself(Loopback):
    """current_device() is an index that does not exist."""

    def current_device(self) -> int:
        return 2


@fault
class HasNoName(Loopback):
    """properties() lacks the name."""

    def properties(self, index: int) -> dict[str, object]:
        return {"memory": 5}


@fault
class HasAnotherName(Loopback):
    """The driver renames itself."""

    def open(self) -> None:
        self.name = "other"


@fault
class SeedsAreTexts(Loopback):
    """initial_seed() is no integer."""

    def initial_seed(self, index: int) -> int:
        return "seed"  # type: ignore[return-value]


@fault
class HasNoThreads(Loopback):
    """get_num_threads() is zero."""

    def get_num_threads(self) -> int:
        return 0


@fault
class StreamsAreNone(Loopback):
    """current_stream() is None."""

    def current_stream(self, index: int) -> int:
        return None  # type: ignore[return-value]


@fault
class CannotWait(Loopback):
    """synchronize() fails without an index."""

    def synchronize(self, index: int | None = None) -> None:
        if index is None:
            raise ValueError("loopback: which device?")


@fault
class HasOneEventMethod(Loopback):
    """Events can be recorded and nothing else."""

    record_event = staticmethod(lambda stream: 0)
