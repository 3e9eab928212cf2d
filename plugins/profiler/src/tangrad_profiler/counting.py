"""What the core counts all the time: reading it costs, counting does not."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Counters:
    """Counts since the process began, or between two readings: `after - before`.

    Attributes:
        ops: calls of ops, those within composites among them.
        allocations: blocks that were handed out. allocated_bytes: their bytes.
        device_allocations: how many of them asked the device for memory.
        cache_hits: the others.
        fallbacks: calls that ran on the reference, for want of a kernel of their device.
        live_bytes: that are held now. peak_bytes: the most that were held at once.
    """

    ops: int = 0
    allocations: int = 0
    allocated_bytes: int = 0
    device_allocations: int = 0
    cache_hits: int = 0
    fallbacks: int = 0
    live_bytes: int = 0
    peak_bytes: int = 0

    def __sub__(self, earlier: Counters) -> Counters:
        mine, theirs = asdict(self), asdict(earlier)
        passed = {name: mine[name] - theirs[name] for name in mine}
        return Counters(**{**passed, "live_bytes": self.live_bytes, "peak_bytes": self.peak_bytes})

    def __str__(self) -> str:
        return "\n".join(
            f"{name.replace('_', ' '):<20}{value:>16,}" for name, value in asdict(self).items()
        )


def counters(device: Any = None) -> Counters:
    """Return the counts of this process.

    Args:
        device: whose memory is counted; that of all open devices by default.
    """
    from tangrad.plugin import allocator_of, allocators, fallback_calls, op_calls

    found = dict.fromkeys(
        ("allocations", "allocated_bytes", "device_allocations", "live_bytes", "peak_bytes"), 0
    )
    for where in allocators().values():
        if device is not None and str(where).partition(":")[0] != str(device).partition(":")[0]:
            continue
        stats = allocator_of(where).memory_stats()
        found["allocations"] += stats["allocation.all.allocated"]
        found["allocated_bytes"] += stats["allocated_bytes.all.allocated"]
        found["device_allocations"] += stats["num_device_alloc"]
        found["live_bytes"] += stats["allocated_bytes.all.current"]
        found["peak_bytes"] += stats["allocated_bytes.all.peak"]
    hits = found["allocations"] - found["device_allocations"]
    fallbacks = sum(fallback_calls().values())
    return Counters(ops=op_calls(), cache_hits=max(hits, 0), fallbacks=fallbacks, **found)
