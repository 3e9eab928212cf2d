"""Approximate factorizations of low rank, by random directions."""

from __future__ import annotations

from typing import Any

from tangrad import ops
from tangrad.ops.define import composite
from tangrad.ops.matrix_checks import check_floating, check_matrix

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


@composite(
    "svd_lowrank(Tensor A, int? q=6, int? niter=2, Tensor? M=None)"
    " -> (Tensor U, Tensor S, Tensor V)",
    dtypes=WIDE,
    method=False,
)
def svd_lowrank(A: Any, q: int | None, niter: int | None, M: Any) -> Any:
    """Approximate A - M by U diag(S) V^H of rank q, from random directions.

    Args:
        A: (..., m, n). q: how many singular values, somewhat more than the rank wanted.
        niter: steps of subspace iteration; each makes small singular values matter less.
        M: (..., m, n), subtracted first, or None.

    Returns:
        U (..., m, q), S (..., q), V (..., n, q), as a tuple.
    """
    check_matrix("svd_lowrank", A)
    check_floating("svd_lowrank", A)
    q, niter = 6 if q is None else q, 2 if niter is None else niter
    return _svd_lowrank(A if M is None else A - M.expand(A.shape), q, niter)


@composite(
    "pca_lowrank(Tensor A, int? q=None, bool center=True, int niter=2)"
    " -> (Tensor U, Tensor S, Tensor V)",
    dtypes=WIDE,
    method=False,
)
def pca_lowrank(A: Any, q: int | None, center: bool, niter: int) -> Any:
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
