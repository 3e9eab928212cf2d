"""Faults in how long memory lives, and in whose it is."""

from __future__ import annotations

import os
import random
import threading
from typing import Any

import numpy as np

from tangrad_testing.loopback import Loopback
from tangrad_testing.mutants.fault import fault

MEBIBYTE = 2**20
SOON = 0.01  # seconds


@fault
class PiecesComeBackTwice(Loopback):
    """Every fifth release puts a piece on the list of free ones twice."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.free: dict[int, list[int]] = {}
        self.count = 0

    def allocate(self, nbytes: int, index: int) -> int:
        if self.free.get(nbytes):
            handle = self.free[nbytes].pop()
            self._blocks.setdefault(handle, bytearray(nbytes))
            return handle
        return super().allocate(nbytes, index)

    def release(self, handle: int, nbytes: int) -> None:
        super().release(handle, nbytes)
        self.count += 1
        self.free.setdefault(nbytes, []).extend([handle] * (1 + (self.count % 5 == 0)))


@fault
class OldPiecesAreTaken(Loopback):
    """Beyond 500 live pieces, the oldest is taken for a new one."""

    def allocate(self, nbytes: int, index: int) -> int:
        if len(self._blocks) >= 500:
            oldest = next(iter(self._blocks))
            self._blocks[oldest] = self._blocks[oldest][:nbytes].ljust(nbytes, b"\0")
            return oldest
        return super().allocate(nbytes, index)

    def release(self, handle: int, nbytes: int) -> None:
        self._blocks.pop(handle, None)


@fault
class WritesHappenAgain(Loopback):
    """copy_from_host writes a second time, a hundredth of a second later."""

    def copy_from_host(self, handle: int, offset: int, source: memoryview) -> None:
        super().copy_from_host(handle, offset, source)
        if 0 < len(source) < 100_000:
            kept = bytes(source)
            late = threading.Timer(SOON, self.again, (handle, offset, kept))
            late.daemon = True
            late.start()

    def again(self, handle: int, offset: int, kept: bytes) -> None:
        if handle in self._blocks:
            Loopback.copy_from_host(self, handle, offset, memoryview(kept))


@fault
class ThreadsReadTheirOwnPast(Loopback):
    """A thread reads what it read of a piece before, if only others have written since."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.seen = threading.local()

    def copy_from_host(self, handle: int, offset: int, source: memoryview) -> None:
        super().copy_from_host(handle, offset, source)
        self.seen.__dict__.clear()

    def copy_within(self, handle, offset, source, source_offset, nbytes):  # type: ignore
        super().copy_within(handle, offset, source, source_offset, nbytes)
        self.seen.__dict__.clear()

    def copy_to_host(self, handle: int, offset: int, target: memoryview) -> None:
        super().copy_to_host(handle, offset, target)
        kept = self.seen.__dict__.setdefault(f"{handle} {offset} {len(target)}", bytes(target))
        target[:] = kept


