"""Loading of a data set in batches."""

from __future__ import annotations

import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic

from tangrad.utils.data import piped, position
from tangrad.utils.data.collate import default_collate, default_convert
from tangrad.utils.data.dataset import Dataset, IterableDataset, T_co
from tangrad.utils.data.loading import InProcess, Iteration, WithWorkers, has_accelerator
from tangrad.utils.data.position import Position
from tangrad.utils.data.report import Report, Times
from tangrad.utils.data.sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler
from tangrad.utils.data.worker import Fetch


class _InfiniteConstantSampler(Sampler[Any]):
    """Give a stream's loader something to count with: None without end."""

    def __iter__(self) -> Iterator[None]:
        while True:
            yield None


# PyTorch's private names, by which packages tell the iterators apart.
_BaseDataLoaderIter = Iteration
_SingleProcessDataLoaderIter = InProcess
_MultiProcessingDataLoaderIter = WithWorkers

_collate_fn_t = Callable[[list[Any]], Any]
_worker_init_fn_t = Callable[[int], None]


class _DatasetKind:
    """How a data set is read: looked up by keys, or as a stream."""

    Map, Iterable = 0, 1

    @staticmethod
    def create_fetcher(
        kind: int, dataset: Any, auto_collation: bool, collate_fn: Any, drop_last: bool
    ) -> Any:
        """Return what makes batches of a data set: `fetch(keys)` gives one."""
        return _Fetcher(Times(), dataset, kind == 1, auto_collation, collate_fn, drop_last)


class _Fetcher(Fetch):
    """Make batches by PyTorch's name for it."""

    def fetch(self, possibly_batched_index: Any) -> Any:
        """Return the batch of some keys, or the next of a stream."""
        return self(possibly_batched_index)


_FIXED = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")


