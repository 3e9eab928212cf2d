"""Pipes that change the order of samples."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import tangrad
from tangrad.utils.data.datapipes import IterDataPipe, functional_datapipe
from tangrad.utils.data.sampler import SequentialSampler

__all__ = ["SamplerIterDataPipe", "ShufflerIterDataPipe"]


class SamplerIterDataPipe(IterDataPipe[Any]):
    """Hand out what a sampler of a sized pipe does."""

    def __init__(
        self,
        datapipe: Any,
        sampler: Any = SequentialSampler,
        sampler_args: tuple[Any, ...] | None = None,
        sampler_kwargs: dict[str, Any] | None = None,
    ) -> None:
        self.datapipe = datapipe
        self.sampler = sampler(
            *(sampler_args or ()), **{**(sampler_kwargs or {}), "data_source": datapipe}
        )

    def __iter__(self) -> Iterator[Any]:
        return iter(self.sampler)

    def __len__(self) -> int:
        return len(self.sampler)


@functional_datapipe("shuffle")
class ShufflerIterDataPipe(IterDataPipe[Any]):
    """Shuffle samples: each is drawn from a buffer of those that came.

    Args:
        datapipe: where samples come from.
        buffer_size: of the buffer; the order is any where all samples fit.
        unbatch_level: how many levels of batches are opened before.
    """

    def __init__(self, datapipe: Any, *, buffer_size: int = 10000, unbatch_level: int = 0) -> None:
        if buffer_size < 1:
            raise ValueError(f"shuffle: buffer_size must be at least 1, got {buffer_size}")
        opened = datapipe.unbatch(unbatch_level=unbatch_level) if unbatch_level else datapipe
        self.datapipe, self.buffer_size = opened, buffer_size
        self._shuffle_enabled = True
        self._seed: int | None = None
        self._rng = random.Random()

    def set_shuffle(self, shuffle: bool = True) -> ShufflerIterDataPipe:
        """Shuffle, or hand samples on as they come."""
        self._shuffle_enabled = shuffle
        return self

    def set_seed(self, seed: int | None) -> ShufflerIterDataPipe:
        """Set the seed of the next iteration; otherwise it is drawn from the default generator."""
        self._seed = seed
        return self

    def __iter__(self) -> Iterator[Any]:
        if not self._shuffle_enabled:
            yield from self.datapipe
            return
        held: list[Any] = []
        for sample in self.datapipe:
            if len(held) < self.buffer_size:
                held.append(sample)
                continue
            at = self._rng.randint(0, len(held) - 1)
            sample, held[at] = held[at], sample
            yield sample
        while held:
            yield held.pop(self._rng.randint(0, len(held) - 1))

    def __len__(self) -> int:
        return len(self.datapipe)

    def reset(self) -> None:
        """Seed the order anew."""
        if self._shuffle_enabled:
            if self._seed is None:
                self._seed = int(tangrad.empty((), dtype=tangrad.int64).random_().item())
            self._rng.seed(self._seed)
            self._seed = None
