"""Define the lists of places: of nonzero elements, to a fixed length, and of flat positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tangrad
from tangrad import _C
from tangrad.ops.definition.define import composite
from tangrad.ops.definition.signature import Tensor


@composite(
    out=True,
    samples=lambda s: [
        s(s.mask(2, 3), size=8),
        s(s.values([[1, 0], [0, 1]]), size=1, fill_value=7),
        s(s.tensor(), size=2),
        s(s.mask(3), size=0),
        s(s.integers(0, 2, 2, 3, strided=True), size=4),
    ],
    errors=lambda s: [(s(s.tensor(3), size=-1), RuntimeError, "non-negative")],
)
def nonzero_static(self: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """List the places of the elements that are not zero, cut or filled up to `size` rows."""
    if size < 0:
        raise RuntimeError(f"nonzero_static: 'size' must be an non-negative integer, got {size}")
    if _C.get_intercept() is None and type(self) is tangrad.Tensor and not self.is_meta:
        # Nothing but the result has to have a size that is known beforehand.
        found = self.nonzero()[:size]
        rest = found.new_full((size - found.shape[0], self.ndim), fill_value)
        return tangrad.cat([found, rest])
    flat = (self != 0).reshape((-1,))
    count = flat.shape[0]
    # The k-th of them is written to place k, all that is too much or zero to one place more.
    number = flat.to(tangrad.int64).cumsum(0)
    place = (number - 1).where(flat & (number <= size), size)
    found = tangrad.full((size + 1,), count, dtype=tangrad.int64, device=self.device)
    found = found.scatter(0, place, tangrad.arange(count, device=self.device)).narrow(0, 0, size)
    if self.ndim == 0:
        return found.new_empty((size, 0))
    if count == 0:
        return found.new_full((size, self.ndim), fill_value)
    known = tangrad.arange(size, device=self.device) < number.select(0, count - 1)
    columns = unravel_index(found, tuple(self.shape))
    return tangrad.stack([column.where(known, fill_value) for column in columns], 1)


def _as_shape(shape: Any) -> tuple[int, ...]:
    listed = (shape,) if isinstance(shape, int) else shape
    if isinstance(listed, Sequence) and any(not hasattr(n, "__index__") for n in listed):
        raise TypeError(
            f"unravel_index(): expected 'shape' sequence to only contain ints, but got {shape!r}"
        )
    if not isinstance(listed, Sequence):
        raise TypeError(
            f"unravel_index(): expected 'shape' to be int or sequence of ints, got {shape!r}"
        )
    sizes = tuple(int(n) for n in listed)
    if any(n < 0 for n in sizes):
        raise ValueError(f"'shape' cannot have negative values, but got {sizes}")
    return sizes


@composite(
    method=False,
    dtypes="integral",
    samples=lambda s: [
        s(s.integers(0, 24, 5), (2, 3, 4)),
        s(s.integers(0, 6, 2, 2), (2, 3)),
        s(s.integers(0, 4), 4),
        s(s.integers(0, 6, 0), (2, 3)),
        s(s.integers(0, 6, 3, dtype="int32"), (2, 3)),
    ],
    errors=lambda s: [
        (s(s.integers(0, 1, 1), (2, 0)), RuntimeError, "no element"),
        (s(s.tensor(2, dtype="float32"), (2, 3)), TypeError, "integer dtype"),
        (s(s.integers(0, 1, 1), (-2, 3)), ValueError, "negative"),
        (s(s.integers(0, 1, 1), 1.5), TypeError, "shape"),
    ],
)
def unravel_index(indices: Tensor, shape: Any) -> Sequence[Tensor]:
    """Turn flat positions in a tensor of a shape into one index tensor per dimension.

    Args:
        indices: integers; the first dimension's index wraps where one is out of range.
        shape: an int or a sequence of ints.
    """
    dtype = indices.dtype
    if dtype.is_complex or dtype.is_floating_point or dtype == tangrad.bool:
        raise TypeError(f"expected 'indices' to be integer dtype, but got {dtype}")
    sizes = _as_shape(shape)
    if 0 in sizes and indices.numel():
        raise RuntimeError(f"unravel_index(): a tensor of shape {sizes} has no element")
    if not sizes:
        return ()
    steps = [1]
    for size in reversed(sizes[1:]):
        steps.append(steps[-1] * max(size, 1))
    places = indices.to(tangrad.int64).unsqueeze(-1)
    step, extent = (
        tangrad.tensor(numbers, dtype=tangrad.int64, device=indices.device)
        for numbers in (steps[::-1], [max(size, 1) for size in sizes])
    )
    return places.div(step, rounding_mode="floor").remainder(extent).unbind(-1)
