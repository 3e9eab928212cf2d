"""The embedded engine: shared memory where all ranks are on one machine, else connections."""

from __future__ import annotations

from tangrad_distributed.engine import Context, Engine
from tangrad_distributed.engines.shared_memory import SharedMemory, machine


def open_engine(context: Context) -> Engine:
    """Return the faster engine that reaches all ranks of the group."""
    here = machine()
    context.store.set(f"machine/{context.rank}", here)
    others = [context.store.get(f"machine/{rank}").decode() for rank in range(context.size)]
    if all(there == here for there in others):
        return SharedMemory(context)
    from tangrad_distributed.engines.sockets import Sockets

    return Sockets(context)
