"""Pieces of a device's own memory: what the checks of drivers hold, write and read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from tangrad_testing.levels.check import Device

# Around vector registers, thread blocks and pages.
SIZES = (1, 2, 3, 7, 63, 64, 65, 127, 129, 255, 257, 1023, 1025, 4095, 4096, 4097, 65535, 65537)
MORE_THAN_THERE_IS = 2**62
MEBIBYTE = 2**20


def pattern(nbytes: int, seed: int) -> bytes:
    """Return bytes in which no short run repeats."""
    return np.random.Generator(np.random.Philox(seed)).bytes(nbytes)


@contextmanager
def block(device: Device, nbytes: int, index: int = 0) -> Iterator[int]:
    """Hold a piece of the device's memory."""
    device.require_own_memory()
    handle = device.driver.allocate(nbytes, index)
    try:
        yield handle
    finally:
        device.driver.release(handle, nbytes)


def write(device: Device, handle: int, offset: int, source: bytes) -> None:
    """Copy bytes to the device from a buffer that may not be written."""
    device.driver.copy_from_host(handle, offset, memoryview(source))


def read(device: Device, handle: int, offset: int, nbytes: int) -> bytes:
    """Copy bytes from the device."""
    target = bytearray(nbytes)
    device.driver.copy_to_host(handle, offset, memoryview(target))
    return bytes(target)
