"""What runs in a worker process of a loader."""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import traceback
from collections.abc import Callable, Iterator
from itertools import islice
from multiprocessing.connection import wait
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import tangrad
from tangrad.utils.data import piped, transport
from tangrad.utils.data.collate import stacks_tensors
from tangrad.utils.data.dataset import Subset, TensorDataset, rows_at
from tangrad.utils.data.report import Times

if TYPE_CHECKING:
    import socket

# How often, in seconds, a process looks whether the others are alive. The end of a process shows
# at once by the end of its channel, unless another process has inherited that.
LOOK = 5.0


class WorkerInfo(NamedTuple):
    """What a worker process knows of itself.

    Attributes:
        id: its number, from 0.
        num_workers: how many there are.
        seed: what its random numbers started from: the loader's seed and its number.
        dataset: its copy of the data set.
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any
    rng: Any = None
    worker_method: str | None = "multiprocessing"


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """Return what a worker process knows of itself; None in the main process."""
    return _info


class Resume(NamedTuple):
    """Asks a worker to begin another pass; it answers with the same."""

    number: int
    #: What a pipe shuffles by in it.
    pipe_seed: int | None = None


class StreamEnd(NamedTuple):
    """Tells that the stream of a worker has ended."""

    worker: int


class _KeyErrorText(str):
    """A text that KeyError, which shows the repr of its argument, shows as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Failure:
    """An exception on its way to another process, with its traceback as text.

    Args:
        error: the exception.
        where: where it was raised, for the message.
    """

    def __init__(self, error: BaseException, where: str) -> None:
        self.kind: type[BaseException] = type(error)
        self.text = "".join(traceback.format_exception(error))
        self.where = where

    def reraise(self) -> None:
        """Raise an exception of the same type whose message has the traceback.

        Raises:
            BaseException: of the type, or RuntimeError if that is not made of a message.
        """
        message = f"Caught {self.kind.__name__} {self.where}.\nOriginal {self.text}"
        try:
            if self.kind is KeyError:
                error: BaseException = KeyError(_KeyErrorText(message))
            elif getattr(self.kind, "message", None):
                error = self.kind(message=message)  # type: ignore[call-arg]
            else:
                error = self.kind(message)
        except Exception:
            raise RuntimeError(message) from None
        raise error


class Fetch:
    """Make batches of a data set.

    Args:
        times: where the seconds of each stage are added up.
        dataset: the data set.
        streaming: whether it is a stream rather than looked up by keys.
        batched: whether keys come as lists.
        collate: makes a batch of a list of samples, or converts one sample.
        drop_last: whether an incomplete batch ends a stream.
    """

    def __init__(
        self,
        times: Times,
        dataset: Any,
        streaming: bool,
        batched: bool,
        collate: Callable[[Any], Any],
        drop_last: bool,
    ) -> None:
        self.times = times
        self.dataset, self.batched, self.collate, self.drop_last = (
            dataset,
            batched,
            collate,
            drop_last,
        )
        self.stream: Iterator[Any] | None = iter(dataset) if streaming else None
        self.has_rows = batched and type(dataset) in (TensorDataset, Subset)
        self.ended = False

    def __call__(self, keys: Any) -> Any:
        """Return the batch of some keys, or the next of a stream.

        Raises:
            StopIteration: the stream has ended.
        """
        begun = self.times.began = perf_counter()
        if self.has_rows and stacks_tensors(self.collate):
            rows = rows_at(self.dataset, keys)
            if rows is not None:
                self.times.samples += perf_counter() - begun
                return rows
        samples = self._lookup(keys) if self.stream is None else self._next(keys)
        loaded = perf_counter()
        batch = self.collate(samples)
        self.times.samples += loaded - begun
        self.times.collate += perf_counter() - loaded
        return batch

    def _lookup(self, keys: Any) -> Any:
        if not self.batched:
            return self.dataset[keys]
        many = getattr(self.dataset, "__getitems__", None)
        return many(keys) if callable(many) else [self.dataset[key] for key in keys]

    def _next(self, keys: Any) -> Any:
        assert self.stream is not None
        if self.ended:
            raise StopIteration
        if not self.batched:
            return next(self.stream)
        samples = list(islice(self.stream, len(keys)))
        self.ended = len(samples) < len(keys)
        if not samples or (self.drop_last and self.ended):
            raise StopIteration
        return samples


