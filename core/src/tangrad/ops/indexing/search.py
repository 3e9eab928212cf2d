"""Define the search in sorted rows: searchsorted and bucketize."""

from __future__ import annotations

import math
from typing import Any

import tangrad
from tangrad.ops.definition.define import composite, op
from tangrad.ops.definition.signature import Operand, Tensor
from tangrad.ops.views.geometry import batched_front


def _search(np: Any, sorted_sequence: Any, self: Any, right: bool) -> Any:
    which = "right" if right else "left"
    if sorted_sequence.ndim == 1:
        return np.searchsorted(sorted_sequence, self, which).astype(np.int64)
    count = math.prod(sorted_sequence.shape[:-1])
    rows = zip(
        sorted_sequence.reshape(count, sorted_sequence.shape[-1]),
        self.reshape(count, self.shape[-1]),
        strict=True,
    )
    found = [np.searchsorted(row, values, which) for row, values in rows]
    return np.asarray(found, np.int64).reshape(self.shape)


def _check_search(sorted_sequence: Any, self: Any) -> None:
    if self.dtype.is_complex or sorted_sequence.dtype != self.dtype:
        raise RuntimeError(
            "_searchsorted: expected real tensors of one dtype, got "
            f"{sorted_sequence.dtype} and {self.dtype}"
        )


def _search_batched(
    size: int, dims: Any, sorted_sequence: Any, self: Any, right: bool
) -> tuple[Any, int]:
    x = batched_front(self, dims[1], size)
    if dims[0] is None and sorted_sequence.ndim == 1:
        return places_in_sorted(sorted_sequence, x, right), 0
    rows = batched_front(sorted_sequence, dims[0], size)
    values = x if rows.ndim > 2 else x.flatten(1) if x.ndim > 1 else x.unsqueeze(1)
    return places_in_sorted(rows.contiguous(), values.contiguous(), right).reshape(x.shape), 0


places_in_sorted = op(
    "_searchsorted(Tensor sorted_sequence, Tensor self, bool right) -> Tensor",
    shape=lambda self: self.shape,
    dtype="int64",
    check=_check_search,
    reference=_search,
    vjp="none: integer output",
    batch=_search_batched,
    function=False,
    method=False,
    samples=lambda s: [s(s.values([0, 1, 3, 5]), s.tensor(3, 4), False)],
    oracle=lambda torch, rows, x, right: torch.searchsorted(rows, x, right=right),
    doc="Find where elements belong in sorted rows.",
)


def _check_shapes(rows: Any, x: Any) -> None:
    if rows.ndim == 0:
        raise RuntimeError(
            "searchsorted(): boundaries tensor should have positive dimension, but got 0 dimension"
        )
    if x.ndim == 0 and rows.ndim != 1:
        raise RuntimeError(
            "searchsorted(): input value can be a scalar only when boundaries tensor dimension is "
            f"1, but we got boundaries tensor dim({rows.ndim})"
        )
    if rows.ndim != 1 and tuple(rows.shape)[:-1] != tuple(x.shape)[:-1]:
        raise RuntimeError(
            "searchsorted: boundaries tensor should be 1 dimension or the first N-1 dimensions "
            f"of boundaries tensor and input value tensor must match, but we got boundaries "
            f"tensor {tuple(rows.shape)} and input value tensor {tuple(x.shape)}"
        )


def _sorted_by(rows: Any, sorter: Any) -> Any:
    if tuple(sorter.shape) != tuple(rows.shape):
        raise RuntimeError(
            "searchsorted(): boundary and sorter must have the same size, but got boundary tensor "
            f"{list(rows.shape)} and sorter tensor {list(sorter.shape)}"
        )
    if sorter.dtype != tangrad.int64:
        raise RuntimeError(
            f"searchsorted(): sorter must be a tensor of long dtype but got dtype {sorter.dtype}"
        )
    return rows.gather(-1, sorter)


