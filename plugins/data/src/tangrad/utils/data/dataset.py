"""Data sets."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Generic, TypeVar

import tangrad
from tangrad.utils.data.sampler import drawn_by

T_co = TypeVar("T_co", covariant=True)


class Dataset(Generic[T_co]):
    """A map from keys, mostly positions, to samples.

    A subclass defines `__getitem__`, mostly `__len__`, and may define `__getitems__`, which takes
    a list of keys.
    """

    def __getitem__(self, index: Any) -> T_co:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: Dataset[T_co]) -> ConcatDataset[T_co]:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co]):
    """A stream of samples: a subclass defines `__iter__`."""

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError("Subclasses of IterableDataset should implement __iter__.")

    def __add__(self, other: Dataset[T_co]) -> Any:
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Any, ...]]):
    """Tensors whose rows are samples: sample i is the tuple of their rows i.

    Args:
        *tensors: tensors with first dimensions of one size.

    Raises:
        AssertionError: if these sizes differ.
    """

    tensors: tuple[Any, ...]

    def __init__(self, *tensors: Any) -> None:
        if any(tensor.shape[0] != tensors[0].shape[0] for tensor in tensors):
            sizes = [tensor.shape[0] for tensor in tensors]
            raise AssertionError(f"Size mismatch between tensors: first dimensions are {sizes}")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return self.tensors[0].shape[0]


def _items(dataset: Any, indices: list[Any]) -> Any:
    many = getattr(dataset, "__getitems__", None)
    if not callable(many):
        return [dataset[i] for i in indices]
    items = many(indices)
    if len(items) != len(indices):
        raise ValueError(
            f"Nested dataset's output size mismatch. Expected {len(indices)}, got {len(items)} "
            f"from {type(dataset).__name__}"
        )
    return items


class StackDataset(Dataset[Any]):
    """Data sets side by side: sample i holds the samples i of all.

    Args:
        *args: data sets; samples are then tuples.
        **kwargs: data sets by name; samples are then dictionaries.

    Raises:
        ValueError: if both kinds, or none, are given, or the lengths differ.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args and kwargs:
            raise ValueError(
                "Supported either positional data sets, for tuples, or named ones, for "
                "dictionaries: StackDataset got both"
            )
        if not args and not kwargs:
            raise ValueError("At least one dataset should be passed (StackDataset)")
        self.datasets: Any = args or kwargs
        lengths = {len(dataset) for dataset in (args or kwargs.values())}
        if len(lengths) != 1:
            raise ValueError("Size mismatch between datasets")
        self._length = lengths.pop()

    def __getitem__(self, index: Any) -> Any:
        if isinstance(self.datasets, dict):
            return {name: dataset[index] for name, dataset in self.datasets.items()}
        return tuple(dataset[index] for dataset in self.datasets)

    def __getitems__(self, indices: list[Any]) -> list[Any]:
        """Return several samples, asking each data set for all of its part where it can.

        Raises:
            ValueError: a data set returns another number of them.
        """
        if isinstance(self.datasets, dict):
            names = tuple(self.datasets)
            rows = zip(*(_items(each, indices) for each in self.datasets.values()), strict=True)
            return [dict(zip(names, row, strict=True)) for row in rows]
        return list(zip(*(_items(each, indices) for each in self.datasets), strict=True))

    def __len__(self) -> int:
        return self._length


class ConcatDataset(Dataset[T_co]):
    """Data sets one after another.

    Args:
        datasets: the data sets.

    Raises:
        AssertionError: if there is none, or a stream among them.
    """

    datasets: list[Any]
    cumulative_sizes: list[int]

    @staticmethod
    def cumsum(sequence: Iterable[Any]) -> list[int]:
        """Return the number of samples up to each data set's end."""
        return list(accumulate(len(dataset) for dataset in sequence))

    def __init__(self, datasets: Iterable[Any]) -> None:
        super().__init__()
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("datasets should not be an empty iterable")
        if any(isinstance(dataset, IterableDataset) for dataset in self.datasets):
            raise AssertionError("ConcatDataset does not support IterableDataset")
        self.cumulative_sizes = self.cumsum(self.datasets)

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, idx: int) -> T_co:
        if idx < 0:
            if -idx > len(self):
                raise ValueError("absolute value of index should not exceed dataset length")
            idx += len(self)
        which = bisect_right(self.cumulative_sizes, idx)
        if which == len(self.datasets):
            raise IndexError(f"index {idx} is out of range for {len(self)} samples")
        return self.datasets[which][idx - (self.cumulative_sizes[which - 1] if which else 0)]


