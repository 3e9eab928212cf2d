"""What a run of a model may take: memory for its values, and steps of its loops.

A few bytes of a file can ask for any size: by Tile, by Expand, by a product of two vectors, by
a text that is joined to itself forty times. Sizes are therefore checked before memory is taken,
against what the run may hold at once, and large results are counted while they live.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from tangrad import Tensor
from tangrad_onnx.values import item_size

__all__ = [
    "FACTOR",
    "LEAST_MEMORY",
    "MOST_STEPS",
    "Limits",
    "check_broadcast",
    "check_work",
    "checked_count",
    "current",
    "running",
]

LEAST_MEMORY = 2**30  # bytes that every model may hold, however small it is
FACTOR = 256  # by which a model's values may exceed its weights and inputs together
MOST_STEPS = 250_000  # of all loops of a run; a step takes ten microseconds or more
_LARGE = 2**20  # bytes from which a result is counted
_LEAST_WORK = 2**31  # elements, about two seconds
_MOST_LOOKS = 4096
_WIDEST = 8  # bytes of an element whose dtype is not known yet


class Limits:
    """What one run may take.

    Args:
        memory: bytes of the values that are held at once, or a function that gives them; it is
            called when they matter, and at least `LEAST_MEMORY` is allowed then.
        steps: of all loops.
    """

    def __init__(self, memory: int | Callable[[], int], steps: int) -> None:
        self._memory, self.steps = memory, steps
        self.held = 0
        self._known: dict[int, Any] = {}
        self._taken = 0

    def check(self, nbytes: int, what: Any) -> None:
        """Refuse a value that does not fit.

        Raises:
            ValueError: it and the values that live take more than the limit.
        """
        if nbytes < _LARGE:
            return
        wanted = self.held + nbytes
        if callable(self._memory):
            if wanted <= LEAST_MEMORY:
                return
            self._memory = max(LEAST_MEMORY, self._memory())
        if wanted > self._memory:
            raise ValueError(
                f"{what} takes {nbytes} bytes, beside {self.held} of other large values; this "
                f"model may hold {self._memory}: load it with a larger memory_limit if that is "
                "meant"
            )

    def count(self, value: Any) -> None:
        """Count a result for as long as it lives.

        Raises:
            ValueError: what lives takes more than the limit.
        """
        if isinstance(value, Tensor):
            if value.numel() * value.element_size() < _LARGE or value.device.type == "meta":
                return
            memory = value.untyped_storage()
            place, nbytes = memory.data_ptr(), memory.nbytes()
        elif isinstance(value, (tuple, list)):
            for part in value:
                self.count(part)
            return
        elif isinstance(value, np.ndarray) and value.nbytes >= _LARGE and value.base is None:
            place, nbytes = id(value), value.nbytes
        else:
            return
        if nbytes < _LARGE or place in self._known:
            return
        self.check(nbytes, f"a result of shape {list(value.shape)}")
        self.held += nbytes

        def forget(_: Any) -> None:
            self.held -= nbytes
            self._known.pop(place, None)

        self._known[place] = weakref.ref(value, forget)

    def end(self) -> None:
        """Let go of the function: results that live on hold this object, and it holds inputs."""
        self._memory = LEAST_MEMORY

    def step(self) -> None:
        """Count a step of a loop.

        Raises:
            ValueError: there were too many.
        """
        self._taken += 1
        if self._taken > self.steps:
            raise ValueError(
                f"the loops of this run have taken {self.steps} steps; load the model with a "
                "larger step_limit if that is meant"
            )


_NONE = Limits(LEAST_MEMORY, MOST_STEPS)
_limits: ContextVar[Limits | None] = ContextVar("limits", default=None)


def current() -> Limits:
    """Return the limits of the model that runs, those of a small one where none does."""
    return _limits.get() or _NONE


@contextmanager
def running(limits: Limits) -> Iterator[None]:
    """Have limits hold in the body, unless those of a model around it do."""
    if _limits.get() is not None:
        yield
        return
    token = _limits.set(limits)
    try:
        yield
    finally:
        _limits.reset(token)
        limits.end()


def checked_count(shape: Sequence[int], itemsize: int = _WIDEST) -> int:
    """Return the number of elements of a shape that a model asks for.

    Raises:
        ValueError: a size is negative, or the elements do not fit into what the run may hold.
    """
    if shape and min(shape) < 0:
        raise ValueError(f"a shape has a negative size: {list(shape)}")
    # Sizes beside a 0 take no memory, but loops go over them.
    current().check(math.prod(max(n, 1) for n in shape) * itemsize, f"a shape of {list(shape)}")
    return math.prod(shape)


def check_work(count: int, elements: int, what: str) -> None:
    """Refuse windows that are out of proportion to what they are laid over.

    Args:
        count: elements that are looked at, once for each window that they lie in.
        elements: of the operand.
        what: names the work.

    Raises:
        ValueError: each element is looked at thousands of times, and the work is of seconds.
    """
    if count > max(_LEAST_WORK, _MOST_LOOKS * elements):
        raise ValueError(f"{what} looks at {count} elements, of an operand that has {elements}")


def check_broadcast(*operands: Any, **_: Any) -> None:
    """Refuse operands whose elements, each with each, do not fit and that broadcast to as many.

    Args:
        operands: tensors and arrays; others are not looked at.
    """
    shapes = [tuple(x.shape) for x in operands if isinstance(x, (Tensor, np.ndarray))]
    if len(shapes) < 2 or math.prod(map(math.prod, shapes)) * _WIDEST < _LARGE:
        return
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError:  # the operator says so, if it minds
        return
    itemsize = max(item_size(x) for x in operands if isinstance(x, (Tensor, np.ndarray)))
    current().check(math.prod(shape) * itemsize, f"a result of shape {list(shape)}")
