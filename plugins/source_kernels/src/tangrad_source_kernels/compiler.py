"""What compiled kernels ask of their device: the base of the driver that brings them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from tangrad.plugin import DeviceDriver
from tangrad_source_kernels import cache
from tangrad_source_kernels.dialect import KernelDialect


class Compiler(DeviceDriver):
    """Compile, load and launch kernels, and share work out over lanes.

    Attributes:
        dialect: the language, a `KernelDialect`.
        immediate: whether a launch has done its work when it returns.
        reports: what kernels found wrong, a `Reports`.
    """

    dialect: KernelDialect
    immediate: bool = False
    reports: Any

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._modules: dict[tuple[str, int], Any] = {}
        self._units: dict[Any, Any] = {}
        self._compiling = threading.RLock()

    # --- what a subclass gives --------------------------------------------------------------------

    def architecture(self, index: int) -> str:
        """Return what a device's binaries are compiled for, such as "sm_90"."""
        raise self.lacks("architecture")

    def compiler_version(self) -> str:
        """Return what tells this compiler, and the options it is called with, from others."""
        raise self.lacks("compiler_version")

    def compile(self, source: str, architecture: str) -> bytes:
        """Return the binary of a source, in which kernels have the names that they are given.

        Raises:
            RuntimeError: it does not compile; the message has the compiler's words.
        """
        raise self.lacks("compile")

    def load(self, binary: bytes, index: int) -> Any:
        """Return a binary's kernels on a device.

        Raises:
            RuntimeError: it is none of this device's; one from the cache is then made anew.
        """
        raise self.lacks("load")

    def function(self, module: Any, name: str) -> Any:
        """Return what `launch` takes of a kernel in what `load` returned."""
        raise self.lacks("function")

    def labelled(self, function: Any, label: str) -> Any:
        """Return what `function` returned, with the title of the op that it is of, if there is one.

        A device whose faults come to light later keeps it for their messages.
        """
        return function

    def launch(
        self, function: Any, blocks: int, buffers: Sequence[int], numbers: bytes, index: int
    ) -> None:
        """Run a kernel in `blocks` blocks of `dialect.lanes` lanes, in the current stream's order.

        Args:
            function: the kernel.
            blocks: how many blocks, in one dimension.
            buffers: addresses, in the order of the kernel's parameters (handles, where the
                dialect has no addresses); 0 is an absent operand.
            numbers: the bytes of the structure that is the last parameter, empty if there is none.
            index: of the device.
        """
        raise self.lacks("launch")

    # --- what follows -----------------------------------------------------------------------------

    def module_of(self, source: str, index: int) -> Any:
        """Return the loaded module of a source: from this process, from the cache, or compiled."""
        architecture = self.architecture(index)
        key = cache.key_of(source, self.name, architecture, self.compiler_version())
        with self._compiling:
            found = self._modules.get((key, index))
            if found is None:
                found = self._modules[key, index] = self._loaded(key, source, architecture, index)
            return found

    def _loaded(self, key: str, source: str, architecture: str, index: int) -> Any:
        made: list[bytes] = []

        def make() -> bytes:
            made.append(self.compile(source, architecture))
            return made[0]

        binary = cache.cached(key, make)
        try:
            return self.load(binary, index)
        except RuntimeError:
            if made:
                raise
            cache.forget(key)
            return self.load(cache.cached(key, make), index)

    def blocks_for(self, count: int, per_lane: int = 1) -> int:
        """Return how many blocks a loop over `count` elements gets, whose step is all lanes."""
        per_block = self.dialect.lanes * per_lane
        return max(1, min(self.dialect.max_blocks, -(-count // per_block)))

    def group_for(self, length: int, *, side_by_side: bool = False) -> int:
        """Return how many lanes share the work on a row.

        Args:
            length: of each row.
            side_by_side: whether rows, not the elements of one, are neighbours in memory.
        """
        lanes = self.dialect.lanes
        if lanes == 1 or side_by_side or length <= 8:
            return 1
        return min(lanes, 32) if length <= 1024 else lanes

    def unit(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return the `Unit` of a key, made once."""
        found = self._units.get(key)
        if found is None:
            found = self._units.setdefault(key, make())
        return found

    def error_cell(self, index: int) -> tuple[int, int]:
        """Return handle and offset of the cell that kernels report to: 64 bytes, zero at first."""
        return self.reports.cell(index)

    def read_error_cell(self, index: int) -> bytes:
        """Return the 64 bytes of the cell; where the host sees them, without a copy."""
        return self.reports.read(index)

    def raise_reported(self, index: int) -> None:
        """Raise what a kernel reported since the last time, once its work is done."""
        self.reports.check(index)
