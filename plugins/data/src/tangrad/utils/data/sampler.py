"""Orders in which samples are drawn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from itertools import islice
from typing import Any, Generic, TypeVar

import tangrad

T_co = TypeVar("T_co", covariant=True)


def drawn_by(generator: Any) -> dict[str, Any]:
    """Return the arguments of a draw on a generator's device, also where another is default."""
    return {} if generator is None else {"generator": generator, "device": generator.device}


class Sampler(Generic[T_co]):
    """An iterable of keys, or of lists of keys, of a data set; a subclass defines `__iter__`."""

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__} does not define __iter__")


class SequentialSampler(Sampler[int]):
    """Draw all samples in order.

    Args:
        data_source: the data set.
    """

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """Draw samples at random.

    Args:
        data_source: the data set.
        replacement: whether a sample may come twice.
        num_samples: number of draws; the size of the data set by default.
        generator: where the random numbers come from.

    Raises:
        TypeError: if `replacement` is not a bool.
        ValueError: if `num_samples` is not a positive integer.
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Any = None,
    ) -> None:
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        if not isinstance(replacement, bool):
            raise TypeError(f"replacement should be a boolean value, but got {replacement=}")
        if not isinstance(self.num_samples, int) or self.num_samples < 0:
            raise ValueError(
                "num_samples should be a non-negative integer value, "
                f"but got num_samples={self.num_samples}"
            )

    @property
    def num_samples(self) -> int:
        """Number of draws; follows the size of the data set unless it was given."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def _permutations(self, generator: Any) -> Iterator[int]:
        size = len(self.data_source)
        for _ in range(self.num_samples // size):
            yield from tangrad.randperm(size, **drawn_by(generator)).tolist()
        # Drawn even if nothing is left, as the generator's state is to be PyTorch's.
        order = tangrad.randperm(size, **drawn_by(generator)).tolist()
        yield from order[: self.num_samples % size]

    def _draws(self, generator: Any) -> Iterator[int]:
        # In blocks: one large draw would hold all indices in memory at once.
        block, size, drawn = 32, len(self.data_source), drawn_by(generator)
        for _ in range(self.num_samples // block):
            yield from tangrad.randint(high=size, size=(block,), **drawn).tolist()
        rest = (self.num_samples % block,)
        yield from tangrad.randint(high=size, size=rest, **drawn).tolist()

    def __iter__(self) -> Iterator[int]:
        generator = self.generator
        if generator is None:
            # A stream of its own: what else is drawn meanwhile does not change the order.
            seed = tangrad.empty((), dtype=tangrad.int64).random_().item()
            generator = tangrad.Generator().manual_seed(seed)
        if not len(self.data_source):
            return
        yield from self._draws(generator) if self.replacement else self._permutations(generator)

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """Draw the given samples in random order.

    Args:
        indices: the samples.
        generator: where the random numbers come from.
    """

    def __init__(self, indices: Sequence[int], generator: Any = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        for i in tangrad.randperm(len(self.indices), **drawn_by(self.generator)).tolist():
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Draw positions of `weights` with probabilities in proportion to them.

    Args:
        weights: the weights; they need not sum to 1.
        num_samples: number of draws.
        replacement: whether a position may come twice.
        generator: where the random numbers come from.

    Raises:
        ValueError: if an argument is not of its kind.
    """

    def __init__(
        self,
        weights: Sequence[float],
        num_samples: int,
        replacement: bool = True,
        generator: Any = None,
    ) -> None:
        if isinstance(num_samples, bool) or not isinstance(num_samples, int) or num_samples <= 0:
            raise ValueError(
                f"num_samples should be a positive integer value, but got {num_samples=}"
            )
        if not isinstance(replacement, bool):
            raise ValueError(f"replacement should be a boolean value, but got {replacement=}")
        self.weights = tangrad.as_tensor(weights, dtype=tangrad.float64)
        if self.weights.dim() != 1:
            raise ValueError(
                f"weights should be a 1d sequence but given weights have shape {self.weights.shape}"
            )
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        draws = tangrad.multinomial(
            self.weights, self.num_samples, self.replacement, generator=self.generator
        )
        yield from draws.tolist()

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Join the keys of a sampler to lists.

    Args:
        sampler: the keys.
        batch_size: length of a list.
        drop_last: leave the last list out if it is shorter.

    Raises:
        ValueError: if an argument is not of its kind.
    """

    def __init__(self, sampler: Iterable[Any], batch_size: int, drop_last: bool) -> None:
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size <= 0:
            raise ValueError(
                f"batch_size should be a positive integer value, but got batch_size={batch_size}"
            )
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        keys = iter(self.sampler)
        while batch := list(islice(keys, self.batch_size)):
            if self.drop_last and len(batch) < self.batch_size:
                return
            yield batch

    def __len__(self) -> int:
        extra = 0 if self.drop_last else self.batch_size - 1
        return (len(self.sampler) + extra) // self.batch_size  # type: ignore[arg-type]
