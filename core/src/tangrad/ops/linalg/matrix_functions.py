"""Powers, exponentials and products of matrices; matrices made of vectors."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import tangrad
from tangrad import ops
from tangrad.devices import lapack
from tangrad.ops.definition.define import composite, op
from tangrad.ops.definition.signature import Dim, Tensor
from tangrad.ops.linalg.matrix_checks import check_floating, check_square, regular, wide_only

WIDE = "floating complex"

# Powers and the exponential -----------------------------------------------------------------------


def _power_samples(s: Any) -> list[Any]:
    return [
        s(s.tensor(3, 3, low=-2, high=2), 3),
        s(s.tensor(2, 2, 2, low=-2, high=2, strided=True), 2),
        s(s.tensor(3, 3), 1),
        *wide_only(s, s(s.tensor(2, 2, 2), 0), s(regular(s, 3, 3), -2)),
    ]


def _power_errors(s: Any) -> list[Any]:
    return [
        (s(s.tensor(2, 3), 2), RuntimeError, "square"),
        (s(s.tensor(3), 2), RuntimeError, "at least 2|2 or more"),
    ]


def _matrix_power(self: Any, n: int) -> Any:
    check_square("linalg.matrix_power", self)
    if n == 0:
        eye = ops.eye(self.shape[-1], dtype=self.dtype, device=self.device)
        return self.clone().copy_(eye)
    if n < 0:
        self, n = ops.linalg_inv(self), -n
    if n == 1:
        return self.clone()
    result, square = None, self
    while n:
        if n & 1:
            result = square if result is None else result.matmul(square)
        n >>= 1
        if n:
            square = square.matmul(square)
    return result


@composite(
    out=True,
    dtypes="integral floating complex",
    namespace="linalg",
    samples=_power_samples,
    errors=_power_errors,
)
def linalg_matrix_power(self: Tensor, n: int) -> Tensor:
    """Raise square matrices to an integer power, by squaring; a negative one inverts first.

    Raises:
        LinAlgError: a negative power of a singular matrix.
    """
    return _matrix_power(self, n)


@composite(
    out=True,
    dtypes="integral floating complex",
    samples=_power_samples,
    errors=_power_errors,
)
def matrix_power(self: Tensor, n: int) -> Tensor:
    """Raise square matrices to an integer power; see `linalg.matrix_power`."""
    return _matrix_power(self, n)


# Numerators of the Padé approximants of exp, by degree, and up to which 1-norm each is exact to
# double and to single precision (Higham 2005, "The scaling and squaring method ... revisited").
_PADE = {
    3: (120.0, 60.0, 12.0, 1.0),
    5: (30240.0, 15120.0, 3360.0, 420.0, 30.0, 1.0),
    7: (17297280.0, 8648640.0, 1995840.0, 277200.0, 25200.0, 1512.0, 56.0, 1.0),
    9: tuple(
        map(
            float,
            "17643225600 8821612800 2075673600 302702400 30270240 2162160 110880 3960 90 1".split(),
        )
    ),
    13: tuple(
        map(
            float,
            "64764752532480000 32382376266240000 7771770303897600 1187353796428800"
            " 129060195264000 10559470521600 670442572800 33522128640 1323241920 40840800 960960"
            " 16380 182 1".split(),
        )
    ),
}
_DOUBLE = {3: 1.495585e-2, 5: 2.539398e-1, 7: 9.504178e-1, 9: 2.097847, 13: 5.371920}
_SINGLE = {3: 4.258730e-1, 5: 1.880152, 7: 3.925724}


def _exponential(np: Any, self: Any) -> Any:
    """Scale by powers of two, take Padé approximants, and square back (Higham 2005)."""
    if not self.size:
        return self
    threads = lapack.library_threads()
    with threads if threads and self.shape[-1] < lapack.LARGE else nullcontext():
        return _exponentials(np, self.reshape((-1, *self.shape[-2:]))).reshape(self.shape)


def _exponentials(np: Any, stack: Any) -> Any:
    limits = _SINGLE if stack.dtype.name in ("float32", "complex64") else _DOUBLE
    degrees = list(limits)
    result, size = np.empty(stack.shape, stack.dtype), np.abs(stack).sum(-2).max(-1)
    finite = np.isfinite(size)
    result[~finite] = np.nan
    which = np.searchsorted(list(limits.values()), size).clip(max=len(degrees) - 1)
    for k in np.unique(which[finite]):
        chosen = np.flatnonzero(finite & (which == k))
        limit = limits[degrees[k]]
        squarings = np.ceil(np.log2(np.maximum(size[chosen] / limit, 1))).astype(int)
        scaled = stack[chosen] / (2.0**squarings).astype(size.dtype)[:, None, None]
        found = _pade(np, scaled, _PADE[degrees[k]])
        for step in range(squarings.max()):
            rest = squarings > step
            found[rest] = found[rest] @ found[rest]
        result[chosen] = found
    return result


def _pade(np: Any, a: Any, numbers: Sequence[float]) -> Any:
    """Evaluate r(A) = (V - U)^-1 (V + U), of the even terms V and the odd ones U."""
    square, eye = a @ a, np.eye(a.shape[-1], dtype=a.dtype)
    numbers = [a.dtype.type(x) for x in numbers]
    even, odd = numbers[-4] * eye + numbers[-2] * square, numbers[-3] * eye + numbers[-1] * square
    for low in range(len(numbers) - 6, -1, -2):
        even = even @ square + numbers[low] * eye
        odd = odd @ square + numbers[low + 1] * eye
    odd = a @ odd
    return np.linalg.solve(even - odd, even + odd)


def _exponential_along(self: Any, direction: Any) -> Any:
    """Return the derivative of exp at `self` in a direction.

    It is the upper right block of the exponential of [[A, E], [0, A]] (Mathias 1996).
    """
    n = self.shape[-1]
    upper = ops.cat([self, direction], -1)
    lower = ops.cat([self.new_zeros(self.shape), self], -1)
    block = linalg_matrix_exp(ops.cat([upper, lower], -2))
    return block.narrow(-2, 0, n).narrow(-1, n, n)


def _check_exponential(self: Any) -> None:
    check_square("linalg.matrix_exp", self)
    check_floating("linalg.matrix_exp", self, low=True)


linalg_matrix_exp = op(
    "linalg_matrix_exp(Tensor self) -> Tensor",
    dtypes=WIDE,
    namespace="linalg",
    check=_check_exponential,
    reference=_exponential,
    vjp={"self": lambda g, self: _exponential_along(self.mH, g)},
    jvp=lambda self, self_t: _exponential_along(self, self_t),
    batch="dims",
    samples=lambda s: wide_only(
        s,
        s(s.tensor(3, 3, low=-1, high=1)),
        s(s.tensor(2, 2, 2, strided=True)),
        s(s.values([[0, 8], [-8, 0]])),
        s(s.tensor(1, 1)),
        s(s.tensor(0, 0)),
        s(s.tensor(0, 2, 2)),
    ),
    errors=lambda s: [
        (s(s.tensor(2, 3)), RuntimeError, "square"),
        (s(s.tensor(2, 2, dtype="int64")), RuntimeError, "floating point or complex"),
    ],
    doc="Compute the matrix exponential of square matrices (..., n, n).",
)


@composite(
    dtypes=WIDE,
    samples=lambda s: wide_only(s, s(s.tensor(3, 3, low=-1, high=1)), s(s.tensor(2, 2, 2))),
    errors=lambda s: [(s(s.tensor(2, 3)), RuntimeError, "square")],
)
def matrix_exp(self: Tensor) -> Tensor:
    """Compute the matrix exponential; see `linalg.matrix_exp`."""
    return linalg_matrix_exp(self)


# Products -----------------------------------------------------------------------------------------


@composite(
    out=True,
    dtypes="integral floating complex",
    namespace="linalg",
    samples=lambda s: [s(s.tensor(2, 3), s.tensor(3, 2)), s(s.tensor(2, 2, 3), s.tensor(3))],
    errors=lambda s: [(s(s.tensor(2, 3), s.tensor(2, 3)), RuntimeError, "cannot be multiplied")],
)
def linalg_matmul(self: Tensor, other: Tensor) -> Tensor:
    """Multiply vectors, matrices or batches of matrices; see `matmul`."""
    return tangrad.matmul(self, other)


@composite(
    strict_out_dtype=True,
    out=True,
    dtypes=WIDE,
    namespace="linalg",
    samples=lambda s: [
        s(s.tensor(3), s.tensor(3)),
        s(s.tensor(2, 3), s.tensor(4, 1, 3)),
        s(s.tensor(3, 2), s.tensor(3, 2, strided=True), dim=0),
        s(s.tensor(2, 0), s.tensor(2, 0)),
    ],
    errors=lambda s: [
        (s(s.tensor(2), s.tensor(3)), RuntimeError, "must match|broadcast|size"),
        (s(s.tensor(2), s.tensor(2, dtype="float64")), RuntimeError, "same dtype"),
    ],
)
def linalg_vecdot(x: Tensor, y: Tensor, *, dim: Dim = -1) -> Tensor:
    """Sum conj(x) * y over a dimension of vectors that broadcast."""
    check_floating("linalg.vecdot", x, low=True)
    if x.dtype != y.dtype:
        raise RuntimeError(
            "linalg.vecdot: Expected x and y to have the same dtype, but found x of type "
            f"{x.dtype} and y of type {y.dtype} instead"
        )
    dim = dim - x.ndim if x.ndim else -1  # counted from the end, for y may have more dimensions
    if x.dtype in (tangrad.float16, tangrad.bfloat16):  # rounded once, as a product of matrices is
        return (x.float() * y.float()).sum(dim).to(x.dtype)
    if x.ndim == 1 and x.shape == y.shape:  # in one pass, without the products in memory
        return tangrad.vdot(x, y)
    return (x.conj() * y).sum(dim)


def _cheapest_order(sizes: Sequence[int]) -> list[list[int]]:
    """Return where to split each product i..j with the fewest multiplications.

    Dynamic programming over the lengths of products (Cormen et al., "Introduction to Algorithms",
    15.2); matrix i is sizes[i] x sizes[i + 1].
    """
    n = len(sizes) - 1
    cost = [[0] * n for _ in range(n)]
    split = [[0] * n for _ in range(n)]
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            costs = [
                cost[i][k] + cost[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1]
                for k in range(i, j)
            ]
            cost[i][j] = min(costs)
            split[i][j] = i + costs.index(cost[i][j])
    return split


def _chain(matrices: Sequence[Any]) -> Any:
    """Multiply matrices in the cheapest order."""
    sizes = [*(m.shape[0] for m in matrices), matrices[-1].shape[1]]
    split = _cheapest_order(sizes)

    def product(i: int, j: int) -> Any:
        if i == j:
            return matrices[i]
        k = split[i][j]
        return product(i, k).mm(product(k + 1, j))

    return product(0, len(matrices) - 1)


@composite(
    strict_out_dtype=True,
    out=True,
    dtypes="integral floating complex",
    namespace="linalg",
    samples=lambda s: [
        s([s.tensor(2, 3), s.tensor(3, 4), s.tensor(4, 2)]),
        s([s.tensor(3), s.tensor(3, 4), s.tensor(4)]),
        s([s.tensor(3), s.tensor(3, 2)]),
        s([s.tensor(4, 2), s.tensor(2, 5), s.tensor(5, 1), s.tensor(1)]),
        s([s.tensor(2, 0), s.tensor(0, 3)]),
    ],
    errors=lambda s: [
        (s([s.tensor(2, 3)]), RuntimeError, "at least 2 tensors"),
        (s([s.tensor(2, 3), s.tensor(2, 3)]), RuntimeError, "cannot be multiplied"),
        (s([s.tensor(2, 3), s.tensor(3), s.tensor(3, 2)]), RuntimeError, "must be 2D"),
    ],
)
def linalg_multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """Multiply matrices in the order that needs the fewest operations.

    Args:
        tensors: two or more matrices; the first may be a row vector, the last a column vector.
    """
    if len(tensors) < 2:
        raise RuntimeError(f"multi_dot(): expected at least 2 tensors but got {len(tensors)}")
    for k, t in enumerate(tensors):
        ends = k in (0, len(tensors) - 1)
        if t.ndim != 2 and not (ends and t.ndim == 1):
            what = "1D or 2D" if ends else "2D"
            raise RuntimeError(f"multi_dot(): tensor {k} must be {what} but got {t.ndim}D")
    first, last = tensors[0], tensors[-1]
    matrices = [
        first.unsqueeze(0) if first.ndim == 1 else first,
        *tensors[1:-1],
        last.unsqueeze(1) if last.ndim == 1 else last,
    ]
    for k, (a, b) in enumerate(pairwise(matrices)):
        if a.dtype != b.dtype:
            raise RuntimeError(
                f"multi_dot(): all tensors must have the same dtype but got {a.dtype} and "
                f"{b.dtype} (tensors {k} and {k + 1})"
            )
        if a.shape[1] != b.shape[0]:
            raise RuntimeError(
                f"multi_dot(): tensors {k} and {k + 1} with shapes {list(a.shape)} and "
                f"{list(b.shape)} cannot be multiplied"
            )
    product = _chain(matrices)
    shape = [product.shape[k] for k, end in ((0, first), (1, last)) if end.ndim == 2]
    return product if len(shape) == 2 else product.reshape(shape)


@composite(
    out=True,
    varargs=True,
    dtypes="integral floating complex",
    method=False,
    samples=lambda s: [
        s(s.tensor(2, 3), s.tensor(3, 4), s.tensor(4, 2)),
        s(s.tensor(2, 3), s.tensor(3, 1)),
        s(s.tensor(2, 3)),
    ],
    errors=lambda s: [
        (s(s.tensor(2), s.tensor(2, 2)), RuntimeError, "must be 2|2D|matrices"),
        (s(s.tensor(2, 3), s.tensor(2, 3)), RuntimeError, "cannot be multiplied"),
    ],
)
def chain_matmul(matrices: Sequence[Tensor]) -> Tensor:
    """Multiply matrices in the cheapest order; `linalg.multi_dot` is the newer name."""
    for k, m in enumerate(matrices):
        if m.ndim != 2:
            raise RuntimeError(f"chain_matmul: matrix {k} must be 2D, got shape {list(m.shape)}")
    if len(matrices) == 1:
        return matrices[0]
    return linalg_multi_dot(matrices)


@composite(
    strict_out_dtype=True,
    strict_out=True,
    out=True,
    dtypes="integral floating complex",
    namespace="linalg",
    samples=lambda s: [
        s(s.tensor(2, 3), s.tensor(2, 3)),
        s(s.tensor(3, 2, strided=True), s.tensor(3, 1), dim=0),
        s(s.tensor(2, 3), s.tensor(1, 3)),
    ],
    errors=lambda s: [
        (s(s.tensor(2, 3), s.tensor(3)), RuntimeError, "same number of dimensions"),
        (s(s.tensor(2, 3), s.tensor(2, 2)), RuntimeError, "must have length 3"),
    ],
)
def linalg_cross(self: Tensor, other: Tensor, *, dim: Dim = -1) -> Tensor:
    """Take the cross product of three-dimensional vectors along a dimension."""
    if self.ndim != other.ndim:
        raise RuntimeError("linalg.cross: inputs must have the same number of dimensions.")
    return tangrad.cross(self, other, dim)


@composite(
    namespace="linalg",
    samples=lambda s: [
        s(s.tensor(3, 3)),
        s(s.tensor(2, 3, 4), offset=1),
        s(s.tensor(2, 3, 4), offset=-1, dim1=0, dim2=2),
    ],
    errors=lambda s: [
        (s(s.tensor(2, 2), dim1=3), IndexError, "Dimension out of range"),
        (s(s.tensor(2, 2), dim1=1, dim2=1), RuntimeError, "cannot be identical|differ|distinct"),
    ],
)
def linalg_diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Show the diagonals of matrices, as a view."""
    return A.diagonal(offset, dim1, dim2)


