"""Statistics and limits of a device's memory, by PyTorch's names."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import tangrad
from tangrad_cuda.namespace._place import allocator, driver, index_of, usable
from tangrad_cuda.namespace.devices import list_gpu_processes as list_gpu_processes
from tangrad_cuda.namespace.not_yet import CUDAPluggableAllocator as CUDAPluggableAllocator
from tangrad_cuda.namespace.not_yet import MemPool as MemPool
from tangrad_cuda.namespace.not_yet import change_current_allocator as change_current_allocator
from tangrad_cuda.namespace.not_yet import use_mem_pool as use_mem_pool

# What `reset_accumulated_*` counts from, by the index of a device; -1 is the host.
_baselines: dict[int, dict[str, int]] = {}
_fractions: dict[int, float] = {}
_given: dict[int, Any] = {}
_SUMS = (".allocated", ".freed")


def empty_cache() -> None:
    """Give memory that no tensor uses back to the GPU, on every device in use."""
    if usable():
        for index in driver().contexts.retained:
            allocator(index).empty_cache()


def _since(stats: dict[str, int], index: int) -> dict[str, int]:
    base = _baselines.get(index)
    if base is None:
        return stats
    return {k: v - base.get(k, 0) if k.endswith(_SUMS) else v for k, v in stats.items()}


def memory_stats(device: Any = None) -> dict[str, Any]:
    """Return the allocator's statistics, such as `allocated_bytes.all.peak`."""
    if not usable():
        return {}
    index = index_of(device)
    return _since(allocator(index).memory_stats(), index)


