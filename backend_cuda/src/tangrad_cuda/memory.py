"""Get memory by pycuda: the devices' for the core's caching allocator, page-locked for the host."""

from __future__ import annotations

import bisect
import ctypes
import threading
from typing import Any

import tangrad
from tangrad.plugin import CachingAllocator, PinnedMemory
from tangrad_cuda import errors
from tangrad_cuda.contexts import Contexts, keep_forever

# What `Contexts.enter` raises of the driver.
_OF_THE_CONTEXT = (tangrad.AcceleratorError, tangrad.OutOfMemoryError)


def _for_allocator(error: Exception) -> Exception:
    """Return the error by which a caching allocator learns that it has to empty its cache."""
    ours = isinstance(error, _OF_THE_CONTEXT)
    found = error if ours else errors.of_pycuda(error)
    return MemoryError(str(found)) if isinstance(found, tangrad.OutOfMemoryError) else found


class DeviceMemory:
    """Pieces of the devices' memory; a handle is the address of the first byte."""

    def __init__(self, driver: Any, contexts: Contexts) -> None:
        self._driver, self._contexts = driver, contexts
        self._pieces: dict[int, tuple[int, Any]] = {}
        # {address of what others lend: the device, once for each loan}
        self._borrowed: dict[int, list[int]] = {}

    def allocate(self, nbytes: int, index: int) -> int:
        """Return a new piece.

        Raises:
            MemoryError: there is not enough.
        """
        try:
            self._contexts.enter(index)
            piece = self._driver.mem_alloc(nbytes)
        except (self._driver.Error, *_OF_THE_CONTEXT) as error:
            raise _for_allocator(error) from None
        self._pieces[int(piece)] = index, keep_forever(piece)
        return int(piece)

    def release(self, handle: int) -> None:
        """Give a piece back; in a forked child, where it is not ours, do nothing."""
        if self._contexts.gone:
            return
        index, piece = self._pieces.pop(handle)
        self._contexts.enter(index)
        try:
            piece.free()
        except self._driver.Error as error:
            raise errors.of_pycuda(error) from None
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(piece))

    def index_of(self, handle: int) -> int:
        """Return the device of a piece."""
        piece = self._pieces.get(handle)
        return self._borrowed[handle][0] if piece is None else piece[0]

    def borrow(self, address: int, index: int) -> None:
        """Note that memory of another library is used on a device."""
        self._borrowed.setdefault(address, []).append(index)

    def give_back(self, address: int) -> None:
        """End a loan."""
        loans = self._borrowed[address]
        loans.pop()
        if not loans:
            del self._borrowed[address]

    def info(self, index: int) -> tuple[int, int]:
        """Return how many bytes are free on a device, for all processes, and how many it has."""
        self._contexts.enter(index)
        try:
            free, total = self._driver.mem_get_info()
        except self._driver.Error as error:
            raise errors.of_pycuda(error) from None
        return int(free), int(total)


class _HostPieces:
    """The raw driver of page-locked memory, as the caching allocator wants it."""

    def __init__(self, driver: Any, contexts: Contexts) -> None:
        self._driver, self._contexts = driver, contexts
        self._pieces: dict[int, Any] = {}
        self.starts: list[int] = []
        self.ends: dict[int, int] = {}

    def allocate(self, nbytes: int) -> int:
        import numpy as np

        portable = self._driver.host_alloc_flags.PORTABLE
        try:
            self._contexts.enter(self._contexts.current)
            array = self._driver.pagelocked_empty(nbytes, np.uint8, mem_flags=portable)
        except (self._driver.Error, *_OF_THE_CONTEXT) as error:
            raise _for_allocator(error) from None
        address = int(array.ctypes.data)
        keep_forever(array.base)
        self._pieces[address] = array
        bisect.insort(self.starts, address)
        self.ends[address] = address + nbytes
        return address

    def release(self, handle: int, nbytes: int) -> None:
        if self._contexts.gone:
            return
        array = self._pieces.pop(handle)
        self.starts.remove(handle)
        del self.ends[handle]
        self._contexts.enter(self._contexts.current)
        with errors.translated():
            array.base.free()
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(array.base))


class CudaPinnedMemory(PinnedMemory):
    """Page-locked memory of the host, kept for the next request as device memory is."""

    def __init__(self, driver: Any, contexts: Contexts) -> None:
        self._pieces = _HostPieces(driver, contexts)
        self.allocator = CachingAllocator(self._pieces)
        self._lock = threading.Lock()

    def allocate(self, nbytes: int) -> Any:
        """Return page-locked memory.

        Raises:
            RuntimeError: the system refuses to lock so much.
        """
        with self._lock:
            try:
                block = self.allocator.allocate(max(nbytes, 1))
            except tangrad.OutOfMemoryError as error:
                raise RuntimeError(
                    f"pin_memory: {nbytes} bytes of the host's memory cannot be page-locked "
                    f"({str(error).splitlines()[0]}); use less of it (pin_memory=False), or allow "
                    "more: ulimit -l"
                ) from None
        kind = type("PinnedBytes", (ctypes.c_ubyte * max(nbytes, 1),), {})
        memory: Any = kind.from_address(block.handle + block.offset)
        memory.block = block
        return memory

    def holds(self, address: int) -> bool:
        """Return whether an address lies in page-locked memory that was allocated here."""
        place = bisect.bisect_right(self._pieces.starts, address)
        if place == 0:
            return False
        start = self._pieces.starts[place - 1]
        return address < self._pieces.ends.get(start, 0)

    def empty_cache(self) -> None:
        """Give memory that no tensor uses back to the system."""
        self.allocator.empty_cache()
