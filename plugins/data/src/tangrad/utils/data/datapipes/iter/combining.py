"""Pipes of several pipes, and several pipes of one."""

from __future__ import annotations

import copy as copying
import itertools
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from tangrad.utils.data.datapipes import IterDataPipe, functional_datapipe, invalidated
from tangrad.utils.data.datapipes.utils.common import (
    StreamWrapper,
    _check_unpickable_fn,
    length_of,
)

__all__ = [
    "ConcaterIterDataPipe",
    "DemultiplexerIterDataPipe",
    "ForkerIterDataPipe",
    "MultiplexerIterDataPipe",
    "ZipperIterDataPipe",
]


def _checked(pipes: tuple[Any, ...], what: str) -> tuple[Any, ...]:
    if not all(isinstance(pipe, IterDataPipe) for pipe in pipes):
        raise TypeError(what)
    return pipes


@functional_datapipe("concat")
class ConcaterIterDataPipe(IterDataPipe[Any]):
    """Hand on the samples of one pipe after those of another.

    Raises:
        ValueError: there is no pipe.
        TypeError: one is none.
    """

    def __init__(self, *datapipes: Any) -> None:
        if not datapipes:
            raise ValueError("Expected at least one DataPipe, but got nothing")
        self.datapipes = _checked(datapipes, "Expected all inputs to be `IterDataPipe`")

    def __iter__(self) -> Iterator[Any]:
        for pipe in self.datapipes:
            yield from pipe

    def __len__(self) -> int:
        return sum(length_of(self, pipe) for pipe in self.datapipes)


@functional_datapipe("mux")
class MultiplexerIterDataPipe(IterDataPipe[Any]):
    """Hand on a sample of each pipe in turn, until one has none."""

    def __init__(self, *datapipes: Any) -> None:
        self.datapipes = datapipes

    def __iter__(self) -> Iterator[Any]:
        for samples in zip(*self.datapipes, strict=False):
            yield from samples

    def __len__(self) -> int:
        return length_of(self, *self.datapipes) * len(self.datapipes)


@functional_datapipe("zip")
class ZipperIterDataPipe(IterDataPipe[Any]):
    """Hand on tuples of a sample of each pipe, until one has none.

    Raises:
        TypeError: one is no pipe.
    """

    def __init__(self, *datapipes: Any) -> None:
        self.datapipes = _checked(
            datapipes, "All inputs are required to be `IterDataPipe` for `ZipIterDataPipe`."
        )

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        yield from zip(*self.datapipes, strict=False)

    def __len__(self) -> int:
        return length_of(self, *self.datapipes)


class _Container(IterDataPipe[Any]):
    """What pipes out of one share: its iterator, and the samples that not all have taken.

    Its children have iterators of one generation: where one of them begins again, the container
    does, and the others' iterators are over.
    """

    main_datapipe: Any
    num_instances: int

    def get_next_element_by_instance(self, instance_id: int) -> Iterator[Any]:
        """Iterate over what a child hands on."""
        raise NotImplementedError

    def get_length_by_instance(self, instance_id: int) -> int:
        """Return how many samples a child hands on.

        Raises:
            TypeError: that is not known.
        """
        raise TypeError(f"{type(self).__name__} instance doesn't have valid length")

    def is_every_instance_exhausted(self) -> bool:
        """Return whether all children have come to the end."""
        raise NotImplementedError

    def begin(self, child: _ChildDataPipe) -> None:
        """Let a child begin: with a new generation, if it has had an iterator of this one."""
        if self._valid_iterator_id is None:
            self._valid_iterator_id = 0
        elif self._valid_iterator_id == child._valid_iterator_id:
            self._valid_iterator_id += 1
            if not self.is_every_instance_exhausted():
                warnings.warn(
                    "Some child DataPipes are not exhausted when __iter__ is called. We are "
                    "resetting the buffer and each child DataPipe will read from the start again.",
                    UserWarning,
                    stacklevel=4,
                )
            self.reset()
        child._valid_iterator_id = self._valid_iterator_id

    def _hooked(self, *state: Any) -> Any:
        hook = IterDataPipe.getstate_hook
        return state if hook is None else hook(state)


