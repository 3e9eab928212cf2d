"""What loaders do with pipes: each process takes its part, and all shuffle by the same seeds."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.utils.data.datapipes import IterDataPipe
from tangrad.utils.data.datapipes.iter.sharding import SHARDING_PRIORITIES

__all__ = ["is_pipe", "place_of_process", "seed", "share_in_process", "share_in_worker", "shuffled"]


def is_pipe(dataset: Any) -> bool:
    """Return whether a data set is a pipe over a stream."""
    return isinstance(dataset, IterDataPipe)


def shuffled(dataset: Any, shuffle: bool | None) -> Any:
    """Return a pipe that shuffles, or does not; None: as its shufflers are set."""
    from tangrad.utils.data.graph_settings import apply_shuffle_settings

    return apply_shuffle_settings(dataset, shuffle)


def seed(dataset: Any, number: int | None) -> None:
    """Have all that a pipe draws at random follow from a number; None: it stays as it is."""
    if number is not None:
        from tangrad.utils.data.graph_settings import apply_random_seed

        apply_random_seed(dataset, tangrad.Generator().manual_seed(number))


def place_of_process() -> tuple[int, int]:
    """Return how many processes train together, and the number of this one."""
    distributed = tangrad.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size(), distributed.get_rank()
    return 1, 0


def share_in_process(dataset: Any) -> None:
    """Have a pipe take the part of this process, among those that train together."""
    from tangrad.utils.data.graph_settings import apply_sharding

    apply_sharding(dataset, *place_of_process(), sharding_group=SHARDING_PRIORITIES.DISTRIBUTED)


def share_in_worker(dataset: Any, place: tuple[int, int], worker: tuple[int, int]) -> None:
    """Have a pipe take the part of a worker process.

    Args:
        dataset: the pipe.
        place: how many processes train together, and the number of the loader's.
        worker: how many workers it has, and the number of this one.
    """
    from tangrad.utils.data.graph_settings import apply_sharding

    apply_sharding(dataset, *place, sharding_group=SHARDING_PRIORITIES.DISTRIBUTED)
    apply_sharding(dataset, *worker, sharding_group=SHARDING_PRIORITIES.MULTIPROCESSING)