def _nested(flat: dict[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        *branch, leaf = name.split(".")
        place = tree
        for part in branch:
            place = place.setdefault(part, {})
        place[leaf] = value
    return tree


def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    """Return the same as dicts of dicts."""
    return _nested(memory_stats(device))


def host_memory_stats() -> dict[str, Any]:
    """Return the statistics of page-locked memory of the host."""
    if not usable():
        return {}
    return _since(driver().pinned.allocator.memory_stats(), -1)


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """Return the same as dicts of dicts."""
    return _nested(host_memory_stats())


def _figure(kind: str, part: str, device: Any) -> int:
    return int(memory_stats(device).get(f"{kind}_bytes.all.{part}", 0))


def memory_allocated(device: Any = None) -> int:
    """Return how many bytes tensors hold."""
    return _figure("allocated", "current", device)


def max_memory_allocated(device: Any = None) -> int:
    """Return the most bytes that tensors have held."""
    return _figure("allocated", "peak", device)


def memory_reserved(device: Any = None) -> int:
    """Return how many bytes the allocator holds, in use or cached."""
    return _figure("reserved", "current", device)


def max_memory_reserved(device: Any = None) -> int:
    """Return the most bytes that the allocator has held."""
    return _figure("reserved", "peak", device)


memory_cached, max_memory_cached = memory_reserved, max_memory_reserved


def reset_peak_memory_stats(device: Any = None) -> None:
    """Set every peak to what is held now."""
    allocator(device).reset_peak_memory_stats()


reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats


def reset_peak_host_memory_stats() -> None:
    """Set every peak of page-locked memory to what is held now."""
    driver().pinned.allocator.reset_peak_memory_stats()


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Count allocations and releases from now on."""
    index = index_of(device)
    _baselines[index] = allocator(index).memory_stats()


def reset_accumulated_host_memory_stats() -> None:
    """Count allocations and releases of page-locked memory from now on."""
    _baselines[-1] = driver().pinned.allocator.memory_stats()


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Return how many bytes are free, for all processes, and how many the device has."""
    found: tuple[int, int] = driver().memory.info(index_of(device))
    return found


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """Return the statistics as a table, with who holds most and what others hold.

    Args:
        device: which; the current one.
        abbreviated: leave out the holders.
    """
    index = index_of(device)
    free, total = mem_get_info(index)
    text = allocator(index).memory_summary()
    if abbreviated:
        text = "\n".join(text.splitlines()[:9])
    foreign = total - free - memory_reserved(index)
    return (
        f"CUDA memory summary, device {index}: {total} bytes, {free} free, {max(0, foreign)} held "
        f"by other processes, contexts and kernels\n{text}"
    )


def memory_snapshot(mempool_id: Any = None) -> list[dict[str, Any]]:
    """Return the segments of all devices in use, each with its blocks."""
    found = []
    for index in driver().contexts.retained:
        for segment in allocator(index).snapshot():
            found.append({"device": index, **segment})
    return found


def _record_memory_history(
    enabled: str | None = "all",
    context: str | None = "all",
    stacks: str = "all",
    max_entries: int = sys.maxsize,
    **ignored: Any,
) -> None:
    """Begin to record what is allocated by which line, or stop: PyTorch's name for it.

    Args:
        enabled: "all" or "state" begins, None stops.
        context: None leaves the lines out.
        stacks: of the program alone, whatever is asked for.
        max_entries: how many of the latest changes a snapshot tells.
        ignored: what else PyTorch has.

    Raises:
        AttributeError: tangrad-profiler, which records, is not installed.
    """
    tangrad.profiler.record_memory_history(  # type: ignore[attr-defined]
        enabled, max_entries=max_entries, stacks=context is not None
    )


def _snapshot(device: Any = None) -> dict[str, Any]:
    """Return what all devices hold, and the changes so far, in PyTorch's format."""
    found: dict[str, Any] = tangrad.profiler.memory_snapshot()  # type: ignore[attr-defined]
    return found


def _dump_snapshot(filename: str = "dump_snapshot.pickle") -> None:
    """Write that to a file: pickled, or as a page if its name ends with ".html"."""
    tangrad.profiler.dump_memory_snapshot(filename)  # type: ignore[attr-defined]


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Bound what this process takes of a device; beyond it tensors are out of memory.

    Raises:
        TypeError: the fraction is no float.
        ValueError: it is not between 0 and 1.
    """
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    index = index_of(device)
    _fractions[index] = fraction
    allocator(index).set_limit(int(fraction * mem_get_info(index)[1]))


def get_per_process_memory_fraction(device: Any = None) -> float:
    """Return the fraction of a device that this process may take."""
    return _fractions.get(index_of(device), 1.0)


def caching_allocator_alloc(size: int, device: Any = None, stream: Any = None) -> int:
    """Return the address of memory that other libraries may use; give it back by its address.

    Args:
        size: bytes.
        device: where; the current device.
        stream: the stream it is first used in, or its handle; the current one.
    """
    index = index_of(device)
    streams = driver().streams
    number = getattr(stream, "stream_id", None)
    if number is None:
        given = streams.current_stream(index) if stream is None else stream
        number = streams.adopt(given, index) if stream is not None else given
    block = allocator(index).allocate(size, number)
    address = int(block.handle + block.offset)
    _given[address] = block
    return address


def caching_allocator_delete(mem_ptr: int) -> None:
    """Give back what `caching_allocator_alloc` returned.

    Raises:
        ValueError: it is not such an address.
    """
    block = _given.pop(mem_ptr, None)
    if block is None:
        raise ValueError(f"caching_allocator_delete: {mem_ptr:#x} was not allocated, or is freed")
    block.release()


def caching_allocator_enable(value: bool = True) -> None:
    """Say whether memory that no tensor uses is kept for the next request."""
    for index in driver().contexts.retained:
        allocator(index).set_max_cached(None if value else 0)


@contextlib.contextmanager
def caching_allocator_disabled() -> Iterator[None]:
    """Give memory back at once in a `with` block."""
    caching_allocator_enable(False)
    try:
        yield
    finally:
        caching_allocator_enable(True)


def get_allocator_backend() -> str:
    """Return the name of the allocator, PyTorch's for one of the library's own: "native"."""
    return "native"