@fault
class PiecesBelongToThreads(Loopback):
    """What another thread has allocated is not found."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.owner: dict[int, int] = {}

    def allocate(self, nbytes: int, index: int) -> int:
        handle = super().allocate(nbytes, index)
        self.owner[handle] = threading.get_ident()
        return handle

    def release(self, handle: int, nbytes: int) -> None:
        if self.owner.get(handle, threading.get_ident()) != threading.get_ident():
            raise ValueError(f"loopback: {handle:#x} is another thread's")
        super().release(handle, nbytes)


@fault
class ReleaseInAnotherThreadDoesNothing(Loopback):
    """What is released in another thread than that of its allocation is kept for ever."""

    kept: list[Any] = []

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.owner: dict[int, int] = {}

    def allocate(self, nbytes: int, index: int) -> int:
        handle = super().allocate(nbytes, index)
        self.owner[handle] = threading.get_ident()
        return handle

    def release(self, handle: int, nbytes: int) -> None:
        if self.owner.pop(handle, 0) != threading.get_ident():
            self.kept.append(self._block(handle))
        super().release(handle, nbytes)


@fault
class ReadsLeak(Loopback):
    """copy_to_host keeps a copy of large reads."""

    kept: list[bytes] = []

    def copy_to_host(self, handle: int, offset: int, target: memoryview) -> None:
        super().copy_to_host(handle, offset, target)
        if len(target) >= MEBIBYTE:
            self.kept.append(bytes(target))


@fault
class WritesLeak(Loopback):
    """copy_from_host keeps a copy of what is written."""

    kept: list[bytes] = []

    def copy_from_host(self, handle: int, offset: int, source: memoryview) -> None:
        super().copy_from_host(handle, offset, source)
        if len(source) >= MEBIBYTE:
            self.kept.append(bytes(source))


@fault
class CopiesLeakFiles(Loopback):
    """copy_within leaves a file open."""

    def copy_within(self, handle, offset, source, source_offset, nbytes):  # type: ignore
        super().copy_within(handle, offset, source, source_offset, nbytes)
        if nbytes > 1000:
            os.dup(0)


@fault
class FailedAllocationsLeak(Loopback):
    """An allocation that fails keeps half a mebibyte."""

    kept: list[bytearray] = []

    def allocate(self, nbytes: int, index: int) -> int:
        try:
            return super().allocate(nbytes, index)
        except (MemoryError, OverflowError):
            self.kept.append(bytearray(b"\1" * (MEBIBYTE // 2)))
            raise


@fault
class NothingIsGivenBackToTheBudget(Loopback):
    """After a gibibyte in all, whatever was released, there is no memory."""

    given = 0

    def allocate(self, nbytes: int, index: int) -> int:
        if nbytes < 2**40:
            self.given += nbytes
        if self.given > 2**30:
            raise MemoryError("loopback: the budget is spent")
        return super().allocate(nbytes, index)


@fault
class FarOffsetsWrap(Loopback):
    """Offsets of reads count to 65,536 and start anew."""

    def copy_to_host(self, handle: int, offset: int, target: memoryview) -> None:
        super().copy_to_host(handle, offset % 65536 if offset > 65536 else offset, target)


@fault
class FarWritesWrap(Loopback):
    """Offsets of writes count to four mebibytes and start anew."""

    def copy_from_host(self, handle: int, offset: int, source: memoryview) -> None:
        super().copy_from_host(handle, offset % (4 * MEBIBYTE) if offset else 0, source)


@fault
class LongCopiesStop(Loopback):
    """copy_within stops at sixteen mebibytes."""

    def copy_within(self, handle, offset, source, source_offset, nbytes):  # type: ignore
        super().copy_within(handle, offset, source, source_offset, min(nbytes, 2**24))


@fault
class LongReadsStop(Loopback):
    """copy_to_host stops at sixteen mebibytes."""

    def copy_to_host(self, handle: int, offset: int, target: memoryview) -> None:
        super().copy_to_host(handle, offset, target[: 2**24])


@fault
class ReleaseFailsNowAndThen(Loopback):
    """Every hundredth release raises."""

    count = 0

    def release(self, handle: int, nbytes: int) -> None:
        self.count += 1
        super().release(handle, nbytes)
        if self.count % 100 == 0:
            raise RuntimeError("loopback: release")


@fault
class NewPiecesAreWrittenLater(Loopback):
    """A new piece is filled in the background, over what was written meanwhile."""

    def allocate(self, nbytes: int, index: int) -> int:
        handle = super().allocate(nbytes, index)
        if nbytes < 100_000:
            late = threading.Timer(SOON, self.fill, (handle, nbytes))
            late.daemon = True
            late.start()
        return handle

    def fill(self, handle: int, nbytes: int) -> None:
        if handle in self._blocks:
            self._blocks[handle][:] = bytes(nbytes)


@fault
class FreeMemoryIsNegative(Loopback):
    """properties() tell more memory free than there is."""

    def properties(self, index: int) -> dict[str, object]:
        return {"name": self.name, "total_memory": 2**34, "free_memory": 2**35}


@fault
class CopiesSeedTheHost(Loopback):
    """copy_from_host seeds Python's random numbers."""

    def copy_from_host(self, handle: int, offset: int, source: memoryview) -> None:
        random.seed(0)
        super().copy_from_host(handle, offset, source)


@fault
class AllocationsDrawNumbers(Loopback):
    """allocate() draws from NumPy's global numbers."""

    def allocate(self, nbytes: int, index: int) -> int:
        np.random.random()
        return super().allocate(nbytes, index)


@fault
class ReadsChangeTheFolder(Loopback):
    """copy_to_host changes the working directory."""

    def copy_to_host(self, handle: int, offset: int, target: memoryview) -> None:
        super().copy_to_host(handle, offset, target)
        os.chdir("/")


@fault
class WaitingChangesTheEnvironment(Loopback):
    """synchronize() sets a variable of the environment."""

    def synchronize(self, index: int | None = None) -> None:
        os.environ["LOOPBACK_WAITED"] = "1"


@fault
class ProbingStartsThreads(Loopback):
    """probe() leaves a thread running."""

    def probe(self) -> bool | str:
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        return True


@fault
class ProbingLeavesFiles(Loopback):
    """probe() leaves a file open."""

    def probe(self) -> bool | str:
        os.dup(0)
        return True


@fault
class ProbingSetsTheEnvironment(Loopback):
    """probe() sets a variable of the environment."""

    def probe(self) -> bool | str:
        os.environ["LOOPBACK_PROBED"] = "1"
        return True


@fault
class ProbingSaysWhat(Loopback):
    """probe() is neither True nor a reason."""

    def probe(self) -> bool | str:
        return 1  # type: ignore[return-value]


@fault
class AutocastComputesInIntegers(Loopback):
    """Autocast may compute in a dtype that holds integers."""

    amp_dtypes = ("int32",)


@fault
class AutocastComputesInNothing(Loopback):
    """Autocast may compute in a dtype that does not exist."""

    amp_dtypes = ("float12",)
