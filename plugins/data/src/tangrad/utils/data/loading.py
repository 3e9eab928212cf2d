"""Passes over a data set: the iterators of a loader."""

from __future__ import annotations

import itertools
import multiprocessing
import warnings
import weakref
from collections.abc import Iterator
from time import perf_counter
from typing import Any

from tangrad.plugin import default_accelerator, done_elsewhere, phase, phase_is_watched
from tangrad.utils.data import piped
from tangrad.utils.data.dataset import IterableDataset
from tangrad.utils.data.pinning import pin_memory
from tangrad.utils.data.position import Position, begin_pass
from tangrad.utils.data.report import Times
from tangrad.utils.data.worker import Failure, Fetch, Resume, StreamEnd, Task

# What an object that stands for a loader may lack, as a loader has it by default.
_USUAL: dict[str, Any] = {
    "batch_sampler": None,
    "sampler": None,
    "generator": None,
    "pin_memory": False,
    "drop_last": False,
    "num_workers": 0,
    "timeout": 0,
    "worker_init_fn": None,
    "multiprocessing_context": None,
    "prefetch_factor": 2,
    "persistent_workers": False,
    "in_order": True,
}


class _Standing:
    """Complete an object of others that stands for a DataLoader, in the names PyTorch asks for."""

    def __init__(self, loader: Any) -> None:
        self._stands = loader
        self._position, self._loaded, self._times = Position(), None, Times()
        self._claimed_length = self._iterator = None
        kind = getattr(loader, "_dataset_kind", None)
        streams = isinstance(loader.dataset, IterableDataset) if kind is None else kind == 1
        self._streaming = streams

    def __getattr__(self, name: str) -> Any:
        if name in _USUAL:
            return getattr(self._stands, name, _USUAL[name])
        return getattr(self._stands, name)


class Iteration:
    """Iterate over the batches of a loader.

    Args:
        loader: the DataLoader, or an object of others that stands for one.
    """

    _phase = ""  # what profilers call the wait for a batch: PyTorch's words

    def __init__(self, loader: Any) -> None:
        if not hasattr(loader, "_position"):
            loader = _Standing(loader)
        self._loader = loader
        self._streaming = loader._streaming
        self._fetch = (
            loader.dataset,
            self._streaming,
            loader._auto_collation,
            loader.collate_fn,
            loader.drop_last,
        )
        self._pins = loader.pin_memory and has_accelerator()
        # The seed is drawn in any case: what follows must not depend on the number of workers.
        self._keys, self._base_seed = begin_pass(loader, None)
        self._position = loader._position
        piped.seed(loader.dataset, self._position.pipe_seed)
        # A length that is asked for later, as `list` does, claims nothing of this pass.
        self._claimed = loader._claimed_length
        self._yielded = 0
        self._left = 0.0  # when the program got its last batch

    def __iter__(self) -> Iterator[Any]:
        return self

    def __len__(self) -> int:
        return len(self._loader._index_sampler)

    def __getstate__(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} cannot be pickled")

    def reset(self) -> None:
        """Begin another pass."""
        self._keys, _ = begin_pass(self._loader, self._base_seed)
        self._position = self._loader._position
        piped.seed(self._loader.dataset, self._position.pipe_seed)
        self._claimed = self._loader._claimed_length
        self._yielded = 0
        self._left = 0.0

    def drop_read(self) -> None:
        """Read again, and drop, what the program has had of a stream in a pass resumed."""
        if self._streaming:
            for _ in range(self._position.batches):
                self._next()

    def _next(self) -> Any:
        raise NotImplementedError

    def __next__(self) -> Any:
        times, asked = self._loader._times, perf_counter()
        try:
            if phase_is_watched():
                with phase(self._phase):
                    batch = self._next()
            else:
                batch = self._next()
        except StopIteration:
            self._position.end_pass()
            raise
        self._yielded += 1
        self._position.batches += 1
        if self._claimed is not None and self._yielded > self._claimed:
            self._warn_of_length(self._claimed)
        if self._pins:
            batch = pin_memory(batch)
        got = perf_counter()
        if self._left:
            times.step += asked - self._left
            times.wait += got - asked
        else:
            times.first += got - asked
        times.batches += 1
        self._left = got
        return batch

    def _warn_of_length(self, claimed: int) -> None:
        message = (
            f"Length of IterableDataset {self._loader.dataset} was reported to be {claimed}(when "
            f"accessing len(dataloader)), but {self._yielded} samples have been fetched. "
        )
        if self._loader.num_workers:
            message += (
                "For multiprocessing data-loading, this is what happens where each worker reads "
                "the whole stream: the data set is to share it out by get_worker_info()."
            )
        warnings.warn(message, stacklevel=3)


