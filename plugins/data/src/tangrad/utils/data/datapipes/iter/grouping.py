"""Pipes that make batches, open them, and put samples of one key together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from tangrad.utils.data.datapipes import DataChunk, IterDataPipe, functional_datapipe
from tangrad.utils.data.datapipes.utils.common import _check_unpickable_fn, length_of

__all__ = ["BatcherIterDataPipe", "GrouperIterDataPipe", "UnBatcherIterDataPipe"]


@functional_datapipe("batch")
class BatcherIterDataPipe(IterDataPipe[Any]):
    """Make batches of samples.

    Args:
        datapipe: where samples come from.
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

    def __iter__(self) -> Iterator[Any]:
        batch: list[Any] = []
        for sample in self.datapipe:
            batch.append(sample)
            if len(batch) == self.batch_size:
                yield self.wrapper_class(batch)
                batch = []
        if batch and not self.drop_last:
            yield self.wrapper_class(batch)

    def __len__(self) -> int:
        whole, rest = divmod(length_of(self, self.datapipe), self.batch_size)
        return whole + bool(rest and not self.drop_last)


@functional_datapipe("unbatch")
class UnBatcherIterDataPipe(IterDataPipe[Any]):
    """Open batches.

    Args:
        datapipe: where batches come from.
        unbatch_level: how many levels are opened; -1: all.

    Raises:
        ValueError: in iteration, if it is less than -1.
        IndexError: in iteration, if there are fewer levels.
    """

    def __init__(self, datapipe: Any, unbatch_level: int = 1) -> None:
        self.datapipe, self.unbatch_level = datapipe, unbatch_level

    def __iter__(self) -> Iterator[Any]:
        if self.unbatch_level < -1:
            raise ValueError("unbatch_level must be -1 or >= 0")
        for sample in self.datapipe:
            yield from self._opened(sample, self.unbatch_level)

    def _opened(self, sample: Any, level: int) -> Iterator[Any]:
        if level == 0 or (level < 0 and not isinstance(sample, list)):
            yield sample
            return
        if not isinstance(sample, list):
            raise IndexError(
                f"unbatch_level {self.unbatch_level} exceeds the depth of the DataPipe"
            )
        for inner in sample:
            yield from self._opened(inner, level if level < 0 else level - 1)


@functional_datapipe("groupby")
class GrouperIterDataPipe(IterDataPipe[Any]):
    """Put samples of one key together: a group is handed on when it is full.

    Where all groups together fill the buffer, the largest is handed on; at the end all that are
    left are.

    Args:
        datapipe: where samples come from.
        group_key_fn: sample -> key.
        keep_key: whether (key, group) is handed on.
        buffer_size: samples that are held at most.
        group_size: samples of a full group.
        guaranteed_group_size: the least that is handed on where the buffer is full.
        drop_remaining: whether fewer are then dropped, and not an error.

    Raises:
        AssertionError: the sizes are none, or do not fit each other.
        RuntimeError: in iteration, where the buffer is full of groups that are too small.
    """

    def __init__(
        self,
        datapipe: Any,
        group_key_fn: Callable[[Any], Any],
        *,
        keep_key: bool = False,
        buffer_size: int = 10000,
        group_size: int | None = None,
        guaranteed_group_size: int | None = None,
        drop_remaining: bool = False,
    ) -> None:
        _check_unpickable_fn(group_key_fn)
        if group_size is not None and not 0 < group_size <= buffer_size:
            raise AssertionError("group_size must be > 0 and <= buffer_size")
        least = group_size
        if guaranteed_group_size is not None:
            if group_size is None or not 0 < guaranteed_group_size <= group_size:
                raise AssertionError(
                    "guaranteed_group_size must be > 0 and <= group_size and group_size must be set"
                )
            least = guaranteed_group_size
        self.datapipe, self.group_key_fn, self.keep_key = datapipe, group_key_fn, keep_key
        self.max_buffer_size, self.group_size = buffer_size, group_size
        self.guaranteed_group_size, self.drop_remaining = least, drop_remaining

    def __iter__(self) -> Iterator[Any]:
        held: dict[Any, list[Any]] = defaultdict(list)
        count = 0
        for sample in self.datapipe:
            key = self.group_key_fn(sample)
            group = held[key]
            group.append(sample)
            count += 1
            if len(group) == self.group_size:
                count -= len(group)
                yield self._handed(key, held.pop(key))
            if count == self.max_buffer_size:
                largest = max(held, key=lambda k: len(held[k]))
                group = held.pop(largest)
                count -= len(group)
                if len(group) >= (self.guaranteed_group_size or 0):
                    yield self._handed(largest, group)
                elif not self.drop_remaining:
                    raise RuntimeError("Failed to group items", str(group))
        for key in list(held):
            yield self._handed(key, held.pop(key))

    def _handed(self, key: Any, group: list[Any]) -> Any:
        chunk = DataChunk(group)
        return (key, chunk) if self.keep_key else chunk
