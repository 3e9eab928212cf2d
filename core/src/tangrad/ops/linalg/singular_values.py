"""Singular values and vectors of matrices.

The vectors are fixed up to a common phase of a pair only. A gradient that depends on it is refused,
as far as one call can tell: for complex matrices.
"""

from __future__ import annotations

from typing import Any

from tangrad import ops
from tangrad.devices import lapack_spectral
from tangrad.ops.definition.define import composite, op
from tangrad.ops.definition.signature import Tensor
from tangrad.ops.linalg.eigenvalues import columns_of, off_diagonal_quotient, rows_of, same_phases
from tangrad.ops.linalg.matrix_checks import (
    _linalg_check_gauge,
    check_floating,
    check_matrix,
    real_of,
    regular,
    wide_only,
)

WIDE = "floating complex"


def _check_svd(A: Any, driver: str | None) -> None:
    check_matrix("linalg.svd", A)
    check_floating("linalg.svd", A)
    if driver is not None:
        raise RuntimeError(
            f"torch.linalg.svd: keyword argument `driver={driver}` chooses among the routines of a "
            "device that has several; this one has one"
        )


def _svd_shape(A: Any, full_matrices: bool) -> Any:
    batch, (m, n) = A.shape[:-2], A.shape[-2:]
    k = min(m, n)
    u, vh = (m, n) if full_matrices else (k, k)
    return (*batch, m, u), (*batch, k), (*batch, vh, n)


def _svd_vjp(g0: Any, g1: Any, g2: Any, result0: Any, result1: Any, result2: Any) -> Any:
    """Pull back through A = U diag(s) V^H (Townsend 2016; Wan and Zhang 2019 for complex A).

    With E[i, j] = s[j]^2 - s[i]^2 off the diagonal, and the phases' part of U on it:
    U ((skew(U^H gU) / E) S + S (skew(V^H gV) / E) + diag(gs)) V^H, and what of gU and gV lies
    outside of the spaces that U and V span, over S.
    """
    (m, n), k = (result0.shape[-2], result2.shape[-1]), result1.shape[-1]
    u, s, vh = result0.narrow(-1, 0, k), result1, result2.narrow(-2, 0, k)
    g_u, g_v = g0.narrow(-1, 0, k), g2.narrow(-2, 0, k).mH
    by_u, by_v = u.mH.matmul(g_u), vh.matmul(g_v)
    by_s = g1.to(u.dtype)
    if u.dtype.is_complex:
        phases = by_u.diagonal(0, -2, -1).imag
        _linalg_check_gauge(
            phases + by_v.diagonal(0, -2, -1).imag,
            "svd_backward: The singular vectors in the complex case are specified up to "
            "multiplication by e^{i phi}. The specified loss function depends on this phase term, "
            "making it ill-defined.",
        )
        by_s = by_s + ops.complex(phases.new_zeros(phases.shape), phases / s)
    squares = s * s
    difference = columns_of(squares) - rows_of(squares)
    turn_u = _zero_diagonal(off_diagonal_quotient(_skew(by_u), difference))
    turn_v = _zero_diagonal(off_diagonal_quotient(_skew(by_v), difference))
    inner = turn_u * columns_of(s) + rows_of(s) * turn_v + by_s.diag_embed()
    if m > k:
        left = (g_u - u.matmul(by_u)) / columns_of(s)
        return (u.matmul(inner) + left).matmul(vh)
    if n > k:
        right = (g_v - vh.mH.matmul(by_v)).mH / rows_of(s)
        return u.matmul(inner.matmul(vh) + right)
    return u.matmul(inner).matmul(vh)


def _svd_jvp(A_t: Any, result: Any) -> Any:
    """Push through A = U diag(s) V^H; U and V share the phases' part (see `_svd_vjp`)."""
    k = result[1].shape[-1]
    u, s, vh = result[0].narrow(-1, 0, k), result[1], result[2].narrow(-2, 0, k)
    inner = u.mH.matmul(A_t).matmul(vh.mH)
    own = inner.diagonal(0, -2, -1)
    squares = s * s
    difference = columns_of(squares) - rows_of(squares)
    right, left = inner * columns_of(s), rows_of(s) * inner
    turn_u = _zero_diagonal(off_diagonal_quotient(right + right.mH, difference))
    turn_v = _zero_diagonal(off_diagonal_quotient(left + left.mH, difference))
    if own.dtype.is_complex:
        half = ops.complex(own.real.new_zeros(own.shape), own.imag / (2 * s)).diag_embed()
        turn_u, turn_v, own = turn_u + half, turn_v - half, own.real
    outside_u = (A_t.matmul(vh.mH) - u.matmul(inner)) / columns_of(s)
    outside_v = (A_t.mH.matmul(u) - vh.mH.matmul(inner.mH)) / columns_of(s)
    u_t = _with_complement(u.matmul(turn_u) + outside_u, u, result[0])
    v_t = _with_complement(vh.mH.matmul(turn_v) + outside_v, vh.mH, result[2].mH)
    return [u_t, own, v_t.mH]