class InProcess(Iteration):
    """Make the batches in the calling process."""

    _phase = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"

    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        if piped.is_pipe(loader.dataset):
            piped.share_in_process(loader.dataset)
        self._make = Fetch(self._loader._times, *self._fetch)

    def _next(self) -> Any:
        return self._make(next(self._keys))


class WithWorkers(Iteration):
    """Have the batches made by worker processes.

    Orders have numbers. `_assigned` has the worker of each order that is not served, and `_early`
    the batches that came before their turn.
    """

    _phase = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"

    def __init__(self, loader: Any) -> None:
        # Here, since without workers nothing of multiprocessing is needed.
        from tangrad.utils.data.workers import Workers

        super().__init__(loader)
        loader = self._loader
        count = loader.num_workers
        place = piped.place_of_process() if piped.is_pipe(loader.dataset) else None
        context = loader.multiprocessing_context or multiprocessing.get_context()

        def task(number: int) -> Task:
            return Task(self._fetch, self._base_seed, loader.worker_init_fn, number, count, place)

        self._workers = Workers(count, context, task)
        self._end = weakref.finalize(self, Workers.close, self._workers)
        self._passes = 0
        self._begin()

    def _begin(self) -> None:
        count = self._loader.num_workers
        self._assigned: dict[int, int] = {}
        self._early: dict[int, Any] = {}
        self._sent = self._turn = 0
        self._active = [True] * count
        self._load = [0] * count
        self._round = itertools.cycle(range(count))
        for _ in range(self._loader.prefetch_factor * count):
            self._order()

    def reset(self) -> None:
        """Begin another pass with the same workers, dropping what is left of the last one.

        Raises:
            RuntimeError: a worker has died.
        """
        super().reset()
        self._passes += 1
        waiting = set(range(self._loader.num_workers))
        resume = Resume(self._passes, self._position.pipe_seed)
        for number in waiting:
            self._workers.send(number, resume)
        while waiting:
            number, (order, *_) = self._receive()
            if order == resume:
                waiting.remove(number)
        self._begin()

    def _receive(self) -> tuple[int, Any]:
        try:
            return self._workers.receive(self._loader.timeout)
        except RuntimeError:
            self._stop()
            raise

    def _stop(self) -> None:
        self._end()
        self._loader._iterator = None
        self._active = [False] * len(self._active)

    def _free_worker(self) -> int | None:
        limit = self._loader.prefetch_factor * len(self._active) // max(1, sum(self._active))
        for number in itertools.islice(self._round, len(self._active)):
            if self._active[number] and (self._loader.in_order or self._load[number] < limit):
                return number
        return None

    def _order(self) -> None:
        """Give the next keys to a worker, if there are any of both."""
        number = self._free_worker()
        if number is None:
            return
        try:
            keys = next(self._keys)
        except StopIteration:
            return
        try:
            self._workers.send(number, (self._sent, keys))
        except RuntimeError:
            self._stop()
            raise
        self._assigned[self._sent] = number
        self._load[number] += 1
        self._sent += 1

    def _next(self) -> Any:
        while True:
            # Orders of a worker whose stream has ended are not served.
            while self._turn < self._sent and not self._expected(self._turn):
                self._assigned.pop(self._turn, None)
                self._turn += 1
            if self._turn == self._sent:
                if not self._loader.persistent_workers:
                    self._stop()
                raise StopIteration
            if self._turn in self._early:
                answer = self._early.pop(self._turn)
                del self._assigned[self._turn]
                return self._served(answer)
            number, (order, answer, *seconds) = self._receive()
            if isinstance(order, Resume):
                continue
            times = self._loader._times
            times.samples += seconds[0]
            times.collate += seconds[1]
            times.transport += seconds[2]
            if phase_is_watched() and (began := seconds[3]):
                process = self._workers.processes[number].pid
                ended = began + seconds[0] + seconds[1]
                done_elsewhere(f"DataLoader worker {number}", process, began, ended)
            if isinstance(answer, StreamEnd):
                self._retire(number)
                continue
            self._load[number] -= 1
            if order == self._turn or not self._loader.in_order:
                del self._assigned[order]
                return self._served(answer)
            self._early[order] = answer

    def _expected(self, order: int) -> bool:
        if order in self._early:
            return True
        number = self._assigned.get(order)
        return number is not None and self._active[number]

    def _retire(self, number: int) -> None:
        self._active[number] = False
        if not self._loader.persistent_workers:
            self._workers.finish(number)
        self._order()

    def _served(self, answer: Any) -> Any:
        self._order()
        if isinstance(answer, Failure):
            answer.reraise()
        return answer


def has_accelerator() -> bool:
    """Return whether a device other than the host is there, for which memory could be pinned."""
    from tangrad import accelerator

    name: str = default_accelerator()
    return name != "cpu" or accelerator.is_available()