# Matrices of vectors ------------------------------------------------------------------------------


@composite(
    dtypes="integral floating complex",
    namespace="linalg",
    samples=lambda s: [
        s(s.tensor(3, low=-2, high=3)),
        s(s.tensor(2, 3, low=-2, high=3), N=4),
        s(s.tensor(4, low=-2, high=3, strided=True), N=2),
        s(s.tensor(), N=3),
    ],
    errors=lambda s: [
        (s(s.tensor()), RuntimeError, "dimension"),
        (s(s.tensor(3), N=1), RuntimeError, "greater than 1"),
    ],
)
def linalg_vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """Return the matrices with rows 1, x, x^2, ..., x^(N - 1).

    Args:
        x: (..., n). N: how many columns; n by default.
    """
    if x.dtype == tangrad.bool:
        raise RuntimeError(
            "linalg.vander supports floating point, complex, and integer tensors, but got Bool"
        )
    if x.ndim == 0 and N is None:
        raise RuntimeError("linalg.vander: x of no dimension needs N; pass N=... or x.reshape(1)")
    x = x.reshape((1,)) if x.ndim == 0 else x
    count = x.shape[-1] if N is None else N
    if count <= 1:
        raise RuntimeError("N must be greater than 1.")
    powers = x.unsqueeze(-1).expand((*x.shape, count - 1)).cumprod(-1)
    return ops.cat([powers.new_ones((*x.shape, 1)), powers], -1)


