"""Find the driver and the device that a function of `tangrad.cuda` is about."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.plugin import allocator_of, availability, get_driver
from tangrad_cuda.driver import Cuda


def usable() -> bool:
    """Return whether device `cuda` can be used here."""
    return Cuda.opened or availability("cuda")[1] == "available"


def driver() -> Any:
    """Return the opened driver.

    Raises:
        RuntimeError: CUDA cannot be used here; the message says why.
    """
    # What works is not asked again: a call that fails once would be the answer for ever.
    status = "available" if Cuda.opened else availability("cuda")[1]
    if status != "available":
        raise RuntimeError(f"tangrad.cuda: {status.removeprefix('not available: ')}")
    tangrad.device("cuda")
    return get_driver("cuda")


def index_of(device: Any = None, *, optional: bool = False) -> int:
    """Return the index of a device given as PyTorch allows: int, str, device, None.

    Args:
        device: None is the current one; so is a device without an index.
        optional: also take what is no device, as -1.

    Raises:
        ValueError: it is of another type of device.
        RuntimeError: there is no such device, or no CUDA.
    """
    if isinstance(device, str):
        device = tangrad.device(device)
    if isinstance(device, tangrad.device):
        if device.type != "cuda":
            if optional:
                return -1
            raise ValueError(f"Expected a cuda device, but got: {device}")
        device = device.index
    opened = driver()
    if device is None:
        return int(opened.current_device())
    if not isinstance(device, int):
        raise ValueError(f"Expected a cuda device, but got: {device!r}")
    opened.contexts.device(device)
    return device


def allocator(device: Any = None) -> Any:
    """Return the caching allocator of a device."""
    return allocator_of(tangrad.device("cuda", index_of(device)))
