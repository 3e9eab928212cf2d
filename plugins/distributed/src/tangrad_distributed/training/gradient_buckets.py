"""Gradients in buckets: which parameters share one, and what a hook sees of it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

import tangrad


class BuiltinCommHookType(Enum):
    """Name the hooks that come with the package."""

    ALLREDUCE = 1
    FP16_COMPRESS = 2


def cut_into_buckets(parameters: Sequence[Any], sizes: Sequence[int]) -> list[list[int]]:
    """Return which parameters share a bucket, in the order in which backward reaches them.

    Backward reaches the last parameters first. A small first bucket has communication begin early.

    Args:
        parameters: in the order of their module.
        sizes: how many bytes the first, second, ... bucket may have; the last holds for all others.
    """
    buckets: list[list[int]] = []
    filled: dict[tuple[Any, Any], tuple[list[int], int]] = {}
    for index in reversed(range(len(parameters))):
        parameter = parameters[index]
        kind = (parameter.dtype, parameter.device)
        members, nbytes = filled.get(kind, ([], 0))
        size = parameter.numel() * parameter.element_size()
        limit = sizes[min(len(buckets), len(sizes) - 1)]
        members.append(index)
        if nbytes + size >= limit:
            buckets.append(members)
            filled.pop(kind, None)
        else:
            filled[kind] = (members, nbytes + size)
    return buckets + [members for members, _ in filled.values()]


class GradBucket:
    """Show a hook the gradients that are communicated together.

    Args:
        index: which bucket.
        buffer: the gradients, one behind the other, (n,).
        parameters: whose gradients they are.
        is_last: whether it is the last of this backward.
    """

    def __init__(self, index: int, buffer: Any, parameters: list[Any], is_last: bool) -> None:
        self._index, self._buffer = index, buffer
        self._parameters, self._is_last = parameters, is_last

    def index(self) -> int:
        """Return which bucket it is; 0 is ready first."""
        return self._index

    def buffer(self) -> Any:
        """Return the gradients, one behind the other."""
        return self._buffer

    def set_buffer(self, buffer: Any) -> None:
        """Replace the gradients."""
        self._buffer = buffer

    def gradients(self) -> list[Any]:
        """Return the gradients, each in its parameter's shape, as views of the buffer."""
        sizes = [parameter.numel() for parameter in self._parameters]
        parts = self._buffer.split(sizes)
        return [part.view_as(p) for part, p in zip(parts, self._parameters, strict=True)]

    def parameters(self) -> list[Any]:
        """Return whose gradients they are."""
        return list(self._parameters)

    def is_last(self) -> bool:
        """Tell whether it is the last of this backward."""
        return self._is_last


class Bucket:
    """Gather gradients until all of its parameters have theirs.

    Args:
        index: which bucket.
        members: places of its parameters among all.
        parameters: its parameters.
    """

    def __init__(self, index: int, members: list[int], parameters: list[Any]) -> None:
        self.index, self.members, self.parameters = index, members, parameters
        first = parameters[0]
        sizes = [parameter.numel() for parameter in parameters]
        self.buffer = tangrad.zeros(sum(sizes), dtype=first.dtype, device=first.device)
        parts = self.buffer.split(sizes)
        self.views = [part.view_as(p) for part, p in zip(parts, parameters, strict=True)]
        self.missing = len(parameters)

    def take(self, place: int, keep: bool) -> None:
        """Take over a parameter's gradient, zeros without one.

        Args:
            place: which parameter.
            keep: let its gradient be the bucket's from now on.
        """
        parameter, view = self.parameters[place], self.views[place]
        gradient = parameter.grad
        if gradient is None:
            view.zero_()
        elif not keep or gradient.data_ptr() != view.data_ptr():
            view.copy_(gradient.detach())
            if keep:
                parameter.grad = view
        self.missing -= 1
