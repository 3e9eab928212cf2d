"""Factorizations of low rank: by random directions, and of a few eigenvalues."""

from __future__ import annotations

from typing import Any

from tangrad import ops
from tangrad.ops.definition.define import composite
from tangrad.ops.definition.signature import Tensor
from tangrad.ops.linalg.matrix_checks import check_floating, check_matrix

WIDE = "floating complex"


def _basis(a: Any, q: int, niter: int) -> Any:
    """Return orthonormal columns that nearly span the range of A.

    Subspace iteration from random directions (Halko, Martinsson and Tropp 2009, algorithm 4.4).
    """
    directions = ops.randn(a.shape[-1], q, dtype=a.dtype, device=a.device)
    basis = ops.linalg_qr(a.matmul(directions))[0]
    for _ in range(niter):
        basis = ops.linalg_qr(a.mH.matmul(basis))[0]
        basis = ops.linalg_qr(a.matmul(basis))[0]
    return basis


def _svd_lowrank(a: Any, q: int, niter: int) -> tuple[Any, Any, Any]:
    wide = a.shape[-2] < a.shape[-1]
    tall = a.mH if wide else a
    basis = _basis(tall, q, niter)
    u, s, vh = ops.linalg_svd(basis.mH.matmul(tall), False)
    left, right = basis.matmul(u), vh.mH
    return (right, s, left) if wide else (left, s, right)


@composite(dtypes=WIDE, method=False)
def svd_lowrank(
    A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Approximate A - M by U diag(S) V^H of rank q, from random directions.

    Args:
        A: (..., m, n). q: how many singular values, somewhat more than the rank wanted.
        niter: steps of subspace iteration; each makes small singular values matter less.
        M: (..., m, n), subtracted first, or None.

    Returns:
        U (..., m, q), S (..., q), V (..., n, q), as a tuple.

    Raises:
        RuntimeError: A is no matrix of floating-point or complex numbers, or M of another dtype.
    """
    check_matrix("svd_lowrank", A)
    check_floating("svd_lowrank", A)
    q, niter = 6 if q is None else q, 2 if niter is None else niter
    if M is not None and M.dtype != A.dtype:
        raise RuntimeError(
            f"svd_lowrank: A and M must have the same dtype, got {A.dtype} and {M.dtype}"
        )
    return _svd_lowrank(A if M is None else A - M.expand(A.shape), q, niter)


@composite(dtypes=WIDE, method=False)
def pca_lowrank(
    A: Tensor, q: int | None = None, center: bool = True, niter: int = 2
) -> tuple[Tensor, Tensor, Tensor]:
    """Find the leading principal components of observations (rows), from random directions.

    Args:
        A: (..., m, n), m observations of n variables.
        q: how many components; min(6, m, n) by default.
        center: subtract the variables' means first.
        niter: steps of subspace iteration.

    Returns:
        U, S, V with A (centered) about U diag(S) V^H; the columns of V are the components.

    Raises:
        ValueError: q, niter or the dtype is not right.
    """
    check_matrix("pca_lowrank", A)
    if not (A.dtype.is_floating_point or A.dtype.is_complex):
        raise ValueError(f"pca_lowrank: input expected to be floating point tensor, got {A.dtype}")
    m, n = A.shape[-2:]
    q = min(6, m, n) if q is None else q
    if not 0 <= q <= min(m, n):
        raise ValueError(
            f"q(={q}) must be non-negative integer and not greater than min(m, n)={min(m, n)}"
        )
    if niter < 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    return _svd_lowrank(A - A.mean(-2, keepdim=True) if center else A, q, niter)


def _check_lobpcg(A: Any, B: Any, X: Any, k: int) -> None:
    check_matrix("lobpcg", A)
    check_floating("lobpcg", A)
    m = A.shape[-1]
    if A.shape[-2] != m:
        raise AssertionError(f"lobpcg: A must be square, got shape {list(A.shape)}")
    if B is not None and B.shape != A.shape:
        raise AssertionError(
            f"lobpcg: A and B must have same shape, got {list(A.shape)} vs {list(B.shape)}"
        )
    if X is not None and X.shape[-2] != m:
        raise AssertionError(f"lobpcg: X must have {m} rows, as A has, got shape {list(X.shape)}")
    if m < 3 * k:
        raise ValueError(
            f"LOBPCG algorithm is not applicable when the number of A rows (={m}) is smaller than "
            f"3 x the number of requested eigenpairs (={k})"
        )


@composite(dtypes=WIDE, method=False)
def lobpcg(
    A: Tensor,
    k: int | None = None,
    B: Tensor | None = None,
    X: Tensor | None = None,
    n: int | None = None,
    iK: Tensor | None = None,
    niter: int | None = None,
    tol: float | None = None,
    largest: bool | None = None,
    method: str | None = None,
    tracker: Any = None,
    ortho_iparams: Any = None,
    ortho_fparams: Any = None,
    ortho_bparams: Any = None,
) -> tuple[Tensor, Tensor]:
    """Find the k largest or smallest eigenvalues of A x = e B x, and their vectors.

    A matrix that is held whole is decomposed whole, which is exact: what steers PyTorch's
    iteration (n, iK, niter, tol, method, tracker) is accepted and steers nothing.

    Args:
        A: symmetric or Hermitian matrices (*, m, m).
        k: how many; as many as X has columns by default, or 1.
        B: positive definite matrices; the identity by default.
        X: the start of PyTorch's iteration; only its shape matters.
        largest: whether the largest, in descending order; else the smallest, ascending.

    Returns:
        Eigenvalues (*, k), and eigenvectors (*, m, k) with x^H B x = 1.

    Raises:
        AssertionError: shapes do not fit.
        ValueError: m < 3 k.
    """
    if k is None:
        k = 1 if X is None else X.shape[-1]
    _check_lobpcg(A, B, X, k)
    A = (A + A.mH) / 2  # as products x^H A x see it, where eigh reads one triangle
    if B is None:
        values, vectors = ops.linalg_eigh(A)
    else:
        # With B = L L^H the vectors are L^-H times those of L^-1 A L^-H.
        lower = ops.linalg_cholesky(B)
        half = ops.linalg_solve_triangular(lower, A, upper=False)
        reduced = ops.linalg_solve_triangular(lower.mH, half, upper=True, left=False)
        values, vectors = ops.linalg_eigh(reduced)
        vectors = ops.linalg_solve_triangular(lower.mH, vectors, upper=True)
    if largest is None or largest:
        values, vectors = values.flip(-1), vectors.flip(-1)
    return values[..., :k], vectors[..., :k]
