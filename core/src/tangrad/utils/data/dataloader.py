"""Loading of a data set in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from tangrad.utils.data.collate import default_collate, default_convert
from tangrad.utils.data.dataset import IterableDataset
from tangrad.utils.data.sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler


class _InfiniteConstantSampler(Sampler[Any]):
    """Give a stream's loader something to count with: None without end."""

    def __iter__(self) -> Iterator[None]:
        while True:
            yield None


def get_worker_info() -> None:
    """Return what a worker process knows of itself; None in the main process."""
    return


# Arguments that only make sense with worker processes, by their neutral value.
_WORKER_OPTIONS = {
    "prefetch_factor": None,
    "persistent_workers": False,
    "multiprocessing_context": None,
    "timeout": 0,
}


class DataLoader:
    """Iterate over a data set in batches, in the calling process.

    Args:
        dataset: the data set, by key or a stream.
        batch_size: number of samples in a batch; None gives single samples.
        shuffle: draw in a new random order in each pass.
        sampler: the order of keys.
        batch_sampler: the keys of each batch, as lists.
        num_workers: 0: there are no worker processes.
        collate_fn: makes a batch of a list of samples; `default_collate` by default.
        pin_memory: copy tensors of a batch into memory that devices copy from quickly.
        drop_last: leave the last batch out if it is smaller.
        timeout: for workers: 0.
        worker_init_fn: for workers: not called.
        multiprocessing_context: for workers: None.
        generator: where the random order comes from.
        prefetch_factor: for workers: None.
        persistent_workers: for workers: False.
        pin_memory_device: ignored.
        in_order: ignored: batches always come in order.

    Raises:
        ValueError: if arguments exclude each other, or ask for worker processes.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        options = {
            "prefetch_factor": prefetch_factor,
            "persistent_workers": persistent_workers,
            "multiprocessing_context": multiprocessing_context,
            "timeout": timeout,
        }
        _check_workers(num_workers, options)
        _check_exclusive(dataset, batch_size, shuffle, sampler, batch_sampler, drop_last)
        self.dataset = dataset
        self.num_workers = num_workers
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.generator = generator
        self.prefetch_factor = prefetch_factor
        self.persistent_workers = persistent_workers
        self.in_order = in_order
        if sampler is None:
            sampler = self._default_sampler(bool(shuffle))
        if batch_sampler is not None:
            batch_size, drop_last = None, False
        elif batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        if collate_fn is None:
            collate_fn = default_convert if batch_sampler is None else default_collate
        self.collate_fn = collate_fn

    def _default_sampler(self, shuffle: bool) -> Sampler[Any]:
        if isinstance(self.dataset, IterableDataset):
            return _InfiniteConstantSampler()
        if shuffle:
            return RandomSampler(self.dataset, generator=self.generator)
        return SequentialSampler(self.dataset)

    def __iter__(self) -> Iterator[Any]:
        if isinstance(self.dataset, IterableDataset):
            batches = self._stream()
        else:
            batches = self._lookups()
        return map(_pinned, batches) if self.pin_memory else batches

    def _lookups(self) -> Iterator[Any]:
        """Yield batches of a data set by key."""
        if self.batch_sampler is None:
            for key in self.sampler:
                yield self.collate_fn(self.dataset[key])
            return
        many = getattr(self.dataset, "__getitems__", None)
        for keys in self.batch_sampler:
            samples = many(keys) if callable(many) else [self.dataset[key] for key in keys]
            yield self.collate_fn(samples)

    def _stream(self) -> Iterator[Any]:
        """Yield batches of a stream."""
        samples = iter(self.dataset)
        if self.batch_sampler is None:
            yield from map(self.collate_fn, samples)
            return
        for keys in self.batch_sampler:
            batch = list(islice(samples, len(keys)))
            if not batch or (self.drop_last and len(batch) < len(keys)):
                return
            yield self.collate_fn(batch)

    def __len__(self) -> int:
        if not isinstance(self.dataset, IterableDataset):
            return len(self.sampler if self.batch_sampler is None else self.batch_sampler)  # type: ignore[arg-type]
        length = len(self.dataset)  # type: ignore[arg-type]
        if self.batch_size is None:
            return length
        extra = 0 if self.drop_last else self.batch_size - 1
        return (length + extra) // self.batch_size


def _check_workers(num_workers: int, options: dict[str, Any]) -> None:
    if num_workers < 0:
        raise ValueError(
            "num_workers option should be non-negative; use num_workers=0 to disable "
            "multiprocessing."
        )
    if num_workers > 0:
        raise ValueError(
            f"DataLoader: num_workers={num_workers} is not available in this version, which loads "
            "data in the calling process; pass num_workers=0"
        )
    for name, value in options.items():
        if value != _WORKER_OPTIONS[name]:
            raise ValueError(
                f"DataLoader: {name}={value!r} concerns worker processes, and num_workers is 0; "
                f"leave {name} out"
            )


def _check_exclusive(
    dataset: Any,
    batch_size: int | None,
    shuffle: bool | None,
    sampler: Any,
    batch_sampler: Any,
    drop_last: bool,
) -> None:
    if isinstance(dataset, IterableDataset):
        for name, value in (("shuffle", shuffle or None), ("sampler", sampler)):
            if value is not None:
                raise ValueError(
                    "DataLoader with IterableDataset: expected unspecified "
                    f"{name} option, but got {name}={value}"
                )
        if batch_sampler is not None:
            raise ValueError(
                "DataLoader with IterableDataset: expected unspecified batch_sampler option, but "
                f"got batch_sampler={batch_sampler}"
            )
    if sampler is not None and shuffle:
        raise ValueError("sampler option is mutually exclusive with shuffle")
    if batch_sampler is not None and (
        batch_size != 1 or shuffle or sampler is not None or drop_last
    ):
        raise ValueError(
            "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and "
            "drop_last"
        )
    if batch_size is None and drop_last:
        raise ValueError(
            "batch_size=None option disables auto-batching and is mutually exclusive with drop_last"
        )


def _pinned(batch: Any) -> Any:
    """Return `batch` with its tensors in pinned memory, where they can be pinned."""
    if hasattr(batch, "pin_memory"):
        return batch.pin_memory()
    if isinstance(batch, dict):
        return {key: _pinned(value) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*map(_pinned, batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(map(_pinned, batch))
    return batch
