"""Say what the memory of a device is held for: parameters, gradients, states, and by whom."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, NamedTuple

from tangrad import _C

_SHOWN = 5
Source = Callable[[list[Any], dict[int, str]], Iterator[tuple[str, str, Any]]]
# Each gets all objects that are alive and {id of a parameter: its name}, which the first ones fill
# in, and yields (kind, name, tensor) of what holds memory. Packages whose objects hold tensors add
# theirs when they are imported.
sources_of_holdings: list[Source] = []
# Each is asked for more sentences on a device that is out of memory; `tangrad.plugin` offers them.
accounts_of_memory: list[Callable[[Any], list[str]]] = []


class Holding(NamedTuple):
    """Memory that one tensor holds.

    Attributes:
        kind: such as "parameters", "buffers", "gradients" or "optimizer states".
        name: the path of the module and the tensor's name there, such as "Net.fc.weight".
        nbytes: of its storage.
    """

    kind: str
    name: str
    nbytes: int


def holdings(device: Any) -> list[Holding]:
    """Return what modules and optimizers that are alive hold on a device, the largest first."""
    found: list[Holding] = []
    seen: set[tuple[int, int]] = set()
    names: dict[int, str] = {}
    objects = gc.get_objects()
    found_by = (source(objects, names) for source in sources_of_holdings)
    for kind, name, tensor in chain.from_iterable(found_by):
        if tensor.device != device or tensor.layout is not _C.strided:
            continue
        storage = tensor.untyped_storage()
        if storage._handle not in seen:
            seen.add(storage._handle)
            found.append(Holding(kind, name, storage.nbytes()))
    return sorted(found, key=lambda holding: -holding.nbytes)


def tell(number: int, nbytes: int) -> str:
    """Return what an out-of-memory error adds to the allocator's own account.

    Args:
        number: the allocator's.
        nbytes: how much was asked for.
    """
    device = _C.allocators().get(number)
    if device is None:
        return ""
    allocator = _C.allocator_of(device)
    stats = allocator.memory_stats()
    live = stats["allocated_bytes.all.current"]
    known = holdings(device)
    totals: dict[str, int] = {}
    for holding in known:
        totals[holding.kind] = totals.get(holding.kind, 0) + holding.nbytes
    totals["activations and other tensors"] = max(0, live - sum(totals.values()))
    parts = ", ".join(f"{kind} {_C._readable_bytes(size)}" for kind, size in totals.items() if size)
    lines = [f"Held on {device}: {parts or 'nothing'}."]
    if known:
        largest = (f"{h.name} ({h.kind}, {_C._readable_bytes(h.nbytes)})" for h in known[:_SHOWN])
        lines.append(f"Largest of modules: {', '.join(largest)}.")
    for account in accounts_of_memory:
        lines += account(device)
    lines += _enough(device, nbytes, stats)
    return "\n" + "\n".join(lines)


def _enough(device: Any, nbytes: int, stats: dict[str, Any]) -> list[str]:
    """Say how much less would have been enough, where the device tells how much it has."""
    from tangrad.devices.registry import get_driver

    facts, limit = get_driver(device.type).properties(device.index or 0), stats["limit"]
    most = facts.get("total_memory") if limit < 0 else limit
    room = facts.get("free_memory")
    if limit >= 0:
        room = limit - stats["reserved_bytes.all.current"]
    if not isinstance(room, int) or room >= nbytes:
        return []
    if isinstance(most, int) and nbytes > most:
        return [f"There are {_C._readable_bytes(most)} in all: nothing to release is enough."]
    return [f"{_C._readable_bytes(nbytes - room)} less held would have been enough."]
