"""Eigenvalues and eigenvectors of Hermitian and of general matrices.

The vectors are fixed up to a phase (gauge) only. A gradient that depends on it is refused, as far
as one call can tell: for complex matrices.
"""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad import ops
from tangrad.devices import lapack_spectral
from tangrad.ops.definition.define import op
from tangrad.ops.linalg.matrix_checks import (
    _linalg_check_gauge,
    check_square_floating,
    complex_of,
    real_of,
    regular,
    square_errors,
    symmetric,
    wide_only,
)

WIDE = "floating complex"


def off_diagonal_quotient(x: Any, difference: Any) -> Any:
    """Divide by differences whose diagonal is zero, leaving x's own diagonal as it is."""
    eye = ops.eye(x.shape[-1], dtype=tangrad.bool, device=x.device)
    return x / difference.masked_fill(eye, 1)


def columns_of(values: Any) -> Any:
    return values.unsqueeze(-2)


def rows_of(values: Any) -> Any:
    return values.unsqueeze(-1)


def same_phases(
    torch: Any, op: Any, a: Any, option: Any, theirs: Any, where: int, *, adjoint: bool = False
) -> Any:
    """Turn the vectors of PyTorch's result by the constant phases that make them ours.

    Args:
        op: ours. a, option: its arguments. theirs: PyTorch's result.
        where: which result has vectors as columns; a later one is turned against it, as U and V.
        adjoint: whether that later one is V^H.
    """
    if not a.numel():
        return theirs

    def constant(tensor: Any, library: Any) -> Any:
        # By way of lists: a tensor inside of a transform has no memory to share.
        dtype = str(tensor.dtype).rpartition(".")[2]  # of PyTorch, too
        return library.tensor(tensor.tolist(), dtype=getattr(library, dtype))

    wanted = constant(op(constant(a, tangrad), option)[where], torch)
    columns = constant(theirs[where], torch)
    phases = torch.sgn((columns.conj() * wanted).sum(-2, keepdim=True))
    turned = list(theirs)
    turned[where] = turned[where] * phases
    if len(turned) == 3:
        k = theirs[1].shape[-1]
        by = phases[..., :k]
        turned[2] = by.mH * turned[2] if adjoint else turned[2] * by
    return tuple(turned)


# Hermitian matrices -------------------------------------------------------------------------------


def _check_uplo(UPLO: str) -> None:
    if UPLO.upper() not in ("L", "U") or len(UPLO) != 1:
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")


def _check_eigh(self: Any, UPLO: str) -> None:
    check_square_floating("linalg.eigh", self)
    _check_uplo(UPLO)


def _eigh_vjp(g0: Any, g1: Any, result0: Any, result1: Any) -> Any:
    """Pull back through A = V diag(l) V^H (Giles 2008): V (diag(gl) + (V^H gV) / E) V^H.

    E[i, j] = l[j] - l[i]. The result is made Hermitian, as A is.
    """
    overlap = result1.mH.matmul(g1)
    if overlap.dtype.is_complex:
        _linalg_check_gauge(
            overlap.diagonal(0, -2, -1).imag,
            "linalg_eigh_backward: The eigenvectors in the complex case are specified up to "
            "multiplication by e^{i phi}. The specified loss function depends on this quantity, "
            "so it is ill-defined.",
        )
    turning = off_diagonal_quotient(overlap, columns_of(result0) - rows_of(result0))
    off = turning - turning.diagonal(0, -2, -1).diag_embed()
    inner = (off + off.mH) * 0.5 + g0.to(off.dtype).diag_embed()
    return result1.matmul(inner).matmul(result1.mH)


def _eigh_jvp(self_t: Any, result: Any) -> Any:
    values, vectors = result
    inner = vectors.mH.matmul(self_t).matmul(vectors)
    moved = inner.diagonal(0, -2, -1)
    turning = off_diagonal_quotient(inner, columns_of(values) - rows_of(values))
    turning = turning - turning.diagonal(0, -2, -1).diag_embed()
    return [moved.real if moved.dtype.is_complex else moved, vectors.matmul(turning)]


linalg_eigh = op(
    "linalg_eigh(Tensor self, str UPLO='L') -> (Tensor eigenvalues, Tensor eigenvectors)",
    dtypes=WIDE,
    namespace="linalg",
    shape=lambda self: (self.shape[:-1], self.shape),
    dtype=lambda self: (real_of(self.dtype), self.dtype),
    check=_check_eigh,
    reference=lambda np, self, UPLO: lapack_spectral.eigh(np, self, UPLO in "uU", True),
    strict_out_dtype=True,
    vjp={"self": _eigh_vjp},
    jvp=_eigh_jvp,
    batch="dims",
    oracle=lambda torch, self, UPLO="L": same_phases(
        torch, linalg_eigh, self, UPLO, torch.linalg.eigh(self, UPLO), 1
    ),
    samples=lambda s: [
        s(symmetric(s, 3, 3)),
        s(symmetric(s, 2, 3, 3), "U"),
        *wide_only(s, s(s.tensor(2, 0, 0))),
    ],
    errors=lambda s: [
        *square_errors(s),
        (s(s.tensor(2, 2), UPLO="M"), RuntimeError, "Expected UPLO argument"),
    ],
    doc="""Decompose Hermitian matrices (..., n, n) as V diag(l) V^H.

    Args:
        UPLO: which triangle is read.

    Returns:
        eigenvalues: real, ascending. eigenvectors: orthonormal columns, each up to its phase.

    Raises:
        LinAlgError: no convergence.
    """,
)


