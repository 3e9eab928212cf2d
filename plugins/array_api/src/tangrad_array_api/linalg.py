"""Linear algebra of the standard: four functions of the main namespace, and the extension."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import tangrad
from tangrad_array_api import dtypes
from tangrad_array_api.array import Array, wrap
from tangrad_array_api.elementwise import FUNCTIONS
from tangrad_array_api.manipulation import promoted
from tangrad_array_api.reductions import sum as sum_of

__all__ = """
    cholesky cross det diagonal eigh eigvalsh inv matmul matrix_norm matrix_power matrix_rank
    matrix_transpose outer pinv qr slogdet solve svd svdvals tensordot trace vecdot vector_norm
""".split()

matmul = FUNCTIONS["matmul"]


class EighResult(NamedTuple):
    """Eigenvalues, and the eigenvectors in columns."""

    eigenvalues: Array
    eigenvectors: Array


class QRResult(NamedTuple):
    """The factors of a QR decomposition."""

    Q: Array
    R: Array


class SlogdetResult(NamedTuple):
    """Sign of the determinant, logarithm of its magnitude."""

    sign: Array
    logabsdet: Array


class SVDResult(NamedTuple):
    """The factors of a singular value decomposition."""

    U: Array
    S: Array
    Vh: Array


def matrix_transpose(x: Array, /) -> Array:
    """Return the transpose of every matrix."""
    dtypes.require("matrix_transpose", "any", x)
    return x.mT


def tensordot(
    x1: Array, x2: Array, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2
) -> Array:
    """Contract axes of two arrays: so many last and first ones, or those named."""
    dtypes.require("tensordot", "numeric", x1, x2)
    first, second = promoted([x1, x2])
    pairs = axes if isinstance(axes, int) else tuple(map(list, axes))
    return wrap(tangrad.tensordot(first, second, pairs))


def vecdot(x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
    """Return dot products along an axis, the first operand conjugated.

    Raises:
        ValueError: If the axis is of two sizes.
    """
    dtypes.require("vecdot", "numeric", x1, x2)
    if x1.shape[axis] != x2.shape[axis]:
        raise ValueError(f"vecdot: axis {axis} is of size {x1.shape[axis]} and {x2.shape[axis]}")
    first, second = (tangrad.moveaxis(each, axis, -1) for each in promoted([x1, x2]))
    product = tangrad.conj_physical(first) * second
    return wrap(tangrad.sum(product, -1, dtype=product.dtype))


def cholesky(x: Array, /, *, upper: bool = False) -> Array:
    """Return Cholesky factors of positive definite matrices."""
    dtypes.require("cholesky", "floating", x)
    return wrap(tangrad.linalg.cholesky(x.tensor, upper=upper))


def cross(x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
    """Return cross products of vectors of three.

    Raises:
        ValueError: If the axis is not of size 3.
    """
    dtypes.require("cross", "numeric", x1, x2)
    if x1.shape[axis] != 3 or x2.shape[axis] != 3:
        raise ValueError(f"cross: axis {axis} is of size 3, got {x1.shape} and {x2.shape}")
    first, second = tangrad.broadcast_tensors(*promoted([x1, x2]))
    return wrap(tangrad.linalg.cross(first, second, dim=axis))


def det(x: Array, /) -> Array:
    """Return determinants."""
    dtypes.require("det", "floating", x)
    return wrap(tangrad.linalg.det(x.tensor))


def diagonal(x: Array, /, *, offset: int = 0) -> Array:
    """Return the diagonals of matrices."""
    dtypes.require("diagonal", "any", x)
    return wrap(tangrad.diagonal(x.tensor, offset, -2, -1))


def eigh(x: Array, /) -> EighResult:
    """Return eigenvalues and eigenvectors of Hermitian matrices."""
    dtypes.require("eigh", "floating", x)
    return EighResult(*map(wrap, tangrad.linalg.eigh(x.tensor)))


def eigvalsh(x: Array, /) -> Array:
    """Return eigenvalues of Hermitian matrices."""
    dtypes.require("eigvalsh", "floating", x)
    return wrap(tangrad.linalg.eigvalsh(x.tensor))


def inv(x: Array, /) -> Array:
    """Return inverses."""
    dtypes.require("inv", "floating", x)
    return wrap(tangrad.linalg.inv(x.tensor))


def matrix_norm(x: Array, /, *, keepdims: bool = False, ord: Any = "fro") -> Array:
    """Return norms of matrices."""
    dtypes.require("matrix_norm", "floating", x)
    if ord is None:
        ord = "fro"
    return wrap(tangrad.linalg.matrix_norm(x.tensor, ord, (-2, -1), keepdims))


def matrix_power(x: Array, n: int, /) -> Array:
    """Return matrices to the power of n, inverted if it is negative."""
    dtypes.require("matrix_power", "floating", x)
    return wrap(tangrad.linalg.matrix_power(x.tensor, n))


def tolerance(x: Array, rtol: Any) -> Any:
    """Return the relative tolerance; by default the greater side's length by the precision."""
    if rtol is None:
        return max(x.shape[-2:]) * dtypes.finfo(x.dtype).eps
    return rtol.tensor if isinstance(rtol, Array) else rtol


