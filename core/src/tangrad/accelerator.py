"""The accelerator of this machine, by names that say no device: `torch.accelerator`.

An accelerator is a device apart from the host, unless its driver says that it is none. The one in
use is meant, else one that is installed and usable; first those with streams, or with names that
programs ask for everywhere.
"""

from __future__ import annotations

from typing import Any

from tangrad import _C
from tangrad.devices.streams import Stream
from tangrad.devices.streams import current_stream as _stream_of
from tangrad.devices.streams import set_stream as set_stream

__all__ = [
    "current_accelerator",
    "current_device_idx",
    "current_device_index",
    "current_stream",
    "device_count",
    "device_index",
    "empty_cache",
    "empty_host_cache",
    "get_device_capability",
    "get_memory_info",
    "is_available",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "set_device_idx",
    "set_device_index",
    "set_stream",
    "synchronize",
]


def _opened() -> str | None:
    """Return the first accelerator in use, of those with streams or page-locked memory if any."""
    from tangrad.devices.registry import accelerates, opened_drivers

    found = [driver for driver in opened_drivers() if accelerates(driver)]
    found.sort(key=lambda driver: driver.streams is None and driver.pinned is None)
    return found[0].name if found else None


def _installed() -> str | None:
    """Return the first accelerator that could be used."""
    from tangrad.devices.registry import is_usable_accelerator
    from tangrad.discovery import discovery
    from tangrad.discovery.neutral import device_flags

    found, usual = discovery.names(discovery.DEVICES), device_flags()
    names = [n for n in usual if n in found] + [n for n in found if n not in usual]
    return next(filter(is_usable_accelerator, names), None)


def _driver(device: Any = None) -> tuple[Any, int]:
    """Return an accelerator's driver and an index.

    Raises:
        RuntimeError: there is no accelerator, or no such device.
    """
    name, index = None, None
    if isinstance(device, int):
        index = device
    elif device is not None:
        place = _C.device(device)
        name, index = place.type, place.index
    if name is None:
        name = _opened() or _installed()
    if name is None:
        raise RuntimeError(
            "Cannot access accelerator device when none is available; python -m tangrad info "
            "tells which devices are installed, and why one cannot be used"
        )
    from tangrad.devices.registry import open_device

    driver = open_device(name)
    found = driver.current_device() if index is None else index
    if not 0 <= found < driver.device_count():
        raise RuntimeError(
            f"device '{name}:{found}' does not exist: there are {driver.device_count()}"
        )
    return driver, found


def _allocator(device: Any) -> Any:
    driver, index = _driver(device)
    return _C.allocator_of(_C.device(driver.name, index))


def is_available() -> bool:
    """Return whether there is an accelerator that can be used."""
    return (_opened() or _installed()) is not None


def device_count() -> int:
    """Return how many accelerators of that type there are."""
    return int(_driver()[0].device_count()) if is_available() else 0


def current_accelerator(check_available: bool = False) -> Any:
    """Return the type of the accelerator as a device, or None.

    Args:
        check_available: means nothing here: one that cannot be used is never returned.
    """
    name = _opened() or _installed()
    return None if name is None else _C.device(name)


def current_device_index() -> int:
    """Return the index that the accelerator without one means in this thread."""
    return _driver()[1]


def set_device_index(device: Any, /) -> None:
    """Choose what the accelerator without an index means in this thread; a negative one nothing."""
    if isinstance(device, int) and device < 0:
        return
    driver, index = _driver(device)
    driver.set_device(index)


current_device_idx, set_device_idx = current_device_index, set_device_index


class device_index:
    """Choose the accelerator's device in a `with` block.

    Args:
        device: its index; None changes nothing.
    """

    def __init__(self, device: int | None, /) -> None:
        self.idx = device
        self.prev_idx = -1

    def __enter__(self) -> None:
        if self.idx is not None:
            self.prev_idx = current_device_index()
            set_device_index(self.idx)

    def __exit__(self, *exc_info: object) -> None:
        if self.idx is not None:
            set_device_index(self.prev_idx)


def current_stream(device: Any = None, /) -> Stream:
    """Return the stream that the thread gives the accelerator work to."""
    driver, index = _driver(device)
    return _stream_of(_C.device(driver.name, index))


def synchronize(device: Any = None, /) -> None:
    """Wait for all work that a device was given."""
    driver, index = _driver(device)
    driver.synchronize(index)


def get_device_capability(device: Any = None, /) -> dict[str, Any]:
    """Return {"supported_dtypes": the dtypes that tensors on a device may have}."""
    _driver(device)
    return {"supported_dtypes": set(_C.registered_dtypes())}


def empty_cache() -> None:
    """Give memory that no tensor uses back to the accelerator."""
    if is_available():
        driver, _ = _driver()
        for index in range(driver.device_count()):
            _allocator(index).empty_cache()


def empty_host_cache() -> None:
    """Give page-locked memory that no tensor uses back to the system."""
    pinned = _driver()[0].pinned if is_available() else None
    if pinned is not None:
        pinned.empty_cache()


def get_memory_info(device: Any = None, /) -> tuple[int, int]:
    """Return how many bytes are free on a device, and how many it has."""
    driver, index = _driver(device)
    facts = driver.properties(index)
    if "total_memory" not in facts:
        raise NotImplementedError(f"device '{driver.name}' does not tell how much memory it has")
    total = int(facts["total_memory"])
    return int(facts.get("free_memory", total)), total


def memory_stats(device: Any = None, /) -> dict[str, Any]:
    """Return the statistics of a device's allocator, by PyTorch's names."""
    if device is None and not is_available():
        return {}
    stats: dict[str, Any] = _allocator(device).memory_stats()
    return stats


def _bytes(name: str, part: str, device: Any) -> int:
    return int(memory_stats(device).get(f"{name}_bytes.all.{part}", 0))


def memory_allocated(device: Any = None, /) -> int:
    """Return how many bytes of a device tensors hold."""
    return _bytes("allocated", "current", device)


def max_memory_allocated(device: Any = None, /) -> int:
    """Return the most bytes that tensors have held since the start or the last reset."""
    return _bytes("allocated", "peak", device)


def memory_reserved(device: Any = None, /) -> int:
    """Return how many bytes the allocator holds, for tensors or for the next request."""
    return _bytes("reserved", "current", device)


def max_memory_reserved(device: Any = None, /) -> int:
    """Return the most bytes that the allocator has held since the start or the last reset."""
    return _bytes("reserved", "peak", device)


def reset_peak_memory_stats(device: Any = None, /) -> None:
    """Set every peak of the statistics to what is held now."""
    _allocator(device).reset_peak_memory_stats()


def reset_accumulated_memory_stats(device: Any = None, /) -> None:
    """Count allocations and releases from now on; peaks stay.

    Raises:
        NotImplementedError: always: the counts are the allocator's own account.
    """
    raise NotImplementedError(
        "reset_accumulated_memory_stats: the allocator's totals are not reset; take the "
        "difference of two memory_stats()"
    )
