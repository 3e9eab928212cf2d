"""Eigenvalues, singular values, and what they tell of a matrix: its rank, pseudoinverse, condition.

The vectors of these problems are fixed up to a sign or phase (gauge) only. A gradient that depends
on it is refused, as far as one call can tell: for complex matrices.
"""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad import ops
from tangrad.devices import lapack_spectral
from tangrad.ops.definition.define import composite, op, overload
from tangrad.ops.linalg.matrix_checks import (
    _linalg_check_gauge,
    check_floating,
    check_matrix,
    check_square_floating,
    complex_of,
    definite,
    real_of,
    regular,
    square_errors,
    symmetric,
    wide_only,
)

WIDE = "floating complex"


def _off_diagonal_quotient(x: Any, difference: Any) -> Any:
    """Divide by differences whose diagonal is zero, leaving x's own diagonal as it is."""
    eye = ops.eye(x.shape[-1], dtype=tangrad.bool, device=x.device)
    return x / difference.masked_fill(eye, 1)


def _columns(values: Any) -> Any:
    return values.unsqueeze(-2)


def _rows(values: Any) -> Any:
    return values.unsqueeze(-1)


def _skew(x: Any) -> Any:
    return x - x.mH


def _same_phases(torch: Any, op: Any, a: Any, option: Any, theirs: Any, where: int) -> Any:
    """Turn the vectors of PyTorch's result by the constant phases that make them ours.

    Args:
        op: ours. a, option: its arguments. theirs: PyTorch's result.
        where: which result has vectors as columns; a later one is turned against it, as U and V.
    """
    import tangrad

    if not a.numel():
        return theirs

    def constant(tensor: Any, library: Any) -> Any:
        # By way of lists: a tensor inside of a transform has no memory to share.
        dtype = str(tensor.dtype).rpartition(".")[2]
        return library.tensor(tensor.tolist(), dtype=getattr(library, dtype))

    wanted = constant(op(constant(a, tangrad), option)[where], torch)
    columns = constant(theirs[where], torch)
    phases = torch.sgn((columns.conj() * wanted).sum(-2, keepdim=True))
    turned = list(theirs)
    turned[where] = turned[where] * phases
    if len(turned) == 3:
        is_adjoint = op is _svd_kernel
        k = theirs[1].shape[-1]
        by = phases[..., :k]
        turned[2] = by.mH * turned[2] if is_adjoint else turned[2] * by
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
    turning = _off_diagonal_quotient(overlap, _columns(result0) - _rows(result0))
    off = turning - turning.diagonal(0, -2, -1).diag_embed()
    inner = (off + off.mH) * 0.5 + g0.to(off.dtype).diag_embed()
    return result1.matmul(inner).matmul(result1.mH)