class DataLoader(Generic[T_co]):
    """Iterate over a data set in batches, made in the calling process or in worker processes.

    Each worker has a copy of the data set and makes whole batches; those of a data set by key are
    dealt out to the workers in turn. A stream is read by every worker as a whole, unless the data
    set shares itself out by `get_worker_info`. Tensors come from a worker in shared memory.
    Random numbers in a worker start from a seed that the loader draws, plus the worker's number.

    Args:
        dataset: the data set, by key or a stream.
        batch_size: number of samples in a batch; None gives single samples.
        shuffle: draw in a new random order in each pass.
        sampler: the order of keys.
        batch_sampler: the keys of each batch, as lists.
        num_workers: number of worker processes; 0: the calling process makes the batches.
        collate_fn: makes a batch of a list of samples; `default_collate` by default.
        pin_memory: copy tensors of a batch into memory that devices copy from quickly.
        drop_last: leave the last batch out if it is smaller.
        timeout: seconds to wait for a batch from workers; 0: without end.
        worker_init_fn: called in each worker with its number, after it is seeded.
        multiprocessing_context: how workers are started: a name ("fork", "spawn", "forkserver")
            or a context of `multiprocessing`; its default otherwise.
        generator: where the random order and the workers' seed come from.
        prefetch_factor: number of batches that each worker makes ahead; 2 by default.
        persistent_workers: keep the workers after a pass, for the next.
        pin_memory_device: ignored, with a warning.
        in_order: whether batches come in the order of their keys, or as soon as they are made.

    Raises:
        ValueError: if arguments exclude each other, or name no way to start processes.
        TypeError: if `multiprocessing_context` is neither a name nor a context.
    """

    __initialized = False

    def __init__(
        self,
        dataset: Dataset[T_co],
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
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        _check_exclusive(dataset, batch_size, shuffle, sampler, batch_sampler, drop_last)
        if piped.is_pipe(dataset):
            dataset = piped.shuffled(dataset, shuffle)
        self.dataset: Any = dataset
        self.num_workers = num_workers
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.generator = generator
        if num_workers and prefetch_factor is None:
            prefetch_factor = 2
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
        self._iterator: Iteration | None = None
        self._position = Position()
        self._loaded: dict[str, Any] | None = None
        self._times = Times()
        # The length that a stream claimed to have, once it was asked.
        self._claimed_length: int | None = None
        self.__initialized = True
        self.check_worker_number_rationality()

    def __setattr__(self, attr: str, val: Any) -> None:
        if self.__initialized and attr in _FIXED:
            raise ValueError(
                f"{attr} attribute should not be set after {type(self).__name__} is initialized"
            )
        super().__setattr__(attr, val)

    @property
    def multiprocessing_context(self) -> Any:
        """How workers are started: a context of `multiprocessing`, or None for its default."""
        return self._context

    @multiprocessing_context.setter
    def multiprocessing_context(self, context: Any) -> None:
        self._context = _checked_context(context, self.num_workers)

    @property
    def _streaming(self) -> bool:
        return isinstance(self.dataset, IterableDataset)

    @property
    def _dataset_kind(self) -> int:
        return _DatasetKind.Iterable if self._streaming else _DatasetKind.Map

    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Iterable[Any]:
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    def _default_sampler(self, shuffle: bool) -> Sampler[Any]:
        if self._streaming:
            return _InfiniteConstantSampler()
        if shuffle:
            return RandomSampler(self.dataset, generator=self.generator)
        return SequentialSampler(self.dataset)

    def check_worker_number_rationality(self) -> None:
        """Warn of more workers than there are processors to run them."""
        usable = (
            len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        )
        if usable is not None and self.num_workers > usable:
            warnings.warn(
                f"This DataLoader will create {self.num_workers} worker processes in total. Our "
                f"suggested max number of worker in current system is {usable}, which is smaller "
                "than what this DataLoader is going to create. Please be aware that excessive "
                "worker creation might get DataLoader running slow or even freeze, lower the "
                "worker number to avoid potential slowness/freeze if necessary.",
                stacklevel=3,
            )

    def __iter__(self) -> Iterator[Any]:
        self._warn_of_pinning()
        resumed = self._loaded is not None
        if not self.persistent_workers:
            iterator = self._get_iterator()
        elif self._iterator is None:
            iterator = self._iterator = self._get_iterator()
        else:
            iterator = self._iterator
            iterator.reset()
        if resumed:
            iterator.drop_read()
        return iterator

    def _get_iterator(self) -> Iteration:
        return WithWorkers(self) if self.num_workers else InProcess(self)

    def state_dict(self) -> dict[str, Any]:
        """Return where the loader stands, for `load_state_dict`; beyond PyTorch.

        It holds the states of random generators and a few numbers, no samples, and can be saved by
        `tangrad.save`. A pass that is taken up again gives the batches that are left in the order
        that they would have had, with any number of workers: the order is a function of the
        generators, the pass and the index. (What the data set itself draws at random is not part
        of it, nor what a sampler keeps or draws elsewhere.) Later passes are the same as well if
        the loader has a generator of its own, or if the program restores the default one.

        Raises:
            ValueError: in the middle of a pass with `in_order=False`.
        """
        return position.save(self)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Have the next pass begin where a loader stood; beyond PyTorch.

        The samples that were given before are not loaded again. A stream has to be read again to
        that place, by as many workers.

        Args:
            state_dict: what `state_dict` gave, of a loader made with the same data and arguments;
                only the number of workers may be another.

        Raises:
            ValueError: it is of another version, or of a loader that gives other batches.
        """
        position.load(self, state_dict)

    def report(self) -> Report:
        """Return how long each stage took so far, and which one starves training; beyond PyTorch.

        Its text is a table with a conclusion: `print(loader.report())`.
        """
        times = self._times
        return Report(
            self.num_workers,
            times.batches,
            times.first,
            times.wait,
            times.step,
            times.samples,
            times.collate,
            times.transport,
        )

    def _warn_of_pinning(self) -> None:
        if self.pin_memory and self.pin_memory_device:
            warnings.warn(
                "pin_memory_device is deprecated, the current accelerator will be used as the "
                f"device,ignore pin_memory_device='{self.pin_memory_device}'.",
                stacklevel=3,
            )
        if self.pin_memory and not has_accelerator():
            warnings.warn(
                "'pin_memory' argument is set as true but no accelerator is found, then device "
                "pinned memory won't be used.",
                stacklevel=3,
            )

    def __len__(self) -> int:
        if not self._streaming:
            return len(self._index_sampler)  # type: ignore[arg-type]
        length = self._claimed_length = len(self.dataset)
        if self.batch_size is None:
            return length
        extra = 0 if self.drop_last else self.batch_size - 1
        return (length + extra) // self.batch_size


def _check_workers(
    num_workers: int, timeout: float, prefetch_factor: int | None, persistent_workers: bool
) -> None:
    if num_workers < 0:
        raise ValueError(
            "num_workers option should be non-negative; use num_workers=0 to disable "
            "multiprocessing."
        )
    if timeout < 0:
        raise ValueError("timeout option should be non-negative")
    if num_workers == 0 and prefetch_factor is not None:
        raise ValueError(
            "prefetch_factor option could only be specified in multiprocessing."
            "let num_workers > 0 to enable multiprocessing, otherwise set prefetch_factor to None."
        )
    if prefetch_factor is not None and prefetch_factor < 1:
        raise ValueError(
            f"prefetch_factor option should be non-negative, and not 0, but got {prefetch_factor}"
        )
    if persistent_workers and num_workers == 0:
        raise ValueError("persistent_workers option needs num_workers > 0")
    if timeout and num_workers == 0:
        raise ValueError(
            f"DataLoader: timeout={timeout!r} concerns worker processes, and num_workers is 0; "
            "leave timeout out"
        )


def _checked_context(context: Any, num_workers: int) -> Any:
    if context is None:
        return None
    if not num_workers:
        raise ValueError(
            "multiprocessing_context can only be used with multi-process loading (num_workers > "
            f"0), but got num_workers={num_workers}"
        )
    if isinstance(context, str):
        methods = multiprocessing.get_all_start_methods()
        if context not in methods:
            raise ValueError(
                "multiprocessing_context option should specify a valid start method in "
                f"{methods!r}, but got multiprocessing_context={context!r}"
            )
        return multiprocessing.get_context(context)
    if not isinstance(context, multiprocessing.context.BaseContext):
        raise TypeError(
            "multiprocessing_context option should be a valid context object or a string "
            f"specifying the start method, but got multiprocessing_context={context}"
        )
    return context


def _check_exclusive(
    dataset: Any,
    batch_size: int | None,
    shuffle: bool | None,
    sampler: Any,
    batch_sampler: Any,
    drop_last: bool,
) -> None:
    if isinstance(dataset, IterableDataset):
        unwanted = None if piped.is_pipe(dataset) else shuffle or None  # pipes shuffle themselves
        for name, value in (("shuffle", unwanted), ("sampler", sampler)):
            if value is not None:
                raise ValueError(
                    f"DataLoader with IterableDataset: expected unspecified {name} option, but got "
                    f"{name}={value}"
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
