"""Reading and adding at places of which a mask shows some; the others may lie anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tangrad.ops.definition.define import composite
from tangrad.ops.definition.signature import Scalar, Tensor
from tangrad.ops.indexing.index import index_put


def _brought_inside(self: Any, indices: Sequence[Any]) -> list[Any]:
    """Bring each index tensor into the range of its dimension."""
    return [index.clamp(-size, size - 1) for index, size in zip(indices, self.shape, strict=False)]


@composite(
    method=False,
    samples=lambda s: [
        s(s.tensor(3, 4), s.mask(5), [s.integers(-3, 3, 5), s.integers(0, 4, 5)], 1),
        s(s.tensor(3, 4, strided=True), s.mask(5, 1), [s.integers(0, 3, 5)], 0),
        s(s.tensor(3), s.values([True, False], dtype="bool"), [s.values([1, 9], dtype="int64")], 0),
    ],
)
def _unsafe_masked_index(
    self: Tensor, mask: Tensor, indices: Sequence[Tensor], fill: Scalar
) -> Tensor:
    """Read the places given by index tensors, and `fill` where the mask is False.

    Args:
        indices: integers, a tensor per dimension; those that the mask hides may be out of range.
    """
    return self[tuple(_brought_inside(self, indices))].masked_fill(mask.logical_not(), fill)


@composite(
    method=False,
    samples=lambda s: [
        s(s.tensor(3, 4), s.mask(5), [s.integers(0, 3, 5), s.integers(0, 4, 5)], s.tensor(5)),
        s(s.tensor(3, 4, strided=True), s.mask(5, 1), [s.integers(0, 3, 5)], s.tensor(5, 4)),
        s(
            s.tensor(3),
            s.values([True, False], dtype="bool"),
            [s.values([1, 9], dtype="int64")],
            s.tensor(2),
        ),
    ],
)
def _unsafe_masked_index_put_accumulate(
    self: Tensor, mask: Tensor, indices: Sequence[Tensor], values: Tensor
) -> Tensor:
    """Add values at the places given by index tensors, where the mask is True.

    Args:
        indices: integers, a tensor per dimension; those that the mask hides may be out of range.
    """
    if self.numel() == 0:
        return self.clone()
    shown = values.masked_fill(mask.logical_not(), 0)
    return index_put(self, _brought_inside(self, indices), shown, True)