def _eigh_jvp(self_t: Any, result: Any) -> Any:
    values, vectors = result
    inner = vectors.mH.matmul(self_t).matmul(vectors)
    moved = inner.diagonal(0, -2, -1)
    turning = _off_diagonal_quotient(inner, _columns(values) - _rows(values))
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
    oracle=lambda torch, self, UPLO="L": _same_phases(
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
    return (vectors * _columns(g)).matmul(vectors.mH)


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
    turning = overlap - result1.mH.matmul(result1) * _columns(own.real)
    inner = _off_diagonal_quotient(turning, (_columns(result0) - _rows(result0)).conj())
    inner = inner - inner.diagonal(0, -2, -1).diag_embed() + g0.diag_embed()
    found = ops.linalg_solve(result1.mH, inner.matmul(result1.mH))
    return found if self_meta.dtype.is_complex else found.real


def _eig_jvp(self_t: Any, result: Any) -> Any:
    values, vectors = result
    inner = ops.linalg_solve(vectors, self_t.to(vectors.dtype).matmul(vectors))
    moved = inner.diagonal(0, -2, -1)
    turning = _off_diagonal_quotient(inner, _columns(values) - _rows(values))
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
    found = ops.linalg_solve(vectors.mH, _rows(g) * vectors.mH)
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
    difference = _columns(squares) - _rows(squares)
    turn_u = _zero_diagonal(_off_diagonal_quotient(_skew(by_u), difference))
    turn_v = _zero_diagonal(_off_diagonal_quotient(_skew(by_v), difference))
    inner = turn_u * _columns(s) + _rows(s) * turn_v + by_s.diag_embed()
    if m > k:
        left = (g_u - u.matmul(by_u)) / _columns(s)
        return (u.matmul(inner) + left).matmul(vh)
    if n > k:
        right = (g_v - vh.mH.matmul(by_v)).mH / _rows(s)
        return u.matmul(inner.matmul(vh) + right)
    return u.matmul(inner).matmul(vh)


def _svd_jvp(A_t: Any, result: Any) -> Any:
    """Push through A = U diag(s) V^H; U and V share the phases' part (see `_svd_vjp`)."""
    k = result[1].shape[-1]
    u, s, vh = result[0].narrow(-1, 0, k), result[1], result[2].narrow(-2, 0, k)
    inner = u.mH.matmul(A_t).matmul(vh.mH)
    own = inner.diagonal(0, -2, -1)
    squares = s * s
    difference = _columns(squares) - _rows(squares)
    right, left = inner * _columns(s), _rows(s) * inner
    turn_u = _zero_diagonal(_off_diagonal_quotient(right + right.mH, difference))
    turn_v = _zero_diagonal(_off_diagonal_quotient(left + left.mH, difference))
    if own.dtype.is_complex:
        half = ops.complex(own.real.new_zeros(own.shape), own.imag / (2 * s)).diag_embed()
        turn_u, turn_v, own = turn_u + half, turn_v - half, own.real
    outside_u = (A_t.matmul(vh.mH) - u.matmul(inner)) / _columns(s)
    outside_v = (A_t.mH.matmul(u) - vh.mH.matmul(inner.mH)) / _columns(s)
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
    oracle=lambda torch, A, full_matrices=True: _same_phases(
        torch, _svd_kernel, A, full_matrices, torch.linalg.svd(A, full_matrices), 0
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
    return (u * _columns(g)).matmul(vh)


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
    "svd(Tensor self, bool some=True, bool compute_uv=True) -> (Tensor U, Tensor S, Tensor V)",
    strict_out_dtype=True,
    out=True,
    dtypes=WIDE,
    oracle=lambda torch, self, some=True, compute_uv=True: (
        _same_phases(torch, svd, self, some, torch.svd(self, some), 0)
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
def svd(self: Any, some: bool, compute_uv: bool) -> Any:
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


# What the values tell -----------------------------------------------------------------------------


def _epsilon(a: Any) -> float:
    import tangrad

    return float(tangrad.finfo(a.dtype).eps)


def _tolerances(a: Any, atol: Any, rtol: Any) -> tuple[Any, Any]:
    """Return the absolute and the relative tolerance below which a singular value counts as zero.

    The relative one is the dtype's epsilon times the larger size unless `atol` is given alone.
    """
    usual = _epsilon(a) * max(a.shape[-2:])
    if rtol is None:
        if atol is None:
            rtol = usual
        elif hasattr(atol, "dtype"):
            rtol = (atol <= 0).to(atol.dtype) * usual
        else:
            rtol = usual if atol <= 0 else 0.0
    return (0.0 if atol is None else atol), rtol


def _check_tolerance(name: str, what: str, value: Any) -> None:
    if value is not None and not isinstance(value, (int, float)) and not hasattr(value, "dtype"):
        raise TypeError(f"{name}(): {what} must be a number or a Tensor, not {value!r}")
    if hasattr(value, "dtype") and value.dtype.is_complex:
        raise RuntimeError(f"{name}: {what} tensor of complex type is not supported.")


def _limit(largest: Any, atol: Any, rtol: Any) -> Any:
    """Return max(atol, rtol * largest), for the whole batch."""
    bound = largest * rtol
    if hasattr(atol, "dtype"):
        return ops.maximum(*ops.broadcast_tensors(atol.to(bound.dtype), bound))
    return bound.clamp(min=atol)


def _rank(name: str, self: Any, atol: Any, rtol: Any, hermitian: bool) -> Any:
    check_matrix(name, self, "input")
    check_floating(name, self)
    _check_tolerance(name, "atol", atol)
    _check_tolerance(name, "rtol", rtol)
    if hermitian:
        check_square_floating(name, self)
    if 0 in tuple(self.shape)[-2:]:
        return self.new_zeros(tuple(self.shape)[:-2], dtype=tangrad.int64)
    atol, rtol = _tolerances(self, atol, rtol)
    detached = self.detach()
    values = linalg_eigvalsh(detached).abs() if hermitian else linalg_svdvals(detached)
    largest = values.amax(-1)
    return (values > _limit(largest, atol, rtol).unsqueeze(-1)).sum(-1)


@composite(
    "_matrix_rank_tolerances(Tensor input, *, any atol=None, any rtol=None, bool hermitian=False)"
    " -> Tensor",
    out=True,
    function=False,
    method=False,
)
def _matrix_rank_tolerances(input: Any, atol: Any, rtol: Any, hermitian: bool) -> Any:
    """Count singular values above max(atol, rtol * the largest)."""
    return _rank("torch.linalg.matrix_rank", input, atol, rtol, hermitian)


@composite(
    "_matrix_rank_tol(Tensor input, any tol, bool hermitian=False) -> Tensor",
    out=True,
    function=False,
    method=False,
)
def _matrix_rank_tol(input: Any, tol: Any, hermitian: bool) -> Any:
    """Count singular values above `tol`."""
    return _rank("torch.linalg.matrix_rank", input, tol, 0.0, hermitian)


linalg_matrix_rank = overload(
    "linalg_matrix_rank",
    "_matrix_rank_tolerances",
    "_matrix_rank_tol",
    namespace="linalg",
    dtypes=WIDE,
    samples=lambda s: wide_only(
        s,
        s(regular(s, 3, 3)),
        s(s.values([[1, 2], [2, 4]])),
        s(s.values([[[1, 2], [2, 4]], [[1, 0], [0, 3]]]), hermitian=True),
        s(regular(s, 2, 3), atol=1.5),
        s(regular(s, 2, 3), atol=0.1, rtol=0.4),
        s(regular(s, 3, 3), 2.5),
        s(s.tensor(2, 0, 3)),
    ),
    errors=lambda s: [
        (s(s.tensor(3)), RuntimeError, "at least 2|2 or more"),
        (s(s.tensor(2, 3), hermitian=True), RuntimeError, "square"),
    ],
    doc="""Count the singular values of matrices that are not small.

    Args:
        atol, rtol: a value counts above max(atol, rtol * the largest); numbers, or tensors over the
            batch. Default: atol 0, and rtol the dtype's epsilon times the larger size.
        tol: positional; an absolute tolerance alone.
        hermitian: take the absolute eigenvalues, of Hermitian matrices.
    """,
)


def _pseudo_vjp(g: Any, A: Any, result: Any) -> Any:
    """Pull back through P = pinv(A) of constant rank (Golub and Pereyra 1973).

    dP = -P dA P + P P^H dA^H (I - A P) + (I - P A) dA^H P^H P.
    """
    adjoint = result.mH
    by_a = -adjoint.matmul(g).matmul(adjoint)
    outside = g.mH.matmul(result)
    by_a = by_a + (outside - A.matmul(result.matmul(outside))).matmul(adjoint)
    inside = adjoint.matmul(result).matmul(g.mH)
    return by_a + inside - inside.matmul(result).matmul(A)


def _pseudo_jvp(A: Any, A_t: Any, result: Any) -> Any:
    adjoint, moved = result.mH, A_t.mH
    first = -result.matmul(A_t).matmul(result)
    second = result.matmul(adjoint).matmul(moved)
    third = moved.matmul(adjoint).matmul(result)
    return (
        first
        + second - second.matmul(A).matmul(result)
        + third - result.matmul(A.matmul(third))
    )  # fmt: skip


def _pseudo_reference(np: Any, A: Any, atol: Any, rtol: Any, hermitian: bool) -> Any:
    if not A.size:
        return np.zeros((*A.shape[:-2], A.shape[-1], A.shape[-2]), A.dtype)
    if hermitian:
        values, u = lapack_spectral.eigh(np, A, False, True)
        vh = u.conj().swapaxes(-1, -2)
    else:
        u, values, vh = lapack_spectral.svd(np, A, False, True)
    sizes = np.abs(values)
    limit = np.maximum(atol[..., None], rtol[..., None] * sizes.max(-1, keepdims=True))
    kept = sizes > limit
    inverted = np.where(kept, 1 / np.where(kept, values, 1), 0).astype(values.dtype)
    v, uh = vh.conj().swapaxes(-1, -2), u.conj().swapaxes(-1, -2)
    return (v * inverted[..., None, :]) @ uh


_pseudo_kernel = op(
    "_linalg_pinv(Tensor A, Tensor atol, Tensor rtol, bool hermitian) -> Tensor",
    shape=lambda A: (*A.shape[:-2], A.shape[-1], A.shape[-2]),
    reference=_pseudo_reference,
    vjp={
        "A": _pseudo_vjp,
        "atol": lambda g, atol_meta: g.new_zeros(atol_meta.shape, dtype=atol_meta.dtype),
        "rtol": lambda g, rtol_meta: g.new_zeros(rtol_meta.shape, dtype=rtol_meta.dtype),
    },
    jvp=lambda A, A_t, result: (
        result.new_zeros(result.shape) if A_t is None else _pseudo_jvp(A, A_t, result)
    ),
    batch="dims",
    function=False,
    method=False,
    doc="Compute pseudoinverses with tolerances of the batch's shape.",
)


def _pinv(self: Any, atol: Any, rtol: Any, hermitian: bool) -> Any:
    name = "linalg.pinv"
    check_matrix(name, self)
    check_floating(name, self)
    _check_tolerance("torch." + name, "atol", atol)
    _check_tolerance("torch." + name, "rtol", rtol)
    if hermitian:
        check_square_floating(name, self)
    if 0 in tuple(self.shape)[-2:]:
        atol, rtol = 0.0, 0.0
    atol, rtol = _tolerances(self, atol, rtol)
    batch = tuple(self.shape)[:-2]
    real = getattr(ops, real_of(self.dtype))
    limits = []
    for value in (atol, rtol):
        if hasattr(value, "dtype"):
            limits.append(value.detach().to(real).expand(batch))
        else:
            limits.append(ops.full(batch, float(value), dtype=real, device=self.device))
    return _pseudo_kernel(self, *limits, hermitian)


@composite(
    "_pinv_tolerances(Tensor self, *, any atol=None, any rtol=None, bool hermitian=False)"
    " -> Tensor",
    out=True,
    function=False,
    method=False,
)
def _pinv_tolerances(self: Any, atol: Any, rtol: Any, hermitian: bool) -> Any:
    """Compute pseudoinverses; singular values up to max(atol, rtol * the largest) are zero."""
    return _pinv(self, atol, rtol, hermitian)


@composite(
    "_pinv_rcond(Tensor self, any rcond, bool hermitian=False) -> Tensor",
    out=True,
    function=False,
    method=False,
)
def _pinv_rcond(self: Any, rcond: Any, hermitian: bool) -> Any:
    """Compute pseudoinverses with a relative tolerance."""
    return _pinv(self, 0.0, rcond, hermitian)


linalg_pinv = overload(
    "linalg_pinv",
    "_pinv_tolerances",
    "_pinv_rcond",
    namespace="linalg",
    dtypes=WIDE,
    samples=lambda s: [
        s(regular(s, 3, 3)),
        s(regular(s, 2, 2, 4)),
        s(regular(s, 4, 2), rtol=1e-3),
        s(definite(s, 3, 3), hermitian=True),
        s(regular(s, 3, 2), 1e-4),
        *wide_only(s, s(s.tensor(2, 0, 3))),
    ],
    errors=lambda s: [
        (s(s.tensor(3)), RuntimeError, "at least 2|2 or more"),
        (s(s.tensor(2, 3), hermitian=True), RuntimeError, "square"),
    ],
    doc="""Compute Moore-Penrose pseudoinverses of matrices.

    Args:
        atol, rtol: singular values up to max(atol, rtol * the largest) count as zero; numbers, or
            tensors over the batch. Default: atol 0, and rtol the dtype's epsilon times the larger
            size.
        rcond: positional; a relative tolerance alone.
        hermitian: the matrices are Hermitian, and their lower triangle is read.
    """,
)


@composite(
    "pinverse(Tensor self, float rcond=1e-15) -> Tensor",
    dtypes=WIDE,
    samples=lambda s: [s(regular(s, 3, 3)), s(regular(s, 2, 4))],
    errors=lambda s: [(s(s.tensor(3)), RuntimeError, "at least 2|2 or more")],
)
def pinverse(self: Any, rcond: float) -> Any:
    """Compute pseudoinverses; `linalg.pinv` is the newer name."""
    return _pinv(self, 0.0, rcond, False)


@composite(
    "linalg_cond(Tensor self, any p=None) -> Tensor",
    out=True,
    dtypes=WIDE,
    namespace="linalg",
    samples=lambda s: [
        s(regular(s, 3, 3)),
        s(regular(s, 2, 2, 3), 2),
        s(regular(s, 3, 3), -2),
        s(regular(s, 3, 3), "fro"),
        s(regular(s, 2, 3, 3), "nuc"),
        s(regular(s, 3, 3), float("inf")),
        s(regular(s, 3, 3), -1),
    ],
    errors=lambda s: [
        (s(s.tensor(3)), RuntimeError, "at least 2|2 or more"),
        (s(s.tensor(2, 3), 1), RuntimeError, "square"),
        (s(s.tensor(2, 2), 3), RuntimeError, "invalid norm type|got"),
        (s(s.tensor(2, 2), "max"), RuntimeError, "invalid norm type|got"),
    ],
)
def linalg_cond(self: Any, p: Any) -> Any:
    """Compute condition numbers: norm(A, p) * norm(inv(A), p).

    Args:
        p: None or 2 (the ratio of the extreme singular values), -2 (its inverse), 1, -1, inf,
            -inf, 'fro' or 'nuc', of square matrices.
    """
    name = "linalg.cond"
    check_matrix(name, self)
    check_floating(name, self)
    if p is None or p in (2, -2):
        values = linalg_svdvals(self)
        if values.shape[-1] == 0:
            return values.new_zeros(tuple(values.shape)[:-1])
        largest, smallest = values.select(-1, 0), values.select(-1, -1)
        return smallest / largest if p == -2 else largest / smallest
    if isinstance(p, str):
        if p not in ("fro", "nuc"):
            raise RuntimeError(f"{name} got an invalid norm type: {p}; choose 'fro' or 'nuc'")
    elif p not in (1, -1, float("inf"), -float("inf")):
        raise RuntimeError(f"{name} got an invalid norm type: {p}; choose 1, -1, 2, -2, inf, -inf")
    check_square_floating(name, self)
    if 0 in tuple(self.shape):
        real = getattr(ops, real_of(self.dtype))
        return self.new_zeros(tuple(self.shape)[:-2], dtype=real)
    inverted, info = ops.linalg_inv_ex(self)
    broken = (info != 0).unsqueeze(-1).unsqueeze(-1)
    inverted = inverted.masked_fill(broken, float("inf"))
    return ops.linalg_matrix_norm(self, p) * ops.linalg_matrix_norm(inverted, p)