class ChainDataset(IterableDataset[T_co]):
    """Streams one after another.

    Args:
        datasets: the streams.
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        super().__init__()
        self.datasets = datasets

    def __iter__(self) -> Iterator[T_co]:
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise AssertionError("ChainDataset only supports IterableDataset")
            yield from dataset

    def __len__(self) -> int:
        return sum(len(dataset) for dataset in self.datasets)


class Subset(Dataset[T_co]):
    """Some samples of a data set.

    Args:
        dataset: the data set.
        indices: the samples, in order.
    """

    dataset: Any
    indices: Sequence[int]

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, list):
            return self.dataset[[self.indices[i] for i in idx]]
        return self.dataset[self.indices[idx]]

    def __getitems__(self, indices: list[int]) -> list[T_co]:
        chosen = [self.indices[i] for i in indices]
        many = getattr(self.dataset, "__getitems__", None)
        return many(chosen) if callable(many) else [self.dataset[i] for i in chosen]

    def __len__(self) -> int:
        return len(self.indices)


def rows_at(dataset: Any, keys: list[Any]) -> list[Any] | None:
    """Return the samples `keys` of a `TensorDataset`, or of a `Subset` of one, as one batch.

    Returns:
        The rows of each tensor, taken at once, which is what `default_collate` makes of the
        samples; None where samples have to be asked for one by one.
    """
    while type(dataset) is Subset:
        keys, dataset = [dataset.indices[key] for key in keys], dataset.dataset
    if type(dataset) is not TensorDataset or {*map(type, keys)} != {int}:
        return None
    tensors = dataset.tensors
    if any(type(tensor) is not tangrad.Tensor for tensor in tensors):
        return None
    if min(keys) < 0 or max(keys) >= len(dataset):
        return None
    index = tangrad.tensor(keys)
    return [tensor.index_select(0, index.to(tensor.device)) for tensor in tensors]


def _counts(length: int, lengths: Sequence[Any]) -> Sequence[int]:
    """Return numbers of samples for `lengths`, which may be shares that sum to 1."""
    if not math.isclose(sum(lengths), 1):
        return lengths
    counts = []
    for position, share in enumerate(lengths):
        if share < 0 or share > 1:
            raise ValueError(f"Fraction at index {position} is not between 0 and 1")
        counts.append(math.floor(length * share))
    for position in range(length - sum(counts)):
        counts[position % len(counts)] += 1
    for position, count in enumerate(counts):
        if count == 0:
            import warnings

            warnings.warn(
                f"Length of split at index {position} is 0. This might result in an empty dataset.",
                stacklevel=3,
            )
    return counts


def random_split(dataset: Any, lengths: Sequence[Any], generator: Any = None) -> list[Subset[Any]]:
    """Split a data set at random.

    Args:
        dataset: the data set.
        lengths: numbers of samples, or shares that sum to 1; what rounding leaves over goes to
            the first parts, one each.
        generator: where the random numbers come from.

    Returns:
        One subset for each length.

    Raises:
        ValueError: if the lengths do not sum to that of the data set.
    """
    counts = _counts(len(dataset), lengths)
    if sum(counts) != len(dataset):
        raise ValueError("Sum of input lengths does not equal the length of the input dataset!")
    order = tangrad.randperm(len(dataset), **drawn_by(generator)).tolist()
    ends = list(accumulate(counts))
    pairs = zip(ends, counts, strict=True)
    return [Subset(dataset, order[end - count : end]) for end, count in pairs]
