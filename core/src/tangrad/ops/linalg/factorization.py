"""Factorizations by elimination: Cholesky, LU with pivots, LDL."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad import ops
from tangrad.devices import lapack
from tangrad.ops.definition.define import composite, op
from tangrad.ops.definition.signature import Tensor
from tangrad.ops.linalg.matrix_checks import (
    check_floating,
    check_matrix,
    check_square_floating,
    checked,
    definite,
    regular,
    square_errors,
    symmetric,
    wide_only,
)

WIDE = "floating complex"

# Cholesky -----------------------------------------------------------------------------------------


def _lower_half(x: Any) -> Any:
    """Take the lower triangle, with half the diagonal."""
    return (x.tril() + x.tril(-1)) * 0.5


def _between(factor: Any, middle: Any) -> Any:
    """Compute inv(L)^H X inv(L) by triangular solves, for lower triangular L."""
    half = ops.linalg_solve_triangular(factor.mH, middle, upper=True)
    return ops.linalg_solve_triangular(factor, half, upper=False, left=False)


def _cholesky_vjp(g0: Any, result0: Any, upper: bool) -> Any:
    """Pull back through A = L L^H (Murray 2016, "Differentiation of the Cholesky decomposition").

    The gradient is Hermitian, since A is, but for what the imaginary part of the diagonal's
    cotangent adds, which no Hermitian A can reach.
    """
    factor, g = (result0.mH, g0.mH) if upper else (result0, g0)
    middle = factor.mH.matmul(g)
    return _between(factor, (middle.tril() + middle.tril(-1).mH) * 0.5)


def _cholesky_jvp(self_t: Any, result: Any, upper: bool) -> Any:
    factor = result[0].mH if upper else result[0]
    half = ops.linalg_solve_triangular(factor, self_t, upper=False)
    inner = ops.linalg_solve_triangular(factor.mH, half, upper=True, left=False)
    moved = factor.matmul(_lower_half(inner))
    return [moved.mH if upper else moved, None]


_INDEFINITE = (
    "The factorization could not be completed because the input is not positive-definite (the "
    "leading minor of order {} is not positive-definite)."
)

_cholesky_kernel = op(
    "_linalg_cholesky(Tensor self, *, bool upper=False, str check='') -> (Tensor L, Tensor info)",
    dtypes=WIDE,
    shape=lambda self: (self.shape, self.shape[:-2]),
    dtype=lambda self: (self.dtype, "int32"),
    check=lambda self: check_square_floating("linalg.cholesky", self),
    reference=lambda np, self, upper, check: checked(
        lapack.cholesky(np, self, upper), check, _INDEFINITE
    ),
    vjp={"self": _cholesky_vjp},
    jvp=_cholesky_jvp,
    surrogate="it is among Hermitian matrices, of which the op reads one triangle",
    batch="dims",
    function=False,
    method=False,
    oracle="linalg.cholesky_ex",
    samples=lambda s: [
        s(definite(s, 3, 3)),
        s(definite(s, 2, 3, 3), upper=True),
        *wide_only(s, s(s.tensor(2, 0, 0)), s(s.tensor(0, 2, 2))),
    ],
    errors=square_errors,
    doc="Factor Hermitian positive-definite matrices as L L^H or U^H U.",
)


@composite(
    result_names=("L", "info"),
    strict_out_dtype=True,
    out=True,
    dtypes=WIDE,
    namespace="linalg",
    samples=lambda s: [s(definite(s, 3, 3)), s(definite(s, 2, 2, 2), upper=True)],
    errors=square_errors,
)
def linalg_cholesky_ex(
    self: Tensor, *, upper: bool = False, check_errors: bool = False
) -> tuple[Tensor, Tensor]:
    """Factor Hermitian positive-definite matrices, without a check unless it is asked for.

    Args:
        self: (..., n, n); the lower triangle is read (with `upper`, the upper one).
        upper: return U of U^H U instead of L of L L^H.
        check_errors: raise as `cholesky` does.

    Returns:
        The factors, and int32 numbers: 0, or the order of the first minor that is not positive.

    Raises:
        LinAlgError: with `check_errors`, if a matrix is not positive-definite.
    """
    check = "linalg.cholesky_ex" if check_errors else ""
    found = _cholesky_kernel(self, upper=upper, check=check)
    return linalg_cholesky_ex.return_type(*found)


@composite(
    strict_out_dtype=True,
    out=True,
    dtypes=WIDE,
    namespace="linalg",
    samples=lambda s: [s(definite(s, 3, 3)), s(definite(s, 2, 3, 3), upper=True)],
    errors=lambda s: [
        *square_errors(s),
        (s(s.values([[1, 2], [2, 1]])), RuntimeError, "not positive-definite"),
        (s(s.values([[[1, 0], [0, 1]], [[-1, 0], [0, 1]]])), RuntimeError, "Batch element 1"),
    ],
)
def linalg_cholesky(self: Tensor, *, upper: bool = False) -> Tensor:
    """Factor Hermitian positive-definite matrices as L L^H (with `upper`, as U^H U).

    Raises:
        LinAlgError: a matrix is not positive-definite.
    """
    return _cholesky_kernel(self, upper=upper, check="linalg.cholesky")[0]


@composite(
    out=True,
    dtypes=WIDE,
    oracle="linalg.cholesky",
    samples=lambda s: [s(definite(s, 3, 3)), s(definite(s, 2, 3, 3), upper=True)],
    errors=square_errors,
)
def cholesky(self: Tensor, upper: bool = False) -> Tensor:
    """Factor Hermitian positive-definite matrices; `linalg.cholesky` is the newer name."""
    return _cholesky_kernel(self, upper=upper, check="cholesky")[0]


# LU -----------------------------------------------------------------------------------------------


def _check_lu(A: Any, pivot: bool) -> None:
    check_matrix("linalg.lu_factor", A)
    check_floating("linalg.lu_factor", A)
    if not pivot:
        raise RuntimeError(
            "linalg.lu_factor: LU without pivoting is not implemented on this device; "
            "take pivot=True"
        )


def _unit_lower(lu: Any, k: int) -> Any:
    eye = ops.eye(lu.shape[-2], k, dtype=lu.dtype, device=lu.device)
    return lu.narrow(-1, 0, k).tril(-1) + eye


def _lu_vjp(g0: Any, result0: Any, result1: Any) -> Any:
    """Pull back through P^T A = L U, also of matrices that are not square.

    With M = tril(L^H gL, -1) + triu(gU U^H), the square part's gradient is inv(L)^H M inv(U)^H.
    Rows below the square are A2 = L2 U and columns beside it L U2: they give their own gradient by
    one solve, and what they add to that of U and L.
    """
    m, n = result0.shape[-2:]
    k = min(m, n)
    square = result0.narrow(-2, 0, k).narrow(-1, 0, k)
    low, high = _unit_lower(square, k), square.triu()
    g_low = g0.narrow(-2, 0, k).narrow(-1, 0, k).tril(-1)
    g_high = g0.narrow(-2, 0, k).narrow(-1, 0, k).triu()
    by_low, by_high = low.mH.matmul(g_low), g_high.matmul(high.mH)
    extra = None
    if n > k:
        beside = result0.narrow(-1, k, n - k)
        g_beside = g0.narrow(-1, k, n - k)
        by_low = by_low - g_beside.matmul(beside.mH)
        extra = ops.linalg_solve_triangular(low.mH, g_beside, upper=True, unitriangular=True)
    elif m > k:
        below = result0.narrow(-2, k, m - k)
        g_below = g0.narrow(-2, k, m - k)
        by_high = by_high - below.mH.matmul(g_below)
        extra = ops.linalg_solve_triangular(high.mH, g_below, upper=False, left=False)
    middle = by_low.tril(-1) + by_high.triu()
    half = ops.linalg_solve_triangular(low.mH, middle, upper=True, unitriangular=True)
    g = ops.linalg_solve_triangular(high.mH, half, upper=False, left=False)
    if extra is not None:
        g = ops.cat([g, extra], -1 if n > k else -2)
    return _permutation_matrix(result1, m, g.dtype).matmul(g)


_ZERO_PIVOT = (
    "U[{0},{0}] is zero and using it on lu_solve would result in a division by zero. If you still "
    "want to perform the factorization, consider calling linalg.lu(A, pivot) or "
    "linalg.lu_factor_ex(A, pivot)"
)

_lu_kernel = op(
    "_linalg_lu_factor(Tensor A, *, bool pivot=True, str check='')"
    " -> (Tensor LU, Tensor pivots, Tensor info)",
    dtypes=WIDE,
    shape=lambda A: (A.shape, (*A.shape[:-2], min(A.shape[-2:])), A.shape[:-2]),
    dtype=lambda A: (A.dtype, "int32", "int32"),
    check=_check_lu,
    reference=lambda np, A, check: checked(lapack.lu_factor(np, A), check, _ZERO_PIVOT),
    vjp={"A": _lu_vjp},
    batch="dims",
    function=False,
    method=False,
    oracle="linalg.lu_factor_ex",
    samples=lambda s: [
        s(regular(s, 3, 3)),
        s(s.tensor(2, 3, 5)),
        s(s.tensor(5, 3, strided=True)),
        *wide_only(s, s(s.tensor(2, 0, 3))),
    ],
    errors=lambda s: [
        (s(s.tensor(3)), RuntimeError, "at least 2|2 or more"),
        (s(s.tensor(2, 2), pivot=False), RuntimeError, "without pivoting"),
    ],
    doc="Factor matrices by elimination with partial pivoting.",
)


def _lu_samples(s: Any) -> list[Any]:
    return [s(regular(s, 3, 3)), s(s.tensor(2, 3, 4))]


@composite(
    result_names=("LU", "pivots", "info"),
    strict_out_dtype=True,
    out=True,
    dtypes=WIDE,
    namespace="linalg",
    samples=_lu_samples,
    errors=lambda s: [(s(s.tensor(3)), RuntimeError, "at least 2|2 or more")],
)
def linalg_lu_factor_ex(
    A: Tensor, *, pivot: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Factor matrices as P L U, compactly; no check for zero pivots unless asked for.

    Returns:
        LU: L below the diagonal, whose own ones are not stored, and U. pivots: int32, from one:
        row i was interchanged with row pivots[i]. info: int32, 0 or the first pivot that is zero.
    """
    check = "linalg.lu_factor_ex" if check_errors else ""
    found = _lu_kernel(A, pivot=pivot, check=check)
    return linalg_lu_factor_ex.return_type(*found)