class _ChildDataPipe(IterDataPipe[Any]):
    """One of several pipes out of one.

    Args:
        main_datapipe: what they share.
        instance_id: the number of this one.
    """

    _is_child_datapipe = True

    def __init__(self, main_datapipe: Any, instance_id: int) -> None:
        if not isinstance(main_datapipe, _Container):
            raise AssertionError("main_datapipe must be what several pipes share")
        self.main_datapipe, self.instance_id = main_datapipe, instance_id

    def reset(self) -> None:
        """Begin anew."""
        self.main_datapipe.begin(self)

    def __iter__(self) -> Iterator[Any]:
        # `reset` has run: the generation is that of this iterator.
        return self._samples(self._valid_iterator_id)

    def _samples(self, generation: int | None) -> Iterator[Any]:
        inner = self.main_datapipe.get_next_element_by_instance(self.instance_id)
        while True:
            if self.main_datapipe._valid_iterator_id != generation:
                raise invalidated(self)
            try:
                sample = next(inner)
            except StopIteration:
                return
            yield sample

    def __len__(self) -> int:
        found: int = self.main_datapipe.get_length_by_instance(self.instance_id)
        return found


_COPIES: dict[Any, Callable[[Any], Any]] = {
    "shallow": copying.copy,
    "deep": copying.deepcopy,
}


def _same(sample: Any) -> Any:
    return sample


@functional_datapipe("fork")
class ForkerIterDataPipe(IterDataPipe[Any]):
    """Make several pipes of the same samples.

    Args:
        datapipe: where samples come from.
        num_instances: how many pipes.
        buffer_size: how many samples one may be ahead of another; -1: any number.
        copy: None, "shallow" or "deep": how samples are copied for each.

    Returns:
        The pipes; of one, the pipe itself.

    Raises:
        ValueError: there would be none, or copies are to be made in another way.
        BufferError: in iteration, where one is too far ahead.
    """

    def __new__(
        cls, datapipe: Any, num_instances: int, buffer_size: int = 1000, copy: str | None = None
    ) -> Any:
        """Make the pipes."""
        if num_instances < 1:
            raise ValueError(
                f"Expected `num_instances` larger than 0, but {num_instances} is found"
            )
        if num_instances == 1:
            return datapipe
        shared = _ForkerIterDataPipe(datapipe, num_instances, buffer_size, copy)
        return [_ChildDataPipe(shared, number) for number in range(num_instances)]


def _warn_of_no_limit(buffer_size: int, name: str) -> None:
    if buffer_size < 0:
        warnings.warn(
            f"Unlimited buffer size is set for `{name}`, please be aware of OOM at random places",
            UserWarning,
            stacklevel=4,
        )


class _ForkerIterDataPipe(_Container):
    def __init__(
        self, datapipe: Any, num_instances: int, buffer_size: int = 1000, copy: str | None = None
    ) -> None:
        if copy is not None and copy not in _COPIES:
            raise ValueError(
                f"Unknown copy method `{copy}` requested, choose one of None, `shallow` or `deep`."
            )
        _warn_of_no_limit(buffer_size, "fork")
        self.main_datapipe, self.num_instances = datapipe, num_instances
        self.buffer_size, self.copy_fn = buffer_size, _COPIES.get(copy, _same)
        self.reset()

    def reset(self) -> None:
        """Begin anew."""
        self._source: Iterator[Any] | None = None
        self._held: deque[Any] = deque()
        self._taken = [0] * self.num_instances
        self._dropped = 0
        self._end: int | None = None

    def get_next_element_by_instance(self, instance_id: int) -> Iterator[Any]:
        """Iterate over the samples, those that others have taken first."""
        while (number := self._taken[instance_id]) != self._end:
            if number == self._dropped + len(self._held) and not self._fetch(number):
                return
            sample = self._held[number - self._dropped]
            self._taken[instance_id] += 1
            while self._held and self._dropped < min(self._taken):
                self._held.popleft()
                self._dropped += 1
            yield self.copy_fn(sample)

    def _fetch(self, number: int) -> bool:
        """Take a sample of the source; return whether there is one."""
        if self._source is None:
            self._source = iter(self.main_datapipe)
        try:
            self._held.append(next(self._source))
        except StopIteration:
            self._end = number
            return False
        if 0 <= self.buffer_size < number + 1 - min(self._taken):
            raise BufferError(
                "ForkerIterDataPipe buffer overflow, buffer size "
                f"{self.buffer_size} is insufficient."
            )
        return True

    def is_every_instance_exhausted(self) -> bool:
        """Return whether all children have come to the end."""
        return all(taken == self._end for taken in self._taken)

    def get_length_by_instance(self, instance_id: int) -> int:
        """Return how many samples a child hands on."""
        return length_of(self, self.main_datapipe)

    def __len__(self) -> int:
        return length_of(self, self.main_datapipe)

    def __getstate__(self) -> Any:
        return self._hooked(self.main_datapipe, self.num_instances, self.buffer_size, self.copy_fn)

    def __setstate__(self, state: Any) -> None:
        self.main_datapipe, self.num_instances, self.buffer_size, self.copy_fn = state
        self.reset()

    def __del__(self) -> None:
        StreamWrapper.close_streams(list(self.__dict__.get("_held", ())))


