"""Define differences, and products that combine tensors: Kronecker, cross and Cartesian ones."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import tangrad
from tangrad.ops.cat import promoted
from tangrad.ops.definition.define import composite, op
from tangrad.ops.definition.signature import Dim, Tensor
from tangrad.ops.views.geometry import batched_front


def _padded(shape: Sequence[int], ndim: int) -> tuple[int, ...]:
    return (1,) * (ndim - len(shape)) + tuple(shape)


@composite(
    out=True,
    samples=lambda s: [
        s(s.tensor(2, 3), s.tensor(2, 2)),
        s(s.tensor(2), s.tensor(2, 3)),
        s(s.tensor(), s.tensor(3)),
        s(s.tensor(0), s.tensor(2)),
    ],
)
def kron(self: Tensor, other: Tensor) -> Tensor:
    """Multiply each element of one tensor with the whole of another, laid out in blocks."""
    ndim = max(self.ndim, other.ndim)
    a, b = _padded(self.shape, ndim), _padded(other.shape, ndim)
    rows: list[int] = []
    columns: list[int] = []
    for m, n in zip(a, b, strict=True):
        rows += (m, 1)
        columns += (1, n)
    product = self.reshape(tuple(rows)) * other.reshape(tuple(columns))
    return product.reshape(tuple([m * n for m, n in zip(a, b, strict=True)]))


def _cross_dim(input: Any, other: Any, dim: int | None) -> int:
    if input.ndim != other.ndim:
        raise RuntimeError(
            "cross: inputs must have the same number of dimensions, got shapes "
            f"{list(input.shape)} and {list(other.shape)}"
        )
    if dim is None:
        dim = next((d for d, size in enumerate(input.shape) if size == 3), None)
        if dim is None:
            raise RuntimeError(f"no dimension of size 3 in input of shape {list(input.shape)}")
    if input.shape[dim] != 3 or other.shape[dim] != 3:
        raise RuntimeError(
            f"cross: inputs dimension {dim} must have length 3. Got {input.shape[dim]} and "
            f"{other.shape[dim]}"
        )
    return dim


@composite(
    strict_out_dtype=True,
    out=True,
    dtypes="integral floating complex",
    samples=lambda s: [
        s(s.tensor(2, 3), s.tensor(2, 3), 1),
        s(s.tensor(3, 2, strided=True), s.tensor(3, 1), 0),
        s(s.tensor(2, 3), s.tensor(1, 3), -1),
        s(s.tensor(0, 3), s.tensor(0, 3), 1),
        s(s.tensor(3), s.tensor(3)),
    ],
    errors=lambda s: [
        (s(s.tensor(2, 3), s.tensor(3), 1), RuntimeError, "same number of dimensions"),
        (s(s.tensor(2, 3), s.tensor(2, 2), 1), RuntimeError, "must have length 3"),
        (s(s.tensor(2, 2), s.tensor(2, 2)), RuntimeError, "no dimension of size 3"),
    ],
)
def cross(input: Tensor, other: Tensor, dim: Dim | None = None) -> Tensor:
    """Take the cross product of three-dimensional vectors.

    Args:
        dim: where the vectors lie; by default the first dimension of size 3.
    """
    dim = _cross_dim(input, other, dim)
    next_a, next_b = input.roll(-1, dim), other.roll(-1, dim)
    return next_a * other.roll(-2, dim) - input.roll(-2, dim) * next_b


@composite(
    varargs=True,
    method=False,
    samples=lambda s: [
        s(s.tensor(2), s.tensor(3)),
        s(s.tensor(2), s.tensor(1), s.tensor(2)),
        s(s.tensor(3)),
        s(s.tensor(2), s.tensor(0)),
    ],
    errors=lambda s: [(s(s.tensor(2, 2)), RuntimeError, "1D vector")],
)
def cartesian_prod(tensors: Sequence[Tensor]) -> Tensor:
    """List all tuples of elements of vectors, one per row; the last vector varies fastest."""
    for x in tensors:
        if x.ndim != 1:
            raise RuntimeError(f"Expect a 1D vector, but got shape {list(x.shape)}")
    if len(tensors) == 1:
        return tensors[0]
    grids = tangrad.meshgrid(*tensors, indexing="ij")
    return tangrad.stack([grid.flatten() for grid in grids], 1)


@composite(
    samples=lambda s: [
        s(s.tensor(4)),
        s(s.tensor(4, strided=True), 3),
        s(s.tensor(3), 2, True),
        s(s.tensor(3), 0, prepend=s.tensor(2)),
        s(s.tensor(2), 4),
        s(s.tensor(0)),
    ],
    errors=lambda s: [
        (s(s.tensor(2, 2)), RuntimeError, "1D vector"),
        (s(s.tensor(2), -1), RuntimeError, "non-negative"),
    ],
)
def combinations(self: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """List the choices of `r` elements of a vector, one per row, in the order of the vector.

    Args:
        with_replacement: whether an element may be chosen more than once.
    """
    if self.ndim != 1:
        raise RuntimeError(f"Expect a 1D vector, but got shape {list(self.shape)}")
    if r < 0:
        raise RuntimeError(f"Expect a non-negative number, but got {r}")
    if r == 0:
        return self.new_empty((0,))
    if r == 2:
        n = self.shape[0]
        first, second = tangrad.triu_indices(n, n, int(not with_replacement), device=self.device)
        return tangrad.stack((self.index_select(0, first), self.index_select(0, second)), 1)
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    places = [i for row in choose(range(self.shape[0]), r) for i in row]
    index = tangrad.tensor(places, dtype=tangrad.int64, device=self.device)
    return self.index_select(0, index).reshape((-1, r) if places else (0, r))


def _as_block(position: int, x: Any) -> Any:
    if x.ndim > 2:
        raise RuntimeError(
            "torch.block_diag: Input tensors must have 2 or fewer dimensions. "
            f"Input {position} has {x.ndim} dimensions"
        )
    return x.reshape(_padded(x.shape, 2))


@composite(
    varargs=True,
    method=False,
    samples=lambda s: [
        s(s.tensor(2, 3), s.tensor(), s.tensor(2)),
        s(s.tensor(2, 1, strided=True)),
        s(s.tensor(0, 2), s.tensor(2, 2)),
    ],
    errors=lambda s: [(s(s.tensor(1, 1, 1)), RuntimeError, "2 or fewer dimensions")],
)
def block_diag(tensors: Sequence[Tensor] = ()) -> Tensor:
    """Put matrices on the diagonal of a matrix of zeros; a vector is a row."""
    if not tensors:
        return tangrad.zeros((1, 0))
    return diagonal_blocks([_as_block(i, x) for i, x in enumerate(tensors)])


def _among_zeros(tensors: Sequence[Any]) -> Any:
    """Join matrices, or stacks of as many, each between zeros of its own."""
    width, left, rows = sum(b.shape[-1] for b in tensors), 0, []
    for b in tensors:
        lead, own = tuple(b.shape[:-1]), b.shape[-1]
        zeros = b.new_zeros((*lead, left)), b.new_zeros((*lead, width - left - own))
        rows.append(tangrad.cat([zeros[0], b, zeros[1]], -1))
        left = left + own
    return tangrad.cat(rows, -2)


def _blocks_vjp(g: Any, tensors_meta: Sequence[Any]) -> list[Any]:
    """Take the blocks out of the gradient; of a real block only the real part."""
    grads, row, column = [], 0, 0
    for meta in tensors_meta:
        height, width = meta.shape
        part = g.narrow(0, row, height).narrow(1, column, width)
        real = part.dtype.is_complex and not meta.dtype.is_complex
        grads.append((tangrad.real(part) if real else part).to(meta.dtype))
        row, column = row + height, column + width
    return grads


diagonal_blocks = op(
    "_block_diag(Tensor[] tensors) -> Tensor",
    shape=lambda tensors: (sum(x.shape[0] for x in tensors), sum(x.shape[1] for x in tensors)),
    dtype=promoted,
    decompose=_among_zeros,
    vjp={"tensors": _blocks_vjp},
    jvp=lambda tensors, tensors_t: diagonal_blocks(
        [
            tangrad.zeros_like(x) if x_t is None else x_t
            for x, x_t in zip(tensors, tensors_t, strict=True)
        ]
    ),
    batch=lambda size, dims, tensors: (
        _among_zeros([batched_front(x, d, size) for x, d in zip(tensors, dims[0], strict=True)]),
        0,
    ),
    function=False,
    method=False,
    samples=lambda s: [
        s([s.tensor(2, 3), s.tensor(1, 1), s.tensor(0, 2)]),
        s([s.tensor(2, 3, strided=True), s.tensor(3, 2)]),
    ],
    oracle=lambda torch, tensors: torch.block_diag(*tensors),
    doc="Put matrices on the diagonal of a matrix of zeros.",
)


@composite(
    out=True,
    samples=lambda s: [
        s(s.tensor(4)),
        s(s.tensor(4, 3, strided=True), 2, 0),
        s(s.tensor(2, 3), prepend=s.tensor(2, 1), append=s.tensor(2, 2)),
        s(s.tensor(3), 5),
        s(s.tensor(3), 0),
        s(s.tensor(2, 0)),
    ],
    errors=lambda s: [
        (s(s.tensor()), RuntimeError, "at least one-dimensional"),
        (s(s.tensor(3), -1), RuntimeError, "order must be non-negative"),
    ],
)
def diff(
    self: Tensor,
    n: int = 1,
    dim: Dim = -1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:
    """Subtract each element from the next along a dimension, `n` times.

    Args:
        n: how many times; for 0 the input is copied as it is.
        prepend, append: what to join before and behind the input first.
    """
    if self.ndim == 0:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    if n == 0:
        return self.clone()
    ends = [x for x in (prepend, self, append) if x is not None]
    if any(x.ndim != self.ndim for x in ends):
        raise RuntimeError(
            "diff expects prepend or append to be the same dimension as input, got "
            f"{[list(x.shape) for x in ends]}"
        )
    if len({(*x.shape[:dim], *x.shape[dim + 1 :]) for x in ends}) > 1:
        raise RuntimeError(
            "diff expects the shape of tensor to prepend or append to match that of input except "
            f"along the differencing dimension {dim}, got {[list(x.shape) for x in ends]}"
        )
    x = tangrad.cat(ends, dim) if len(ends) > 1 else self
    for _ in range(min(n, max(x.shape[dim], 1))):
        rest = max(x.shape[dim] - 1, 0)
        later, earlier = x.narrow(dim, x.shape[dim] - rest, rest), x.narrow(dim, 0, rest)
        x = later.logical_xor(earlier) if x.dtype == tangrad.bool else later - earlier
    return x
