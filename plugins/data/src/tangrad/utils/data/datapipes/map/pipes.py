"""Pipes by key."""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tangrad
from tangrad.utils.data.datapipes import DataChunk, IterDataPipe, MapDataPipe, functional_datapipe
from tangrad.utils.data.datapipes.utils.common import _check_unpickable_fn

__all__ = [
    "BatcherMapDataPipe",
    "ConcaterMapDataPipe",
    "MapperMapDataPipe",
    "SequenceWrapperMapDataPipe",
    "ShufflerIterDataPipe",
    "ZipperMapDataPipe",
]


class SequenceWrapperMapDataPipe(MapDataPipe[Any]):
    """Hand out the elements of a sequence, or of a mapping.

    Args:
        sequence: where they are.
        deepcopy: whether it is copied.
    """

    def __init__(self, sequence: Any, deepcopy: bool = True) -> None:
        self.sequence = sequence
        if deepcopy:
            try:
                self.sequence = copy.deepcopy(sequence)
            except TypeError:
                warnings.warn(
                    "The input sequence can not be deepcopied, please be aware of in-place "
                    "modification would affect source data",
                    stacklevel=2,
                )

    def __getitem__(self, index: Any) -> Any:
        return self.sequence[index]

    def __len__(self) -> int:
        return len(self.sequence)


@functional_datapipe("map")
class MapperMapDataPipe(MapDataPipe[Any]):
    """Hand out what a function gives of each sample.

    Args:
        datapipe: where samples are.
        fn: the function.
    """

    def __init__(self, datapipe: Any, fn: Callable[[Any], Any]) -> None:
        _check_unpickable_fn(fn)
        self.datapipe, self.fn = datapipe, fn

    def __getitem__(self, index: Any) -> Any:
        return self.fn(self.datapipe[index])

    def __len__(self) -> int:
        return len(self.datapipe)


@functional_datapipe("batch")
class BatcherMapDataPipe(MapDataPipe[Any]):
    """Hand out batches of samples, by number.

    Args:
        datapipe: where samples are, by number.
        batch_size: samples in a batch.
        drop_last: whether a last batch of fewer is left out.
        wrapper_class: what is made of the list of a batch.

    Raises:
        AssertionError: batches would be empty.
    """

    def __init__(
        self,
        datapipe: Any,
        batch_size: int,
        drop_last: bool = False,
        wrapper_class: Any = DataChunk,
    ) -> None:
        if batch_size <= 0:
            raise AssertionError("Batch size is required to be larger than 0!")
        self.datapipe, self.batch_size = datapipe, batch_size
        self.drop_last, self.wrapper_class = drop_last, wrapper_class

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(f"Index {index} is out of bound.")
        begin = index * self.batch_size
        end = min(begin + self.batch_size, len(self.datapipe))
        return self.wrapper_class([self.datapipe[k] for k in range(begin, end)])

    def __len__(self) -> int:
        whole, rest = divmod(len(self.datapipe), self.batch_size)
        return whole + bool(rest and not self.drop_last)


def _checked(pipes: tuple[Any, ...]) -> tuple[Any, ...]:
    if not pipes:
        raise ValueError("Expected at least one DataPipe, but got nothing")
    for pipe in pipes:
        if not isinstance(pipe, MapDataPipe):
            raise TypeError("Expected all inputs to be `MapDataPipe`")
        len(pipe)
    return pipes


@functional_datapipe("concat")
class ConcaterMapDataPipe(MapDataPipe[Any]):
    """Hand out the samples of one pipe after those of another, by number.

    Raises:
        ValueError: there is no pipe.
        TypeError: one is none, or has no length.
    """

    def __init__(self, *datapipes: Any) -> None:
        self.datapipes = _checked(datapipes)

    def __getitem__(self, index: int) -> Any:
        rest = index
        for pipe in self.datapipes:
            if rest < len(pipe):
                return pipe[rest]
            rest -= len(pipe)
        raise IndexError(f"Index {index} is out of range.")

    def __len__(self) -> int:
        return sum(map(len, self.datapipes))


@functional_datapipe("zip")
class ZipperMapDataPipe(MapDataPipe[Any]):
    """Hand out tuples of the samples of one key.

    Raises:
        ValueError: there is no pipe.
        TypeError: one is none, or has no length.
    """

    def __init__(self, *datapipes: Any) -> None:
        self.datapipes = _checked(datapipes)

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        found = []
        for number, pipe in enumerate(self.datapipes):
            try:
                found.append(pipe[index])
            except IndexError as error:
                raise IndexError(
                    f"Index {index} is out of range for one of the input MapDataPipes {number}."
                ) from error
        return tuple(found)

    def __len__(self) -> int:
        return min(map(len, self.datapipes))


class ShufflerIterDataPipe(IterDataPipe[Any]):
    """Hand out the samples of a pipe by key in random order.

    Args:
        datapipe: where samples are.
        indices: the keys; by default the numbers from 0.
    """

    def __init__(self, datapipe: Any, *, indices: Sequence[Any] | None = None) -> None:
        self.datapipe = datapipe
        self.indices = list(range(len(datapipe)) if indices is None else indices)
        self._shuffle_enabled = True
        self._seed: int | None = None
        self._rng = random.Random()

    def set_shuffle(self, shuffle: bool = True) -> ShufflerIterDataPipe:
        """Shuffle, or hand samples out by the order of their keys."""
        self._shuffle_enabled = shuffle
        return self

    def set_seed(self, seed: int | None) -> ShufflerIterDataPipe:
        """Set the seed of the next iteration; otherwise it is drawn from the default generator."""
        self._seed = seed
        return self

    def __iter__(self) -> Iterator[Any]:
        order = self.indices
        if self._shuffle_enabled:
            order = self._rng.sample(order, len(order))[::-1]
        for key in order:
            yield self.datapipe[key]

    def reset(self) -> None:
        """Seed the order anew."""
        if self._shuffle_enabled and self._seed is None:
            self._seed = int(tangrad.empty((), dtype=tangrad.int64).random_().item())
        self._rng.seed(self._seed)
        self._seed = None

    def __len__(self) -> int:
        return len(self.datapipe)


MapDataPipe.register_datapipe_as_function("shuffle", ShufflerIterDataPipe)