def _found(rows: Any, x: Any, right: bool, out_int32: bool) -> Any:
    common = tangrad.result_type(rows, x)
    if common.is_complex or common == tangrad.bool:
        raise NotImplementedError(f"searchsorted: not implemented for {common}")
    rows, x = rows.to(common), x.to(common)
    found = places_in_sorted(rows, x, right)
    return found.to(tangrad.int32) if out_int32 else found


def _as_tensor(x: Any, like: Any) -> Any:
    return x if isinstance(x, tangrad.Tensor) else tangrad.as_tensor(x, device=like.device)


@composite(
    out=True,
    strict_out_dtype=True,
    method=False,
    samples=lambda s: [
        s(s.values([0, 1, 3, 5]), s.tensor(3, 4)),
        s(s.values([[0, 1, 3], [1, 1, 2]]), s.values([[1, 3], [1, 0]]), right=True),
        s(s.values([0, 1, 1, 5]), s.values([1, 5, 0]), side="left"),
        s(s.values([0, 1, 1, 5]), 2, side="right", out_int32=True),
        s(s.values([0, 1, 1, 5]), s.values([0.5, 1.5], dtype="float64")),
        s(s.values([5, 0, 1]), s.values([2]), sorter=s.values([1, 2, 0], dtype="int64")),
        s(s.tensor(0), s.tensor(2)),
    ],
    errors=lambda s: [
        (s(s.tensor(2, 3), s.tensor(3, 3)), RuntimeError, "must match"),
        (s(s.tensor(3), s.tensor(3), side="up"), RuntimeError, "side"),
        (s(s.tensor(3), s.tensor(3), side="left", right=True), RuntimeError, "opposites"),
        (s(s.tensor(2, 3), 1), RuntimeError, "can be a scalar only"),
        (s(s.tensor(), s.tensor(1)), RuntimeError, "positive dimension"),
        (s(s.tensor(3), 1, sorter=s.integers(0, 1, 2)), RuntimeError, "same size"),
        (s(s.tensor(3), 1, sorter=s.integers(0, 1, 3, dtype="int32")), RuntimeError, "long dtype"),
        (s(s.tensor(3), 1, sorter=s.integers(3, 4, 3)), RuntimeError, "out of"),
        (s(s.tensor(3, dtype="complex64"), s.tensor(1)), NotImplementedError, "not implemented"),
    ],
)
def searchsorted(
    sorted_sequence: Tensor,
    self: Operand,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Find where elements belong in sorted rows: the index of the first not less than each.

    Args:
        self: a number, or a tensor with a row of elements for each sorted row; any shape if the
            sequence is a vector.
        out_int32: give int32 instead of int64.
        right: find the first that is greater instead; the same as side="right".
        sorter: the indices that sort the sequence, where it is not sorted itself.
    """
    if side not in (None, "left", "right"):
        raise RuntimeError(f"searchsorted: side must be 'left' or 'right', got {side!r}")
    if side == "left" and right:
        raise RuntimeError(
            "searchsorted: side and right can't be set to opposites, got side of left while "
            "right was True"
        )
    x = _as_tensor(self, sorted_sequence)
    _check_shapes(sorted_sequence, x)
    rows = sorted_sequence if sorter is None else _sorted_by(sorted_sequence, sorter)
    return _found(rows, x, right or side == "right", out_int32)


@composite(
    strict_out_dtype=True,
    out=True,
    samples=lambda s: [
        s(s.tensor(3, 4), s.values([0, 1, 3])),
        s(s.tensor(3), s.values([0, 1, 3]), right=True, out_int32=True),
        s(2, s.values([0, 1, 3])),
    ],
    errors=lambda s: [(s(s.tensor(3), s.tensor(2, 2)), RuntimeError, "must be 1 dimension")],
)
def bucketize(
    self: Operand, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    """Find the interval between sorted boundaries that each element is in.

    Args:
        right: whether an element that equals a boundary is in the interval above it.
    """
    if boundaries.ndim != 1:
        raise RuntimeError(f"boundaries tensor must be 1 dimension, but got dim({boundaries.ndim})")
    return _found(boundaries, _as_tensor(self, boundaries), right, out_int32)