class Task(NamedTuple):
    """What a worker is started with."""

    fetch: tuple[Any, ...]  # arguments of Fetch but the first
    base_seed: int
    init: Callable[[int], None] | None
    worker: int
    num_workers: int
    #: For pipes: how many processes train together, and the number of the loader's.
    place: tuple[int, int] | None = None

    @property
    def streaming(self) -> bool:
        """Whether the data set is a stream."""
        return bool(self.fetch[1])


def _generate_state(base_seed: int, worker_id: int) -> list[int]:
    """Return four numbers of 32 bits for a generator of one worker, as NumPy mixes them."""
    import numpy

    entropy = [worker_id, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]
    return [int(word) for word in numpy.random.SeedSequence(entropy).generate_state(4)]


def _seed(base_seed: int, worker: int) -> int:
    seed = base_seed + worker
    random.seed(seed)
    tangrad.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        # Seeds of NumPy that differ little give streams alike, so this one is mixed.
        words = [worker, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]
        numpy.random.seed(numpy.random.SeedSequence(words).generate_state(4))
    return seed


def run(channel: socket.socket, inherited: list[socket.socket], task: Task) -> None:
    """Serve batches until the loader closes the channel or ends.

    Args:
        channel: to the loader.
        inherited: the loader's ends of channels, which a forked process has as well.
        task: what to do.
    """
    global _info
    for other in inherited:
        other.close()
    try:
        # The processes are what runs in parallel here.
        tangrad.set_num_threads(1)
        seed = _seed(task.base_seed, task.worker)
        _info = WorkerInfo(task.worker, task.num_workers, seed, task.fetch[0])
        _serve(channel, task)
    except (KeyboardInterrupt, EOFError, ConnectionError):
        pass
    finally:
        channel.close()


def _serve(channel: socket.socket, task: Task) -> None:
    where = f"in DataLoader worker process {task.worker}"
    failure: Failure | None = None
    fetch: Fetch | None = None
    ended = False
    times = Times()
    try:
        if task.place is not None:
            worker = task.num_workers, task.worker
            piped.share_in_worker(task.fetch[0], task.place, worker)
        if task.init is not None:
            task.init(task.worker)
        fetch = Fetch(times, *task.fetch)
    except Exception as error:
        failure = Failure(error, where)
    parent = os.getppid()
    while _wait_for_order(channel, parent):
        order = transport.receive(channel)
        if isinstance(order, Resume):
            ended = False
            try:
                piped.seed(task.fetch[0], order.pipe_seed)
                fetch = Fetch(times, *task.fetch)
            except Exception as error:
                failure = Failure(error, where)
            transport.Message((order, None)).send(channel)
            continue
        if ended:
            continue
        number, keys = order
        if failure is not None or fetch is None:
            answer: Any = failure
            # It is told once; without a data set, that is the answer to everything.
            failure = failure if fetch is None else None
        else:
            answer, ended = _answer(fetch, keys, task, where)
        begun = perf_counter()
        _send(channel, number, answer, times, where)
        # How long it took is told with the next batch: this one is gone.
        times.samples = times.collate = 0.0
        times.transport = perf_counter() - begun


def _answer(fetch: Fetch, keys: Any, task: Task, where: str) -> tuple[Any, bool]:
    try:
        return fetch(keys), False
    except Exception as error:
        if isinstance(error, StopIteration) and task.streaming:
            return StreamEnd(task.worker), True
        return Failure(error, where), False


def _send(channel: socket.socket, number: int, answer: Any, times: Times, where: str) -> None:
    seconds = (times.samples, times.collate, times.transport, times.began)
    try:
        message = transport.Message((number, answer, *seconds))
    except Exception as error:
        if isinstance(answer, Failure):  # its type is known in this process only
            answer.kind = RuntimeError
        else:
            answer = Failure(error, where)
        message = transport.Message((number, answer, *seconds))
    message.send(channel)


def _wait_for_order(channel: socket.socket, parent: int) -> bool:
    loader = multiprocessing.parent_process()
    sentinels = [loader.sentinel] if loader is not None else []
    while os.getppid() == parent:
        ready = wait([channel, *sentinels], LOOK)
        if channel in ready:
            return True
        if ready:
            return False
    return False