@composite(
    method=False,
    samples=lambda s: [
        s(s.tensor(3, low=-2, high=3)),
        s(s.tensor(3, low=-2, high=3), 4),
        s(s.tensor(3, low=-2, high=3), 2, increasing=True),
        s(s.tensor(3), 0),
        s(s.tensor(3), 1),
    ],
    errors=lambda s: [
        (s(s.tensor(2, 3)), RuntimeError, "one-dimensional"),
        (s(s.tensor(3), -1), RuntimeError, "non-negative"),
    ],
)
def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """Return the matrix with columns of powers of a vector, the highest first.

    Args:
        x: (n,). N: how many columns; n by default. increasing: the lowest power first.
    """
    if x.ndim != 1:
        raise RuntimeError(
            f"x must be a one-dimensional tensor, got shape {list(x.shape)} (vander)"
        )
    count = x.shape[0] if N is None else N
    if count < 0:
        raise RuntimeError(f"N must be non-negative, got {count} (vander)")
    dtype = tangrad.promote_types(x.dtype, tangrad.int64)
    result = ops.ones((x.shape[0], min(count, 1)), dtype=dtype, device=x.device)
    if count > 1:
        powers = x.to(dtype).unsqueeze(-1).expand((x.shape[0], count - 1)).cumprod(-1)
        result = ops.cat([result, powers], -1)
    return result if increasing else result.flip(-1)
