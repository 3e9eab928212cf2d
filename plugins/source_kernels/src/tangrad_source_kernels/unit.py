"""Kernels that are compiled together, once for each of a driver's devices."""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tangrad
from tangrad.plugin import location
from tangrad_source_kernels.dialect import Kernel

if TYPE_CHECKING:
    from tangrad_source_kernels.compiler import Compiler

Place = tuple[int, int]


class Unit:
    """Compile some kernels on first use, and launch them.

    Args:
        driver: whose kernels they are.
        kernels: with different names.
        text: helper functions and macros before them, in the driver's dialect.

    Attributes:
        label: the op that the kernels are of, for messages; they may be of several.
    """

    label = ""

    def __init__(self, driver: Compiler, kernels: Sequence[Kernel], text: str = "") -> None:
        self._driver, self._text = driver, text
        self._kernels = {kernel.name: kernel for kernel in kernels}
        self._loaded: dict[int, dict[str, Any]] = {}
        self._lock = threading.Lock()

    @property
    def source(self) -> str:
        """The whole source, with the helpers that it calls."""
        from tangrad.plugin.render import prelude

        dialect = self._driver.dialect
        body = self._text + "".join(dialect.kernel(k) for k in self._kernels.values())
        return prelude(dialect, body) + dialect.macros() + body

    def launch(
        self,
        name: str,
        blocks: int,
        buffers: Sequence[Any],
        numbers: Sequence[Any] = (),
        index: int = 0,
    ) -> None:
        """Give a kernel's work to the current stream of a device.

        Args:
            name: of the kernel.
            blocks: how many blocks, at least one.
            buffers: for each of the kernel's a tensor, a (handle, offset), or None.
            numbers: its numbers in order, arrays flattened.
            index: which of the driver's devices.
        """
        functions = self._loaded.get(index)
        if functions is None:
            functions = self._load(index)
        places = [_place(buffer) for buffer in buffers]
        packed = self._kernels[name].pack(*numbers)
        if self._driver.dialect.addresses:
            handles = [handle + offset for handle, offset in places]
        else:
            handles = [handle for handle, _ in places]
            packed += struct.pack(f"={len(places)}q", *[offset for _, offset in places])
        self._driver.launch(functions[name], blocks, handles, packed, index)

    def _load(self, index: int) -> dict[str, Any]:
        with self._lock:
            if index not in self._loaded:
                module = self._driver.module_of(self.source, index)
                self._loaded[index] = {
                    name: self._driver.labelled(self._driver.function(module, name), self.label)
                    for name in self._kernels
                }
            return self._loaded[index]


def _place(buffer: Any) -> Place:
    if isinstance(buffer, tangrad.Tensor):
        return location(buffer)
    return (0, 0) if buffer is None else buffer
