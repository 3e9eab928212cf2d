"""Loops over elements: operands broadcast to one shape, dimensions merged where memory allows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Loop(NamedTuple):
    """A loop over elements.

    Attributes:
        shape: sizes of its dimensions, outermost first, at least one.
        strides: of each operand, in elements; 0 where it is broadcast.
        elements: how many elements there are.
    """

    shape: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    elements: int

    @property
    def dense(self) -> bool:
        """Whether every operand lies as the loop goes, or is one element for all."""
        return len(self.shape) == 1 and all(s[0] in (0, 1) for s in self.strides)

    def padded(self, ndim: int) -> list[int]:
        """Return shape and strides one after the other, with leading dimensions of size 1."""
        fill = ndim - len(self.shape)
        numbers = [1] * fill + list(self.shape)
        for strides in self.strides:
            numbers += [0] * fill
            numbers += strides
        return numbers


Geometry = tuple[tuple[int, ...], tuple[int, ...]]


def broadcast(operand: Geometry, shape: Sequence[int]) -> list[int]:
    """Return an operand's strides for a loop over a shape that it broadcasts to."""
    own, strides = operand
    lead = len(shape) - len(own)
    return [0] * lead + [
        0 if size == 1 and shape[lead + d] != 1 else stride
        for d, (size, stride) in enumerate(zip(own, strides, strict=True))
    ]


def loop_over(shape: Sequence[int], operands: Sequence[Geometry], *, reorder: bool = True) -> Loop:
    """Return the shortest loop over a shape.

    Args:
        shape: of the loop.
        operands: (shape, strides in elements) of each; the first decides the order.
        reorder: whether elements may be visited in another order than that of their index.
    """
    strides = [broadcast(operand, shape) for operand in operands]
    places = [d for d, size in enumerate(shape) if size != 1]
    count = 1
    for size in shape:
        count *= size
    if reorder and strides:
        places.sort(key=lambda d: -abs(strides[0][d]))
    merged: list[int] = []
    found: list[list[int]] = [[] for _ in strides]
    for d in places:
        size, steps = shape[d], [s[d] for s in strides]
        if merged and all(f[-1] == step * size for f, step in zip(found, steps, strict=True)):
            merged[-1] *= size
            for f, step in zip(found, steps, strict=True):
                f[-1] = step
            continue
        merged.append(size)
        for f, step in zip(found, steps, strict=True):
            f.append(step)
    if not merged:
        return Loop((1,), tuple((0,) for _ in strides), count)
    return Loop(tuple(merged), tuple(map(tuple, found)), count)


def rank_for(ndim: int) -> int:
    """Return for how many dimensions a kernel is compiled that serves so many."""
    return next(rank for rank in (2, 4, 8, 16, 64) if ndim <= rank)