@functional_datapipe("demux")
class DemultiplexerIterDataPipe(IterDataPipe[Any]):
    """Make several pipes, each of the samples that a function gives its number.

    Args:
        datapipe: where samples come from.
        num_instances: how many pipes.
        classifier_fn: sample -> number of its pipe, or None.
        drop_none: whether samples of None are left out, and not an error.
        buffer_size: how many samples wait at most; -1: any number.

    Returns:
        The pipes.

    Raises:
        ValueError: there would be none; in iteration, if a number has no pipe.
        BufferError: in iteration, where too many wait.
    """

    def __new__(
        cls,
        datapipe: Any,
        num_instances: int,
        classifier_fn: Callable[[Any], int | None],
        drop_none: bool = False,
        buffer_size: int = 1000,
    ) -> Any:
        """Make the pipes."""
        if num_instances < 1:
            raise ValueError(
                f"Expected `num_instances` larger than 0, but {num_instances} is found"
            )
        _check_unpickable_fn(classifier_fn)
        shared = _DemultiplexerIterDataPipe(
            datapipe, num_instances, classifier_fn, drop_none, buffer_size
        )
        return [_ChildDataPipe(shared, number) for number in range(num_instances)]


class _DemultiplexerIterDataPipe(_Container):
    def __init__(
        self,
        datapipe: Any,
        num_instances: int,
        classifier_fn: Callable[[Any], int | None],
        drop_none: bool,
        buffer_size: int,
    ) -> None:
        _warn_of_no_limit(buffer_size, "demux")
        self.main_datapipe, self.num_instances = datapipe, num_instances
        self.classifier_fn, self.drop_none = classifier_fn, drop_none
        self.buffer_size = buffer_size
        self.reset()

    def reset(self) -> None:
        """Begin anew."""
        self._source: Iterator[Any] | None = None
        self._waiting: list[deque[Any]] = [deque() for _ in range(self.num_instances)]
        self._ended = False

    def get_next_element_by_instance(self, instance_id: int) -> Iterator[Any]:
        """Iterate over the samples of a child, those that wait first."""
        mine = self._waiting[instance_id]
        while mine or self._fetch(instance_id):
            yield mine.popleft()

    def _fetch(self, wanted: int) -> bool:
        """Take samples of the source until one is wanted; return whether there is one."""
        if self._source is None and not self._ended:
            self._source = iter(self.main_datapipe)
        for sample in self._source or ():
            number = self.classifier_fn(sample)
            if number is None and self.drop_none:
                StreamWrapper.close_streams(sample)
                continue
            if number is None or not 0 <= number < self.num_instances:
                raise ValueError(
                    "Output of the classification fn should be between 0 and "
                    f"{self.num_instances - 1}. {number} is returned."
                )
            self._waiting[number].append(sample)
            if number == wanted:
                return True
            if 0 <= self.buffer_size < sum(map(len, self._waiting)):
                raise BufferError(
                    "DemultiplexerIterDataPipe buffer overflow, buffer size "
                    f"{self.buffer_size} is insufficient."
                )
        self._source, self._ended = None, True
        return False

    def is_every_instance_exhausted(self) -> bool:
        """Return whether all children have come to the end."""
        return self._ended and not any(self._waiting)

    def __getstate__(self) -> Any:
        options = self.buffer_size, self.classifier_fn, self.drop_none
        return self._hooked(self.main_datapipe, self.num_instances, *options)

    def __setstate__(self, state: Any) -> None:
        self.main_datapipe, self.num_instances, self.buffer_size, *rest = state
        self.classifier_fn, self.drop_none = rest
        self.reset()

    def __del__(self) -> None:
        StreamWrapper.close_streams(
            list(itertools.chain.from_iterable(self.__dict__.get("_waiting", ())))
        )