@composite(
    result_names=("LU", "pivots"),
    strict_out_dtype=True,
    out=True,
    dtypes=WIDE,
    namespace="linalg",
    samples=_lu_samples,
    errors=lambda s: [
        (s(s.tensor(3)), RuntimeError, "at least 2|2 or more"),
        (s(s.values([[0, 0], [0, 1]])), RuntimeError, "is zero"),
    ],
)
def linalg_lu_factor(A: Tensor, *, pivot: bool = True) -> tuple[Tensor, Tensor]:
    """Factor matrices as P L U, compactly, for `linalg.lu_solve`.

    Raises:
        LinAlgError: a pivot is zero.
    """
    factors, pivots, _ = _lu_kernel(A, pivot=pivot, check="torch.linalg.lu_factor")
    return linalg_lu_factor.return_type(factors, pivots)


@composite(result_names=("LU", "pivots", "info"), dtypes=WIDE, method=False, samples=_lu_samples)
def _lu_with_info(
    self: Tensor, pivot: bool = True, check_errors: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Factor matrices as P L U: what `lu` is made of."""
    found = _lu_kernel(self, pivot=pivot, check="lu_factor" if check_errors else "")
    return _lu_with_info.return_type(*found)


@composite(
    strict_out_dtype=True,
    out=True,
    dtypes=WIDE,
    samples=_lu_samples,
    errors=lambda s: [(s(s.tensor(3)), RuntimeError, "at least 2|2 or more")],
)
def lu(self: Tensor, pivot: bool = True, get_infos: bool = False) -> Any:
    """Factor matrices as P L U: (LU, pivots), with `get_infos` also the numbers of zero pivots.

    `linalg.lu_factor` is the newer name.

    Raises:
        LinAlgError: a pivot is zero, and `get_infos` is not set.
    """
    found = _lu_with_info(self, pivot, not get_infos)
    return found if get_infos else tuple(found)[:2]


def _order_of_rows(np: Any, pivots: Any, size: int) -> Any:
    rows = np.zeros((*pivots.shape[:-1], size), np.int64)
    wrong = pivots[(pivots < 1) | (pivots > size)]
    if wrong.size:
        raise RuntimeError(
            "pivots of an LU factorization must be between 1 and the number of rows, "
            f"{size}, but got {wrong[0]}; pass those that linalg.lu_factor gave"
        )
    for place in np.ndindex(pivots.shape[:-1]):
        rows[place] = lapack.permutation(np, pivots[place], size)
    return rows


row_order = op(
    "_linalg_row_order(Tensor pivots, int size) -> Tensor",
    shape=lambda pivots, size: (*pivots.shape[:-1], size),
    dtype="int64",
    reference=_order_of_rows,
    vjp="none: integer input",
    batch="dims",
    function=False,
    method=False,
    doc="Return which row of P L U each row of L U is, from the pivots of an LU factorization.",
)


def _permutation_matrix(pivots: Any, size: int, dtype: Any) -> Any:
    order = row_order(pivots, size)
    rows = ops.arange(size, device=pivots.device).unsqueeze(-1)
    return (rows == order.unsqueeze(-2)).to(dtype)


@composite(
    result_names=("P", "L", "U"),
    strict_out_dtype=True,
    out=True,
    dtypes="all",
    method=False,
    samples=lambda s: [
        s(s.tensor(3, 3), s.values([3, 2, 3], dtype="int32")),
        s(s.tensor(2, 3, 4), s.values([[1, 2, 3], [2, 3, 3]], dtype="int32")),
        s(s.tensor(4, 2), s.values([4, 2], dtype="int32"), unpack_data=False),
        s(s.tensor(4, 2), s.values([4, 2], dtype="int32"), unpack_pivots=False),
    ],
    errors=lambda s: [
        (s(s.tensor(2, 2), s.values([1, 2], dtype="int64")), RuntimeError, "int32"),
        (s(s.tensor(2), s.values([1, 2], dtype="int32")), RuntimeError, "at least 2"),
        (s(s.tensor(2, 2), s.values([1], dtype="int32")), RuntimeError, "same|must"),
    ],
)
def lu_unpack(
    LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Take compact LU factors apart into P, L and U; what is not asked for is empty."""
    check_matrix("lu_unpack", LU_data, "LU_data")
    m, n = LU_data.shape[-2:]
    k = min(m, n)
    if unpack_pivots and LU_pivots.dtype != tangrad.int32:
        raise RuntimeError(
            "torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 "
            f"dtype, got {LU_pivots.dtype}. Note: this function is intended to be used with the "
            "output produced by torch.linalg.lu_factor"
        )
    if unpack_pivots and tuple(LU_pivots.shape) != (*LU_data.shape[:-2], k):
        raise RuntimeError(
            "torch.lu_unpack: LU_pivots must have the same batch dimensions as LU_data and "
            f"min(m, n) = {k} elements in the last, got {list(LU_pivots.shape)} for "
            f"{list(LU_data.shape)}"
        )
    none = LU_data.new_empty((0,))
    low, high = none, none
    if unpack_data:
        low, high = _unit_lower(LU_data, k), LU_data.narrow(-2, 0, k).triu()
    p = _permutation_matrix(LU_pivots, m, LU_data.dtype) if unpack_pivots else none
    return lu_unpack.return_type(p, low, high)


@composite(
    result_names=("P", "L", "U"),
    strict_out_dtype=True,
    out=True,
    dtypes=WIDE,
    namespace="linalg",
    samples=lambda s: [s(regular(s, 3, 3)), s(s.tensor(2, 3, 4)), s(s.tensor(4, 2))],
    errors=lambda s: [(s(s.tensor(3)), RuntimeError, "at least 2|2 or more")],
)
def linalg_lu(A: Tensor, *, pivot: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Factor matrices (..., m, n) as P L U, with k = min(m, n).

    Returns:
        P: (..., m, m) permutation matrices. L: (..., m, k) unit lower triangular. U: (..., k, n)
        upper triangular.
    """
    factors, pivots, _ = _lu_kernel(A, pivot=pivot)
    return linalg_lu.return_type(*lu_unpack(factors, pivots))


# LDL ----------------------------------------------------------------------------------------------

_ldl_kernel = op(
    "linalg_ldl_factor_ex(Tensor self, *, bool hermitian=False, bool check_errors=False)"
    " -> (Tensor LD, Tensor pivots, Tensor info)",
    dtypes=WIDE,
    namespace="linalg",
    shape=lambda self: (self.shape, self.shape[:-1], self.shape[:-2]),
    dtype=lambda self: (self.dtype, "int32", "int32"),
    check=lambda self: check_square_floating("torch.linalg.ldl_factor_ex", self),
    reference=lambda np, self, hermitian, check_errors: checked(
        lapack.ldl_factor(np, self, hermitian),
        "torch.linalg.ldl_factor_ex" if check_errors else "",
        "D[{0},{0}] is zero and using it on ldl_solve would result in a division by zero",
    ),
    strict_out_dtype=True,
    vjp={"self": "none: the order of the pivots jumps, and PyTorch defines none"},
    batch="dims",
    samples=lambda s: [
        s(symmetric(s, 3, 3, hermitian=False)),
        s(symmetric(s, 2, 3, 3), hermitian=True),
        *wide_only(s, s(s.tensor(0, 3, 3))),
    ],
    errors=square_errors,
    doc="""Factor symmetric or Hermitian matrices as L D L^T or L D L^H (Bunch and Kaufman 1977).

    Args:
        self: (..., n, n), of which the lower triangle is read.
        hermitian: whether a complex matrix is Hermitian rather than symmetric.
        check_errors: raise if a block of D is singular.

    Returns:
        LD and pivots as LAPACK's sytrf and hetrf store them, and int32 numbers: 0 or the block
        that is zero.

    Raises:
        LinAlgError: with `check_errors`, if D is singular.
    """,
)


@composite(
    result_names=("LD", "pivots"),
    strict_out_dtype=True,
    out=True,
    dtypes=WIDE,
    namespace="linalg",
    samples=lambda s: [s(symmetric(s, 3, 3, hermitian=False))],
    errors=square_errors,
)
def linalg_ldl_factor(self: Tensor, *, hermitian: bool = False) -> tuple[Tensor, Tensor]:
    """Factor symmetric or Hermitian matrices for `linalg.ldl_solve`.

    Raises:
        LinAlgError: a block of D is singular.
    """
    factors, pivots, _ = _ldl_kernel(self, hermitian=hermitian, check_errors=True)
    return linalg_ldl_factor.return_type(factors, pivots)


def _check_ldl_solve(LD: Any, pivots: Any, B: Any, hermitian: bool) -> None:
    name = "torch.linalg.ldl_solve"
    check_square_floating(name, LD, "LD")
    if len(B.shape) < 2:
        raise RuntimeError(
            f"{name}: Expected B to have at least 2 dimensions, but it has {len(B.shape)} "
            "dimensions instead"
        )
    if tuple(pivots.shape) != tuple(LD.shape[:-1]) or LD.shape[-1] != B.shape[-2]:
        raise RuntimeError(
            f"{name}: Expected LD.shape[:-1] and pivots.shape to be the same and B to have as many "
            f"rows, but got LD {list(LD.shape)}, pivots {list(pivots.shape)}, B {list(B.shape)}"
        )
    if pivots.dtype.is_floating_point or pivots.dtype.is_complex:
        raise RuntimeError(f"{name}: Expected pivots to be integers. Got {pivots.dtype}")
    if LD.dtype != B.dtype:
        raise RuntimeError(f"{name}: LD and B must have the same dtype, got {LD.dtype}, {B.dtype}")


def _ldl_shape(LD: Any, B: Any) -> Any:
    import tangrad

    return (*tangrad.broadcast_shapes(tuple(LD.shape[:-2]), tuple(B.shape[:-2])), *B.shape[-2:])


def _ldl_solved(np: Any, LD: Any, pivots: Any, B: Any, hermitian: bool) -> Any:
    batch = np.broadcast_shapes(LD.shape[:-2], B.shape[:-2])
    factors, order, right = (
        np.ascontiguousarray(np.broadcast_to(x, (*batch, *x.shape[x.ndim - kept :])))
        for x, kept in ((LD, 2), (pivots, 1), (B, 2))
    )
    return lapack.ldl_solve(np, factors, order, right, hermitian)


_LDL_STORAGE = "none: the factors' storage is LAPACK's own, and PyTorch defines none"

_linalg_ldl_solve = op(
    "linalg_ldl_solve(Tensor LD, Tensor pivots, Tensor B, *, bool hermitian=False) -> Tensor",
    dtypes=WIDE,
    namespace="linalg",
    shape=_ldl_shape,
    dtype=lambda B: B.dtype,
    check=_check_ldl_solve,
    reference=_ldl_solved,
    strict_out_dtype=True,
    vjp={"LD": _LDL_STORAGE, "B": _LDL_STORAGE},
    samples=lambda s: [
        s(symmetric(s, 3, 3), s.values([1, 2, 3], dtype="int32"), s.tensor(3, 2)),
        s(
            symmetric(s, 2, 3, 3),
            s.values([[1, 2, 3], [2, 2, 3]], dtype="int32"),
            s.tensor(3, 2),
            hermitian=True,
        ),
    ],
    errors=lambda s: [
        (
            s(s.tensor(2, 2), s.values([1, 2], dtype="int32"), s.tensor(3, 1)),
            RuntimeError,
            "as many rows|same",
        )
    ],
    doc="Solve A X = B by the factors that `linalg.ldl_factor` gave for A.",
)