def matrix_rank(x: Array, /, *, rtol: Any = None) -> Array:
    """Return how many singular values exceed rtol of the greatest.

    Raises:
        ValueError: If there are fewer than two dimensions.
    """
    dtypes.require("matrix_rank", "floating", x)
    if x.ndim < 2:
        raise ValueError(f"matrix_rank: an array of {x.ndim} dimensions is no matrix")
    values = tangrad.linalg.svdvals(x.tensor)
    if not values.shape[-1]:
        return wrap(tangrad.zeros(values.shape[:-1], dtype=tangrad.int64, device=x.device))
    bound = tangrad.amax(values, -1) * tolerance(x, rtol)
    return wrap(tangrad.sum(values > bound[..., None], -1))


def outer(x1: Array, x2: Array, /) -> Array:
    """Return the outer product of two vectors.

    Raises:
        ValueError: If one is no vector.
    """
    dtypes.require("outer", "numeric", x1, x2)
    if x1.ndim != 1 or x2.ndim != 1:
        raise ValueError(f"outer: operands are vectors, got shapes {x1.shape} and {x2.shape}")
    first, second = promoted([x1, x2])
    return wrap(first[:, None] * second)


def pinv(x: Array, /, *, rtol: Any = None) -> Array:
    """Return pseudoinverses."""
    dtypes.require("pinv", "floating", x)
    return wrap(tangrad.linalg.pinv(x.tensor, rtol=tolerance(x, rtol)))


def qr(x: Array, /, *, mode: str = "reduced") -> QRResult:
    """Return QR decompositions.

    Raises:
        ValueError: If mode is neither "reduced" nor "complete".
    """
    dtypes.require("qr", "floating", x)
    if mode not in ("reduced", "complete"):
        raise ValueError(f"qr: mode is 'reduced' or 'complete', got {mode!r}")
    return QRResult(*map(wrap, tangrad.linalg.qr(x.tensor, mode)))


def slogdet(x: Array, /) -> SlogdetResult:
    """Return signs of determinants and logarithms of their magnitudes."""
    dtypes.require("slogdet", "floating", x)
    return SlogdetResult(*map(wrap, tangrad.linalg.slogdet(x.tensor)))


def solve(x1: Array, x2: Array, /) -> Array:
    """Solve linear systems; x2 is one vector, or matrices."""
    dtypes.require("solve", "floating", x1, x2)
    first, second = promoted([x1, x2])
    if second.ndim == 1:
        return wrap(tangrad.linalg.solve(first, second[:, None])[..., 0])
    stack = tangrad.broadcast_shapes(first.shape[:-2], second.shape[:-2])
    first, second = (each.expand(*stack, *each.shape[-2:]) for each in (first, second))
    return wrap(tangrad.linalg.solve(first, second))


def svd(x: Array, /, *, full_matrices: bool = True) -> SVDResult:
    """Return singular value decompositions."""
    dtypes.require("svd", "floating", x)
    return SVDResult(*map(wrap, tangrad.linalg.svd(x.tensor, full_matrices)))


def svdvals(x: Array, /) -> Array:
    """Return singular values."""
    dtypes.require("svdvals", "floating", x)
    return wrap(tangrad.linalg.svdvals(x.tensor))


def trace(x: Array, /, *, offset: int = 0, dtype: Any = None) -> Array:
    """Return sums of diagonals, of dtypes as `sum` gives."""
    dtypes.require("trace", "any", x)
    return sum_of(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def vector_norm(
    x: Array, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False, ord: Any = 2
) -> Array:
    """Return norms of vectors; of the flattened array without an axis."""
    dtypes.require("vector_norm", "floating", x)
    if axis == ():
        magnitude = tangrad.abs(x.tensor)
        return wrap((magnitude != 0).to(magnitude.dtype) if ord == 0 else magnitude)
    order = math.inf if ord is None else ord
    return wrap(tangrad.linalg.vector_norm(x.tensor, order, axis, keepdims))
