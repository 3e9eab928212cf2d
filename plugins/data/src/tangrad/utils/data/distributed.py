"""Sharing of a data set among processes that train together."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from itertools import cycle, islice

import tangrad
from tangrad.utils.data.sampler import Sampler, drawn_by

__all__ = ["DistributedSampler"]


class DistributedSampler(Sampler[int]):
    """Draw the part of a data set that is one process's; all parts are of the same size.

    Args:
        dataset: the data set, the same in all processes.
        num_replicas: number of processes.
        rank: the number of this process.
        shuffle: deal out a random order, the same in all processes.
        seed: of the random order.
        drop_last: leave out the rest that does not divide evenly; otherwise samples from the
            beginning come again.

    Raises:
        RuntimeError: a number is not given, and no package for training together tells it.
        ValueError: there is no process of the number.
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        connected = tangrad.distributed
        if connected.is_available() and connected.is_initialized():
            num_replicas = connected.get_world_size() if num_replicas is None else num_replicas
            rank = connected.get_rank() if rank is None else rank
        if num_replicas is None or rank is None:
            raise RuntimeError(
                "Requires distributed package to be available; without it, pass num_replicas= "
                "and rank="
            )
        if not 0 <= rank < num_replicas:
            raise ValueError(
                f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]"
            )
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch = 0
        self.drop_last = drop_last
        extra = 0 if drop_last else num_replicas - 1
        self.num_samples = (len(dataset) + extra) // num_replicas
        self.total_size = self.num_samples * num_replicas
        self.shuffle = shuffle
        self.seed = seed

    def __iter__(self) -> Iterator[int]:
        order = range(len(self.dataset))
        if self.shuffle:
            generator = tangrad.Generator()
            generator.manual_seed(self.seed + self.epoch)
            order = tangrad.randperm(len(self.dataset), **drawn_by(generator)).tolist()
        # Cycled: the last ones to come are the first ones again.
        return islice(cycle(order), self.rank, self.total_size, self.num_replicas)

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the pass, which the random order depends on."""
        self.epoch = epoch
