"""Run a function in several ranks that are threads of this process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from tangrad_distributed.stores.store import HashStore
from tangrad_distributed.world import (
    World,
    as_rank_of_its_own,
    destroy_process_group,
    init_process_group,
    is_initialized,
)


def run_threads(
    function: Callable[..., Any],
    world_size: int,
    *args: Any,
    backend: str = "threads",
    timeout: timedelta | None = None,
) -> list[Any]:
    """Call `function(rank, *args)` in one thread for each rank, in a world of their own.

    Args:
        function: what each rank does; the default group is there already.
        world_size: how many ranks.
        *args: for the function.
        backend: an engine whose ranks may be threads: "threads", "simulated".
        timeout: how long a collective may take.

    Returns:
        What each rank returned.

    Raises:
        ValueError: `world_size` is below 1.
        Exception: what the first rank raised that was not raised because of another rank.
    """
    if world_size < 1:
        raise ValueError(f"run_threads: world_size must be at least 1, got {world_size}")
    store = HashStore()
    results: list[Any] = [None] * world_size
    errors: list[tuple[int, int, BaseException]] = []
    order = iter(range(1 << 30))

    def work(rank: int) -> None:
        with as_rank_of_its_own(World()):
            try:
                init_process_group(
                    backend, store=store, rank=rank, world_size=world_size, timeout=timeout
                )
                results[rank] = function(rank, *args)
            except BaseException as error:
                errors.append((next(order), rank, error))
            finally:
                if is_initialized():
                    destroy_process_group()

    threads = [
        threading.Thread(target=work, args=(rank,), name=f"rank {rank}", daemon=True)
        for rank in range(world_size)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.1)
    if errors:
        raise min(errors)[2]
    return results