def _with_complement(moved: Any, thin: Any, full: Any) -> Any:
    """Let the further columns of a full basis move as little as they can and stay orthogonal."""
    k, size = thin.shape[-1], full.shape[-1]
    if size == k:
        return moved
    rest = full.narrow(-1, k, size - k)
    return ops.cat([moved, -thin.matmul(moved.mH.matmul(rest))], -1)


def _skew(x: Any) -> Any:
    return x - x.mH


def _zero_diagonal(x: Any) -> Any:
    return x - x.diagonal(0, -2, -1).diag_embed()


_svd_kernel = op(
    "linalg_svd(Tensor A, bool full_matrices=True, *, str? driver=None)"
    " -> (Tensor U, Tensor S, Tensor Vh)",
    dtypes=WIDE,
    namespace="linalg",
    shape=_svd_shape,
    dtype=lambda A: (A.dtype, real_of(A.dtype), A.dtype),
    check=_check_svd,
    reference=lambda np, A, full_matrices: lapack_spectral.svd(np, A, full_matrices, True),
    strict_out_dtype=True,
    vjp={"A": _svd_vjp},
    jvp=_svd_jvp,
    batch="dims",
    oracle=lambda torch, A, full_matrices=True: same_phases(
        torch, _svd_kernel, A, full_matrices, torch.linalg.svd(A, full_matrices), 0, adjoint=True
    ),
    samples=lambda s: [
        s(regular(s, 3, 3)),
        s(regular(s, 2, 2, 3, strided=True), full_matrices=False),
        s(regular(s, 4, 2), full_matrices=False),
        *wide_only(s, s(s.tensor(0, 3)), s(s.tensor(2, 3, 0))),
    ],
    errors=lambda s: [
        (s(s.tensor(3)), RuntimeError, "at least 2|2 or more"),
        (s(s.tensor(2, 2, dtype="int64")), RuntimeError, "floating point or complex|implemented"),
        (s(s.tensor(2, 2), driver="gesvd"), RuntimeError, "driver"),
    ],
    doc="""Decompose matrices (..., m, n) as U diag(S) Vh.

    Args:
        full_matrices: make U (..., m, m) and Vh (..., n, n), not (..., m, k) and (..., k, n) with
            k = min(m, n).
        driver: None; PyTorch takes others on CUDA only.

    Returns:
        U, S (real, descending), Vh. Columns of U and rows of Vh are fixed up to a common phase.

    Raises:
        LinAlgError: no convergence.
    """,
)


def _svdvals_vjp(g: Any, A: Any) -> Any:
    u, _, vh = _svd_kernel(A, False)
    return (u * columns_of(g)).matmul(vh)


linalg_svdvals = op(
    "linalg_svdvals(Tensor A, *, str? driver=None) -> Tensor",
    dtypes=WIDE,
    namespace="linalg",
    shape=lambda A: (*A.shape[:-2], min(A.shape[-2:])),
    dtype=lambda A: real_of(A.dtype),
    check=_check_svd,
    reference=lambda np, A: lapack_spectral.svd(np, A, False, False)[1],
    strict_out_dtype=True,
    vjp={"A": _svdvals_vjp},
    batch="dims",
    samples=lambda s: [s(regular(s, 3, 3)), s(s.tensor(2, 2, 4)), *wide_only(s, s(s.tensor(0, 3)))],
    errors=lambda s: [(s(s.tensor(3)), RuntimeError, "at least 2|2 or more")],
    doc="Compute the singular values of matrices, descending.",
)


@composite(
    result_names=("U", "S", "V"),
    strict_out_dtype=True,
    out=True,
    dtypes=WIDE,
    oracle=lambda torch, self, some=True, compute_uv=True: (
        same_phases(torch, svd, self, some, torch.svd(self, some), 0)
        if compute_uv
        else torch.svd(self, some, False)
    ),
    samples=lambda s: [
        s(regular(s, 3, 3)),
        s(regular(s, 2, 3)),
        s(regular(s, 2, 3), compute_uv=False),
    ],
    errors=lambda s: [(s(s.tensor(3)), RuntimeError, "at least 2|2 or more")],
)
def svd(self: Tensor, some: bool = True, compute_uv: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Decompose matrices as U diag(S) V^H; `linalg.svd`, which gives V^H, is the newer name.

    Without `compute_uv`, U and V are zeros.
    """
    if compute_uv:
        u, s, vh = _svd_kernel(self, not some)
        return svd.return_type(u, s, vh.mH)
    check_matrix("svd", self)
    m, n = self.shape[-2:]
    batch = tuple(self.shape)[:-2]
    zeros = self.new_zeros
    values = linalg_svdvals(self)
    return svd.return_type(zeros((*batch, m, m)), values, zeros((*batch, n, n)))
