"""Reading and adding at places of which a mask shows some; the others may lie anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tangrad.ops.definition.define import composite
from tangrad.ops.indexing.index import index_put


def _brought_inside(self: Any, indices: Sequence[Any]) -> list[Any]:
    """Bring each index tensor into the range of its dimension."""
    return [index.clamp(-size, size - 1) for index, size in zip(indices, self.shape, strict=False)]


@composite(
    "_unsafe_masked_index(Tensor self, Tensor mask, Tensor[] indices, Scalar fill) -> Tensor",
    method=False,
    samples=lambda s: [
        s(s.tensor(3, 4), s.mask(5), [s.integers(-3, 3, 5), s.integers(0, 4, 5)], 1),
        s(s.tensor(3, 4, strided=True), s.mask(5, 1), [s.integers(0, 3, 5)], 0),
        s(s.tensor(3), s.values([True, False], dtype="bool"), [s.values([1, 9], dtype="int64")], 0),
    ],
)
def _unsafe_masked_index(self: Any, mask: Any, indices: Sequence[Any], fill: Any) -> Any:
    """Read the places given by index tensors, and `fill` where the mask is False.

    Args:
        indices: integers, a tensor per dimension; those that the mask hides may be out of range.
    """
    return self[tuple(_brought_inside(self, indices))].masked_fill(mask.logical_not(), fill)


@composite(
    "_unsafe_masked_index_put_accumulate(Tensor self, Tensor mask, Tensor[] indices,"
    " Tensor values) -> Tensor",
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
    self: Any, mask: Any, indices: Sequence[Any], values: Any
) -> Any:
    """Add values at the places given by index tensors, where the mask is True.

    Args:
        indices: integers, a tensor per dimension; those that the mask hides may be out of range.
    """
    if self.numel() == 0:
        return self.clone()
    shown = values.masked_fill(mask.logical_not(), 0)
    return index_put(self, _brought_inside(self, indices), shown, True)