def _eigvalsh_vjp(g: Any, self: Any, UPLO: str) -> Any:
    vectors = linalg_eigh(self, UPLO)[1]
    return (vectors * columns_of(g)).matmul(vectors.mH)


linalg_eigvalsh = op(
    "linalg_eigvalsh(Tensor self, str UPLO='L') -> Tensor",
    dtypes=WIDE,
    namespace="linalg",
    shape=lambda self: self.shape[:-1],
    dtype=lambda self: real_of(self.dtype),
    check=_check_eigh,
    reference=lambda np, self, UPLO: lapack_spectral.eigh(np, self, UPLO in "uU", False)[0],
    strict_out_dtype=True,
    vjp={"self": _eigvalsh_vjp},
    batch="dims",
    samples=lambda s: [s(symmetric(s, 3, 3)), s(symmetric(s, 2, 3, 3), "U")],
    errors=square_errors,
    doc="Compute the eigenvalues of Hermitian matrices, ascending; `UPLO` says what is read.",
)


# General matrices ---------------------------------------------------------------------------------


def _finite(np: Any, name: str, self: Any) -> None:
    if not np.isfinite(self).all():
        raise RuntimeError(f"{name}: input tensor should not contain infs or NaNs.")


def _eig_reference(np: Any, self: Any) -> Any:
    _finite(np, "torch.linalg.eig", self)
    return lapack_spectral.eig(np, self, True)


def _eig_vjp(g0: Any, g1: Any, self_meta: Any, result0: Any, result1: Any) -> Any:
    """Pull back through A = V diag(l) inv(V), with columns of V of length one.

    With E[i, j] = conj(l[j] - l[i]) and W = V^H gV - V^H V diag(Re diag(V^H gV)), which takes out
    the change of length, the gradient is inv(V)^H (diag(gl) + W / E) V^H.
    """
    overlap = result1.mH.matmul(g1)
    own = overlap.diagonal(0, -2, -1)
    _linalg_check_gauge(
        own.imag,
        "linalg_eig_backward: The eigenvectors in the complex case are specified up to "
        "multiplication by e^{i phi}. The specified loss function depends on this quantity, so it "
        "is ill-defined.",
    )
    turning = overlap - result1.mH.matmul(result1) * columns_of(own.real)
    inner = off_diagonal_quotient(turning, (columns_of(result0) - rows_of(result0)).conj())
    inner = inner - inner.diagonal(0, -2, -1).diag_embed() + g0.diag_embed()
    found = ops.linalg_solve(result1.mH, inner.matmul(result1.mH))
    return found if self_meta.dtype.is_complex else found.real


def _eig_jvp(self_t: Any, result: Any) -> Any:
    values, vectors = result
    inner = ops.linalg_solve(vectors, self_t.to(vectors.dtype).matmul(vectors))
    moved = inner.diagonal(0, -2, -1)
    turning = off_diagonal_quotient(inner, columns_of(values) - rows_of(values))
    turning = turning - turning.diagonal(0, -2, -1).diag_embed()
    step = vectors.matmul(turning)
    longer = (vectors.conj() * step).sum(-2, keepdim=True).real
    return [moved, step - vectors * longer]


linalg_eig = op(
    "linalg_eig(Tensor self) -> (Tensor eigenvalues, Tensor eigenvectors)",
    dtypes=WIDE,
    namespace="linalg",
    shape=lambda self: (self.shape[:-1], self.shape),
    dtype=lambda self: complex_of(self.dtype),
    check=lambda self: check_square_floating("linalg.eig", self),
    reference=_eig_reference,
    vjp={"self": _eig_vjp},
    jvp=_eig_jvp,
    batch="dims",
    samples=lambda s: [
        s(regular(s, 3, 3)),
        s(regular(s, 2, 2, 2)),
        *wide_only(s, s(s.tensor(0, 0))),
    ],
    errors=square_errors,
    doc="""Decompose square matrices as V diag(l) inv(V), always in complex numbers.

    Returns:
        eigenvalues: (..., n) in no order. eigenvectors: (..., n, n), columns of length one, each
        up to its phase.

    Raises:
        LinAlgError: no convergence. RuntimeError: elements that are not finite.
    """,
)


def _eigvals_reference(np: Any, self: Any) -> Any:
    _finite(np, "torch.linalg.eigvals", self)
    return lapack_spectral.eig(np, self, False)[0]


def _eigvals_vjp(g: Any, self: Any) -> Any:
    vectors = linalg_eig(self)[1]
    found = ops.linalg_solve(vectors.mH, rows_of(g) * vectors.mH)
    return found if self.dtype.is_complex else found.real


linalg_eigvals = op(
    "linalg_eigvals(Tensor self) -> Tensor",
    dtypes=WIDE,
    namespace="linalg",
    shape=lambda self: self.shape[:-1],
    dtype=lambda self: complex_of(self.dtype),
    check=lambda self: check_square_floating("linalg.eigvals", self),
    reference=_eigvals_reference,
    vjp={"self": _eigvals_vjp},
    batch="dims",
    samples=lambda s: [s(regular(s, 3, 3)), s(regular(s, 2, 2, 2))],
    errors=square_errors,
    doc="Compute the eigenvalues of square matrices, in complex numbers and in no order.",
)


# Singular values ----------------------------------------------------------------------------------

# What the values tell -----------------------------------------------------------------------------
