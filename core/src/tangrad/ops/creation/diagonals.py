"""Define the matrices of indices and diagonals: eye, triangles, diag."""

from __future__ import annotations

from array import array
from functools import lru_cache
from typing import Any

import tangrad
from tangrad.ops.creation.empty_full import allocate, finished, require_strided, written
from tangrad.ops.definition.define import composite
from tangrad.ops.definition.signature import (
    Device,
    DType,
    Scalar,
    Tensor,
    TensorLayout,
    WrittenTensor,
)
from tangrad.ops.views.geometry import wrap_dim
from tangrad.ops.views.slicing import diagonal_backward
from tangrad.tensor.construct import index_vector


@composite(
    samples=lambda s: [s(3), s(2, 4), s(3, 1), s(0)],
    errors=lambda s: [(s(-1), RuntimeError, "greater or equal to 0")],
)
def eye(
    n: int,
    m: int | None = None,
    *,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Make a matrix with ones on the diagonal and zeros elsewhere."""
    require_strided(layout)
    m = n if m is None else m
    if n < 0 or m < 0:
        raise RuntimeError(f"n and m must be greater or equal to 0, got {n} and {m}")
    if out is None:
        matrix = allocate((n, m), dtype, device, None)
    else:
        matrix = written(out, (n, m), dtype, device)
    matrix.fill_(0)
    if n and m:
        matrix.diagonal().fill_(1)
    return matrix if out is not None else finished(matrix, requires_grad)


def _triangle(
    row: int, col: int, offset: int, dtype: Any, layout: Any, device: Any, lower: bool
) -> Any:
    """List the places of a triangle of a matrix, row by row."""
    require_strided(layout)
    if row < 0 or col < 0:
        raise RuntimeError(f"row and col must be non-negative, got {row} and {col}")
    dtype = tangrad.int64 if dtype is None else dtype
    if dtype not in (tangrad.int64, tangrad.int32):
        name = "tril_indices" if lower else "triu_indices"
        raise NotImplementedError(f'"{name}" not implemented for {dtype}; use int64 or int32')
    # Beyond these nothing lies in the triangle, and a matrix of them all may not fit.
    row, col = (
        (row, min(col, max(row + offset, 0))) if lower else (min(row, max(col - offset, 0)), col)
    )
    if row <= _FEW and col <= _FEW:
        return _listed_triangle(row, col, offset, device, lower).to(dtype)
    count = _below(row, col, offset) if lower else row * col - _below(row, col, offset - 1)
    rows = tangrad.arange(row, device=device).unsqueeze(1)
    columns = tangrad.arange(col, device=device)
    inside = columns - rows <= offset if lower else columns - rows >= offset
    return inside.nonzero_static(size=count).t().contiguous().to(dtype)


# Up to here rows are put together faster one by one than by a mask of the whole matrix.
_FEW = 512
# Elements of a matrix whose places are worth keeping: programs ask for the same ones at each step.
_KEPT = 1 << 14


def _listed_triangle(row: int, col: int, offset: int, device: Any, lower: bool) -> Any:
    listed = _triangle_places if row * col <= _KEPT else _triangle_places.__wrapped__
    places = listed(row, col, offset, lower)
    return index_vector(places, device).reshape((2, len(places) // 2))


@lru_cache(maxsize=16)
def _triangle_places(row: int, col: int, offset: int, lower: bool) -> array[int]:
    line = array("q", range(col))
    rows, columns = array("q"), array("q")
    for i in range(row):
        edge = min(max(i + offset + lower, 0), col)
        found = line[:edge] if lower else line[edge:]
        columns += found
        rows += array("q", (i,)) * len(found)
    return rows + columns


def _below(row: int, col: int, offset: int) -> int:
    """Count the places on and below a diagonal: offset + 1 in the first row, 0 to col in each."""

    def rows_until(last: int) -> int:
        short = max(min(last, col), 0)
        return short * (short + 1) // 2 + max(last - col, 0) * col

    return rows_until(offset + row) - rows_until(offset)


@composite(
    samples=lambda s: [s(3, 3), s(2, 4, 1), s(3, 2, -1), s(0, 2)],
    errors=lambda s: [
        (s(-1, 2), RuntimeError, "non-negative"),
        (s(2, 2, dtype=s.as_dtype("int16")), NotImplementedError, "not implemented for"),
    ],
)
def tril_indices(
    row: int,
    col: int,
    offset: int = 0,
    *,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """List the places on and below a diagonal of a matrix: their rows and their columns."""
    return finished(_triangle(row, col, offset, dtype, layout, device, lower=True), requires_grad)


@composite(
    samples=lambda s: [s(3, 3), s(2, 4, 1), s(3, 2, -1), s(0, 2)],
    errors=lambda s: [
        (s(-1, 2), RuntimeError, "non-negative"),
        (s(2, 2, dtype=s.as_dtype("int16")), NotImplementedError, "not implemented for"),
    ],
)
def triu_indices(
    row: int,
    col: int,
    offset: int = 0,
    *,
    dtype: DType | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """List the places on and above a diagonal of a matrix: their rows and their columns."""
    return finished(_triangle(row, col, offset, dtype, layout, device, lower=False), requires_grad)


@composite(
    samples=lambda s: [s(s.tensor(3)), s(s.tensor(2, 3), 1), s(s.tensor(2, 2), -1, 0, 2)],
    errors=lambda s: [
        (s(s.tensor(2), 0, 1, 1), RuntimeError, "identical"),
        (s(s.tensor(2), 0, 0, 3), IndexError, "Dimension out of range"),
    ],
)
def diag_embed(self: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Put the last dimension on a diagonal of two new dimensions of a tensor of zeros."""
    ndim = self.ndim
    dim1, dim2 = wrap_dim(dim1, ndim + 1), wrap_dim(dim2, ndim + 1)
    if dim1 == dim2:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    size = self.shape[-1] + abs(offset)
    rest = iter(tuple(self.shape)[:-1])
    shape = tuple(size if d in (dim1, dim2) else next(rest) for d in range(ndim + 1))
    return diagonal_backward(self, shape, offset, dim1, dim2)


@composite(
    strict_out_dtype=True,
    out=True,
    samples=lambda s: [s(s.tensor(3)), s(s.tensor(2, 3), 1), s(s.tensor(2), -1)],
    errors=lambda s: [(s(s.tensor(2, 2, 2)), RuntimeError, "Supports 1D or 2D|1- or 2-D")],
)
def diag(self: Tensor, diagonal: int = 0) -> Tensor:
    """Take a diagonal of a matrix, or make a matrix with a vector as diagonal."""
    if self.ndim not in (1, 2):
        raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {self.ndim}D")
    if self.ndim == 1:
        return diag_embed(self, diagonal)
    return self.diagonal(diagonal).clone()


@composite(
    samples=lambda s: [
        s(s.tensor(3)),
        s(s.tensor(2, 2, strided=True), 1),
        s(s.tensor(), -1),
        s(s.tensor(0)),
    ],
)
def diagflat(self: Tensor, offset: int = 0) -> Tensor:
    """Make a matrix of zeros with all elements, in order, on a diagonal."""
    return diag_embed(self.reshape((-1,)), offset)


@composite(
    function=False,
    samples=lambda s: [
        s(s.tensor(3, 4), 1),
        s(s.tensor(7, 3), 2, True),
        s(s.tensor(5, 3, strided=True), 1),
        s(s.tensor(3, 3, 3), 1),
        s(s.tensor(0, 3), 1),
    ],
    errors=lambda s: [
        (s(s.tensor(3), 1), RuntimeError, "larger than 1"),
        (s(s.tensor(3, 3, 2), 1), RuntimeError, "equal length"),
    ],
)
def fill_diagonal_(self: WrittenTensor, fill_value: Scalar, wrap: bool = False) -> Tensor:
    """Overwrite the main diagonal by a number; of more dimensions, which are equal, as well.

    Args:
        wrap: go on with further diagonals below in a tall matrix, one row apart.
    """
    if self.ndim < 2:
        raise RuntimeError(f"dimensions must larger than 1, got shape {list(self.shape)}")
    if self.ndim > 2:
        if len(set(self.shape)) > 1:
            raise RuntimeError(
                f"all dimensions of input must be of equal length, got shape {list(self.shape)}"
            )
        diagonal = self
        while diagonal.ndim > 1:
            diagonal = diagonal.diagonal(0, 0, 1)
        diagonal.fill_(fill_value)
        return self
    height, width = self.shape
    for top in range(0, height, width + 1) if wrap and height > width + 1 else (0,):
        self.narrow(0, top, height - top).diagonal().fill_(fill_value)
    return self
