"""What kernels find wrong, and how the host learns of it.

A kernel that may find an index out of bounds has the buffer `err` and the number `site`. It writes
(site, index, bound) into the cell and goes on without the element. The host reads the cell where
it waits for the device anyway.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tangrad_source_kernels.compiler import Compiler

CELL_BYTES = 64

REPORT = """
#define TG_REPORT(index, bound) do { if (err[0] == 0) { \\
    err[1] = (tk_int)(index); err[2] = (tk_int)(bound); err[0] = g.site; } } while (0)
"""


class Site(NamedTuple):
    """Something that may be wrong: the error's type and its text over {index} and {bound}."""

    error: type[Exception]
    text: str


class Reports:
    """Number what may be wrong, and raise what kernels say of it."""

    def __init__(self, driver: Compiler) -> None:
        self._driver = driver
        self._sites: list[Site] = []
        self._numbers: dict[Site, int] = {}
        self._cells: dict[int, int] = {}
        self._waiting: set[int] = set()
        self._lock = threading.Lock()

    def site(self, error: type[Exception], text: str) -> int:
        """Return the number, above 0, by which a kernel reports an error."""
        with self._lock:
            site = Site(error, text)
            if site not in self._numbers:
                self._sites.append(site)
                self._numbers[site] = len(self._sites)
            return self._numbers[site]

    def cell(self, index: int) -> tuple[int, int]:
        """Return where a device's cell is."""
        with self._lock:
            if index not in self._cells:
                handle = self._driver.allocate(CELL_BYTES, index)
                self._driver.copy_from_host(handle, 0, memoryview(bytes(CELL_BYTES)))
                self._cells[index] = handle
            return self._cells[index], 0

    @property
    def cells(self) -> Collection[int]:
        """The handles of all devices' cells."""
        return self._cells.values()

    def expect(self, index: int) -> None:
        """Say that a kernel was launched that may report."""
        self._waiting.add(index)
        if self._driver.immediate:
            self._driver.raise_reported(index)

    def read(self, index: int) -> bytes:
        """Return a cell's bytes by a copy."""
        content = bytearray(CELL_BYTES)
        self._driver.copy_to_host(self._cells[index], 0, memoryview(content))
        return bytes(content)

    def check(self, index: int) -> None:
        """Raise what was reported, and clear the cell; nothing where no kernel could report."""
        if index not in self._waiting:
            return
        self._waiting.discard(index)
        site, place, bound = struct.unpack_from("=3q", self._driver.read_error_cell(index))
        if site == 0:
            return
        self._driver.copy_from_host(self._cells[index], 0, memoryview(bytes(CELL_BYTES)))
        found = self._sites[site - 1]
        raise found.error(found.text.format(index=place, bound=bound))
