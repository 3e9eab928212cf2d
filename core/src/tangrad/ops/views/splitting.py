"""Define the cuts along a named axis (hsplit, vsplit, dsplit) and the ones that forget the base."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tangrad import _C
from tangrad.ops.definition.define import composite
from tangrad.ops.definition.signature import Dim, Tensor
from tangrad.ops.views.geometry import Ints
from tangrad.ops.views.movement import _unsafe_view
from tangrad.ops.views.slicing import chunk, refuse_bools, split_with_sizes

_NAMES = {"sections": "indices_or_sections", "indices": "indices_or_sections"}


def _split_along(name: str, self: Any, where: Any, dim: int, least: int) -> Any:
    refuse_bools(name, where)
    if self.ndim < least:
        raise RuntimeError(
            f"torch.{name} requires a tensor with at least {least} dimension, but got a tensor "
            f"with {self.ndim} dimensions!"
        )
    size = self.shape[dim]
    if isinstance(where, int) and (where == 0 or (where > 0 and size % where)):
        raise RuntimeError(
            f"torch.{name} attempted to split along dimension {dim}, but the size of the dimension "
            f"{size} is not divisible by the split_size {where}!"
        )
    return self.tensor_split(where, dim)


@composite(
    names=_NAMES,
    samples=lambda s: [s(s.tensor(4), 2), s(s.tensor(2, 6), 3), s(s.tensor(2, 5, 2), (1, 4))],
    errors=lambda s: [
        (s(s.tensor(), 1), RuntimeError, "at least 1 dimension"),
        (s(s.tensor(2, 3), 2), RuntimeError, "not divisible"),
        (s(s.tensor(4), -1), RuntimeError, "larger than 0"),
    ],
)
def hsplit(self: Tensor, indices_or_sections: Any) -> Sequence[Tensor]:
    """Cut into columns: along the second dimension, a vector along its only one."""
    return _split_along("hsplit", self, indices_or_sections, 0 if self.ndim == 1 else 1, 1)


@composite(
    names=_NAMES,
    samples=lambda s: [s(s.tensor(4, 2), 2), s(s.tensor(5, 2, 2), (1, 4))],
    errors=lambda s: [
        (s(s.tensor(4), 2), RuntimeError, "at least 2 dimension"),
        (s(s.tensor(3, 2), 2), RuntimeError, "not divisible"),
        (s(s.tensor(4, 2), True), TypeError, "vsplit"),
        (s(s.tensor(4, 2), (True,)), TypeError, "vsplit"),
    ],
)
def vsplit(self: Tensor, indices_or_sections: Any) -> Sequence[Tensor]:
    """Cut into rows: along the first dimension."""
    return _split_along("vsplit", self, indices_or_sections, 0, 2)


@composite(
    names=_NAMES,
    samples=lambda s: [s(s.tensor(2, 2, 4), 2), s(s.tensor(2, 1, 5), (1, 4))],
    errors=lambda s: [
        (s(s.tensor(4, 4), 2), RuntimeError, "at least 3 dimension"),
        (s(s.tensor(2, 2, 3), 2), RuntimeError, "not divisible"),
    ],
)
def dsplit(self: Tensor, indices_or_sections: Any) -> Sequence[Tensor]:
    """Cut in depth: along the third dimension."""
    return _split_along("dsplit", self, indices_or_sections, 2, 3)


def _forgetting(pieces: Any) -> Any:
    """Give pieces that share memory with their source but neither its history nor its version."""
    return tuple(_C.with_own_version(_unsafe_view(piece, tuple(piece.shape))) for piece in pieces)


@composite(samples=chunk.definition.samples, errors=chunk.definition.errors)
def unsafe_chunk(self: Tensor, chunks: int, dim: Dim = 0) -> Sequence[Tensor]:
    """Cut a dimension as `chunk` does; writing to a piece does not reach the history of `self`."""
    return _forgetting(chunk(self, chunks, dim))


@composite(
    samples=lambda s: [s(s.tensor(5, 2), 2), s(s.tensor(2, 6), 3, -1), s(s.tensor(0, 2), 2)],
    errors=lambda s: [(s(s.tensor(3), 0), RuntimeError, "can only be 0")],
)
def unsafe_split(self: Tensor, split_size: int, dim: Dim = 0) -> Sequence[Tensor]:
    """Cut a dimension as `split` does; writing to a piece does not reach the history of `self`."""
    return _forgetting(self.split(split_size, dim))


@composite(samples=split_with_sizes.definition.samples, errors=split_with_sizes.definition.errors)
def unsafe_split_with_sizes(self: Tensor, split_sizes: Ints, dim: Dim = 0) -> Sequence[Tensor]:
    """Cut a dimension as `split` does; writing to a piece does not reach the history of `self`."""
    return _forgetting(split_with_sizes(self, split_sizes, dim))
