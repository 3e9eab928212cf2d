"""Factorizations by orthogonal matrices: QR and its reflections, least squares."""

from __future__ import annotations

from typing import Any

from tangrad import ops
from tangrad.devices import lapack
from tangrad.devices.lapack_least_squares import lstsq as solved_by_lapack
from tangrad.ops.definition.define import composite, op
from tangrad.ops.definition.signature import Tensor
from tangrad.ops.linalg.matrix_checks import (
    check_floating,
    check_matrix,
    check_same_dtype,
    real_of,
    wide_only,
)
from tangrad.ops.views.geometry import batched_front

WIDE = "floating complex"

# QR -----------------------------------------------------------------------------------------------


def _check_qr(A: Any, mode: str) -> None:
    check_matrix("linalg.qr", A)
    check_floating("linalg.qr", A)
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', "
            "or 'complete'"
        )


def _qr_shape(A: Any, mode: str) -> Any:
    batch, (m, n) = A.shape[:-2], A.shape[-2:]
    rows = m if mode == "complete" else min(m, n)
    return ((0,) if mode == "r" else (*batch, m, rows)), (*batch, rows, n)


def _qr_reference(np: Any, A: Any, mode: str) -> Any:
    if not A.size:
        m = A.shape[-2]
        q_shape, r_shape = _qr_shape(A, mode)
        q = np.zeros(q_shape, A.dtype)
        if mode == "complete":
            q[...] = np.eye(m, dtype=A.dtype)
        return q, np.zeros(r_shape, A.dtype)
    m, n = A.shape[-2:]
    if mode == "r":
        return np.zeros(0, A.dtype), np.triu(lapack.geqrf(np, A)[0][..., : min(m, n), :])
    return lapack.qr(np, A, m if mode == "complete" else min(m, n))


def _qr_square_vjp(g_q: Any, g_r: Any, q: Any, r: Any) -> Any:
    """Pull back through A = Q R of square or tall A (Walter and Lehmann 2018, for complex A too).

    With W = gR R^H - Q^H gQ, the gradient is (gQ + Q (triu(W) + triu(W)^H - Re diag W)) inv(R)^H;
    the diagonal of R is real.
    """
    w = (g_r.matmul(r.mH) - q.mH.matmul(g_q)).triu()
    diagonal = w.diagonal(0, -2, -1)
    full = w + w.mH - (diagonal.real if diagonal.dtype.is_complex else diagonal).diag_embed()
    return ops.linalg_solve_triangular(r.mH, g_q + q.matmul(full), upper=False, left=False)


def _qr_vjp(g0: Any, g1: Any, A: Any, result0: Any, result1: Any, mode: str) -> Any:
    """Pull back through A = Q R.

    A wide A = [X Y] is X = Q U beside Y = Q V (Roberts and Roberts 2020): V = Q^H Y moves Q and Y,
    which leaves the square problem.
    """
    m, n = A.shape[-2:]
    if mode == "r":
        raise RuntimeError(
            "The derivative of linalg.qr depends on Q, which is not computed when mode='r'. "
            "Please use linalg.qr(A, mode='reduced') if you are going to require the derivatives "
            "of Q or R"
        )
    if mode == "complete" and m > n:
        raise RuntimeError(
            "The QR decomposition is not differentiable when mode='complete' and nrows > ncols; "
            "take mode='reduced'"
        )
    if m >= n:
        return _qr_square_vjp(g0, g1, result0, result1)
    beside, g_beside = A.narrow(-1, m, n - m), g1.narrow(-1, m, n - m)
    g_q = g0 + beside.matmul(g_beside.mH)
    left = _qr_square_vjp(g_q, g1.narrow(-1, 0, m), result0, result1.narrow(-1, 0, m))
    return ops.cat([left, result0.matmul(g_beside)], -1)


linalg_qr = op(
    "linalg_qr(Tensor A, str mode='reduced') -> (Tensor Q, Tensor R)",
    dtypes=WIDE,
    namespace="linalg",
    check=_check_qr,
    shape=_qr_shape,
    reference=_qr_reference,
    strict_out_dtype=True,
    vjp={"A": _qr_vjp},
    batch=lambda size, dims, A, mode: _qr_batch(A, dims[0], mode),
    samples=lambda s: [
        s(s.tensor(3, 3)),
        s(s.tensor(2, 4, 2, strided=True)),
        s(s.tensor(2, 3, 5)),
        s(s.tensor(2, 4), "complete"),
        *wide_only(s, s(s.tensor(3, 0), "complete"), s(s.tensor(0, 3, 2))),
        s(s.tensor(4, 3), mode="r"),
    ],
    errors=lambda s: [
        (s(s.tensor(3)), RuntimeError, "at least 2|2 or more"),
        (s(s.tensor(3, 3), "full"), RuntimeError, "unrecognized mode"),
        (s(s.tensor(2, 2, dtype="int64")), RuntimeError, "floating point or complex|implemented"),
    ],
    doc="""Factor matrices (..., m, n) as Q R, with orthonormal columns in Q and upper triangular R.

    Args:
        mode: 'reduced' (Q is m x min(m, n)), 'complete' (Q is m x m), or 'r' (Q is empty).
    """,
)


def _qr_batch(A: Any, dim: int, mode: str) -> Any:
    q, r = linalg_qr(A.movedim(dim, 0), mode)
    return (q, r), (None if mode == "r" else 0, 0)


@composite(
    result_names=("Q", "R"),
    strict_out_dtype=True,
    out=True,
    dtypes=WIDE,
    samples=lambda s: [s(s.tensor(3, 2)), s(s.tensor(2, 3), some=False)],
    errors=lambda s: [(s(s.tensor(3)), RuntimeError, "at least 2|2 or more")],
)
def qr(self: Tensor, some: bool = True) -> tuple[Tensor, Tensor]:
    """Factor matrices as Q R; `linalg.qr` is the newer name."""
    return qr.return_type(*linalg_qr(self, "reduced" if some else "complete"))


# Reflections --------------------------------------------------------------------------------------


def _check_matrix_of(name: str) -> Any:
    def check(self: Any) -> None:
        check_matrix(name, self, "input")
        check_floating(name, self)

    return check


geqrf = op(
    "geqrf(Tensor self) -> (Tensor a, Tensor tau)",
    dtypes=WIDE,
    check=_check_matrix_of("torch.geqrf"),
    shape=lambda self: (self.shape, (*self.shape[:-2], min(self.shape[-2:]))),
    reference=lambda np, self: lapack.geqrf(np, self),
    vjp={"self": "none: take linalg.qr, whose Q and R are what a derivative needs"},
    batch="dims",
    samples=lambda s: [s(s.tensor(3, 3)), s(s.tensor(2, 4, 2, strided=True)), s(s.tensor(2, 4))],
    errors=lambda s: [(s(s.tensor(3)), RuntimeError, "at least 2")],
    doc="Factor matrices by Householder reflections: R and, below it, the reflections; factors.",
)


def _reflector(a: Any, i: int) -> Any:
    """Return reflection i as a column: zeros, a one, and what is stored below the diagonal."""
    below = a.narrow(-1, i, 1).tril(-1 - i)
    return below + ops.eye(a.shape[-2], 1, dtype=a.dtype, device=a.device).roll(i, 0)


def _steps(count: int, transpose: bool) -> list[int]:
    """Return the order in which reflections meet the matrix."""
    return list(range(count)) if transpose else list(range(count - 1, -1, -1))


def _reflected_vjp(g: Any, a: Any, tau: Any, c: Any, transpose: bool) -> tuple[Any, Any, Any]:
    """Pull back through (H_1 ... H_k) C, or the adjoint times C, reflection by reflection.

    One step is C' = C - t v (v^H C), with t a factor or its conjugate; so the gradient of t is
    -(v^H G)(v^H C)^H, that of v is -conj(t) G q^H - t C (G^H v), and G moves back by the adjoint.

    Returns:
        Gradients of a, tau and C.
    """
    order = _steps(tau.shape[-1], transpose)
    before, vectors, factors = [], {}, {}
    for i in order:
        v, t = _reflector(a, i), tau.narrow(-1, i, 1).unsqueeze(-1)
        vectors[i], factors[i] = v, t.conj() if transpose else t
        before.append(c)
        c = c - factors[i] * v.matmul(v.mH.matmul(c))
    by_a: list[Any] = [None] * a.shape[-1]
    by_tau: list[Any] = [None] * len(order)
    for i, c in zip(reversed(order), reversed(before), strict=True):
        v, t = vectors[i], factors[i]
        w, q = v.mH.matmul(g), v.mH.matmul(c)
        by_t = -(w * q.conj()).sum(-1)
        by_tau[i] = by_t.conj() if transpose else by_t
        by_v = -(t.conj() * g.matmul(q.mH) + t * c.matmul(w.mH))
        by_a[i] = by_v.tril(-1 - i)
        g = g - t.conj() * v.matmul(w)
    zeros = a.new_zeros((*a.shape[:-1], 1))
    columns = [zeros if column is None else column.expand(zeros.shape) for column in by_a]
    whole = ops.cat(columns, -1) if columns else a.new_zeros(a.shape)
    return whole, ops.cat(by_tau, -1) if by_tau else tau.new_zeros(tau.shape), g


def _eye_like(a: Any) -> Any:
    return ops.eye(*a.shape[-2:], dtype=a.dtype, device=a.device).expand(a.shape)


def _householder_vjp(g: Any, input: Any, tau: Any) -> Any:
    by_input, by_tau, _ = _reflected_vjp(g, input, tau, _eye_like(input), False)
    return by_input, by_tau


def _check_householder(input: Any, tau: Any) -> None:
    name = "torch.linalg.householder_product"
    check_matrix(name, input, "input")
    check_floating(name, input)
    (m, n), k = input.shape[-2:], tau.shape[-1] if len(tau.shape) else -1
    if m < n:
        raise RuntimeError(
            f"{name}: input.shape[-2] must be greater than or equal to input.shape[-1], got "
            f"{list(input.shape)}"
        )
    if k < 0 or k > n:
        raise RuntimeError(
            f"{name}: input.shape[-1] must be greater than or equal to tau.shape[-1], got "
            f"{list(input.shape)} and {list(tau.shape)}"
        )
    if tuple(tau.shape[:-1]) != tuple(input.shape[:-2]):
        raise RuntimeError(
            f"{name}: Expected batch dimensions of tau to be equal to input.shape[:-2], but got "
            f"{list(tau.shape)} for {list(input.shape)}"
        )
    if tau.dtype != input.dtype:
        raise RuntimeError(
            f"{name}: tau dtype {tau.dtype} does not match input dtype {input.dtype}"
        )


def _householder_samples(s: Any) -> list[Any]:
    return [
        s(s.tensor(3, 3, low=0, high=1), s.tensor(3, low=0, high=1)),
        s(s.tensor(2, 4, 3, low=0, high=1, strided=True), s.tensor(2, 2, low=0, high=1)),
        *wide_only(s, s(s.tensor(2, 0), s.tensor(0))),
    ]


linalg_householder_product = op(
    "linalg_householder_product(Tensor input, Tensor tau) -> Tensor",
    dtypes=WIDE,
    namespace="linalg",
    check=_check_householder,
    reference=lambda np, input, tau: lapack.householder_product(np, input, tau),
    vjp={("input", "tau"): _householder_vjp},
    batch="dims",
    samples=_householder_samples,
    errors=lambda s: [
        (s(s.tensor(2, 3), s.tensor(2)), RuntimeError, "greater than or equal"),
        (s(s.tensor(3, 2), s.tensor(3)), RuntimeError, "greater than or equal"),
    ],
    doc="""Multiply k Householder reflections: the first n columns of H_1 ... H_k.

    Args:
        input: (..., m, n) with m >= n; reflection i is stored below the diagonal of column i.
        tau: (..., k) factors, k <= n.
    """,
)


@composite(
    out=True,
    dtypes=WIDE,
    samples=_householder_samples,
    errors=lambda s: [(s(s.tensor(2, 3), s.tensor(2)), RuntimeError, "greater than or equal")],
)
def orgqr(self: Tensor, input2: Tensor) -> Tensor:
    """Multiply Householder reflections; `linalg.householder_product` is the newer name."""
    return linalg_householder_product(self, input2)


def _check_ormqr(self: Any, input2: Any, input3: Any, left: bool) -> None:
    name = "torch.ormqr"
    check_matrix(name, self, "input")
    check_matrix(name, input3, "other")
    check_floating(name, self)
    side, k = (-2 if left else -1), input2.shape[-1] if len(input2.shape) else -1
    if k != min(input3.shape[side], self.shape[-1]):
        raise RuntimeError(
            f"{name}: tau.shape[-1] must be equal to min(other.shape[{side}], input.shape[-1]), "
            f"got {list(input2.shape)} for {list(self.shape)} and {list(input3.shape)}"
        )
    if input3.shape[side] != self.shape[-2]:
        raise RuntimeError(
            f"{name}: other.shape[{side}] must be equal to input.shape[-2], got "
            f"{list(input3.shape)} and {list(self.shape)}"
        )
    batches = {tuple(self.shape[:-2]), tuple(input2.shape[:-1]), tuple(input3.shape[:-2])}
    if len(batches) > 1:
        raise RuntimeError(
            f"{name}: the batch dimensions of input {list(self.shape)}, tau {list(input2.shape)} "
            f"and other {list(input3.shape)} must be equal"
        )
    if not self.dtype == input2.dtype == input3.dtype:
        raise RuntimeError(
            f"{name}: input, tau and other must have the same dtype, got {self.dtype}, "
            f"{input2.dtype}, {input3.dtype}"
        )


def _ormqr_vjp(
    g: Any, self: Any, input2: Any, input3: Any, left: bool, transpose: bool
) -> tuple[Any, Any, Any]:
    if left:
        return _reflected_vjp(g, self, input2, input3, transpose)
    # C Q is the adjoint of Q^H C^H.
    by_a, by_tau, by_c = _reflected_vjp(g.mH, self, input2, input3.mH, not transpose)
    return by_a, by_tau, by_c.mH


ormqr = op(
    "ormqr(Tensor self, Tensor input2, Tensor input3, bool left=True, bool transpose=False)"
    " -> Tensor",
    dtypes=WIDE,
    check=_check_ormqr,
    shape=lambda input3: input3.shape,
    reference=lambda np, self, input2, input3, left, transpose: lapack.multiply_by_q(
        np, self, input2, input3, left, transpose
    ),
    strict_out_dtype=True,
    vjp={("self", "input2", "input3"): _ormqr_vjp},
    batch="dims",
    samples=lambda s: [
        s(s.tensor(3, 2, low=0, high=1), s.tensor(2, low=0, high=1), s.tensor(3, 2)),
        s(
            s.tensor(2, 3, 2, low=0, high=1),
            s.tensor(2, 2, low=0, high=1),
            s.tensor(2, 4, 3),
            left=False,
            transpose=True,
        ),
        s(
            s.tensor(3, 3, low=0, high=1),
            s.tensor(3, low=0, high=1),
            s.tensor(3, 1, strided=True),
            True,
            True,
        ),
    ],
    errors=lambda s: [
        (s(s.tensor(3, 2), s.tensor(2), s.tensor(2, 2)), RuntimeError, "must be equal")
    ],
    doc="""Multiply a matrix by Q = H_1 ... H_k, given by its reflections.

    Args:
        self: (..., m, k) reflections, as of `geqrf`. input2: (..., k) their factors.
        input3: the other matrix. left: Q stands on its left.
        transpose: take the adjoint of Q.
    """,
)


# Least squares ------------------------------------------------------------------------------------

_DRIVERS = ("gels", "gelsy", "gelsd", "gelss")


def _solution_vjp(g0: Any, self: Any, b: Any) -> tuple[Any, Any]:
    """Pull back through X = pinv(A) B, which a least-squares solution of full rank is."""
    inverse = ops.linalg_pinv(self)
    by_b = inverse.mH.matmul(g0)
    by_inverse = g0.matmul(b.mH)
    adjoint = inverse.mH
    outside = by_inverse.mH.matmul(inverse)
    by_a = -adjoint.matmul(by_inverse).matmul(adjoint)
    by_a = by_a + (outside - self.matmul(inverse.matmul(outside))).matmul(adjoint)
    inside = adjoint.matmul(inverse).matmul(by_inverse.mH)
    by_a = by_a + inside - inside.matmul(inverse).matmul(self)
    return by_a, by_b


def _lstsq_vjp(g0: Any, g1: Any, self: Any, b: Any, result0: Any, result1: Any) -> tuple[Any, Any]:
    by_a, by_b = _solution_vjp(g0, self, b)
    if result1.numel():
        # The residual is stationary in X, so it moves with A and B alone.
        scaled = 2 * g1.unsqueeze(-2) * (self.matmul(result0) - b)
        by_a, by_b = by_a + scaled.matmul(result0.mH), by_b - scaled
    return by_a, by_b


def _lstsq_shape(self: Any, b: Any, driver: str) -> Any:
    batch, (m, n) = self.shape[:-2], self.shape[-2:]
    columns = b.shape[-1]
    residuals = (*batch, columns) if m > n and driver != "gelsy" else (0,)
    rank = (0,) if driver == "gels" else batch
    values = (*batch, min(m, n)) if driver in ("gelsd", "gelss") else (0,)
    return (*batch, n, columns), residuals, rank, values


def _lstsq_reference(np: Any, self: Any, b: Any, rcond: float, driver: str) -> Any:
    x, rank, values = solved_by_lapack(np, self, b, rcond, driver)
    m, n = self.shape[-2:]
    real = np.finfo(self.dtype).dtype
    residuals = np.zeros(0, real)
    if m > n and driver != "gelsy":
        full = driver == "gels" or bool((rank == n).all())
        rest = np.abs(self @ x - b) ** 2
        # A residual is the sum of what is left over only where the columns are independent.
        residuals = rest.sum(-2) if full else np.zeros(0, real)
    return (
        x,
        residuals,
        np.zeros(0, np.int64) if driver == "gels" else rank,
        values if driver in ("gelsd", "gelss") else np.zeros(0, real),
    )


def _lstsq_batch(size: int, dims: Any, self: Any, b: Any, rcond: float, driver: str) -> Any:
    left, right = batched_front(self, dims[0], size), batched_front(b, dims[1], size)
    found = _lstsq_kernel(left, right, rcond, driver)
    return found, tuple(0 if r.ndim and r.shape[0] == size else None for r in found)


_lstsq_kernel = op(
    "_linalg_lstsq(Tensor self, Tensor b, float rcond, str driver)"
    " -> (Tensor solution, Tensor residuals, Tensor rank, Tensor singular_values)",
    shape=_lstsq_shape,
    dtype=lambda self: (self.dtype, real_of(self.dtype), "int64", real_of(self.dtype)),
    reference=_lstsq_reference,
    shape_depends_on_data=True,
    vjp={("self", "b"): _lstsq_vjp},
    batch=_lstsq_batch,
    function=False,
    method=False,
    doc="Solve least-squares problems (..., m, n), (..., m, k) of one batch shape.",
)


_gelsy_kernel = op(
    "_linalg_gelsy(Tensor self, Tensor b, float rcond) -> (Tensor solution, Tensor rank)",
    shape=lambda self, b: ((*self.shape[:-2], self.shape[-1], b.shape[-1]), self.shape[:-2]),
    dtype=lambda self: (self.dtype, "int64"),
    reference=lambda np, self, b, rcond: solved_by_lapack(np, self, b, rcond, "gelsy")[:2],
    vjp={("self", "b"): lambda g0, self, b, result0: _solution_vjp(g0, self, b)},
    batch=lambda size, dims, self, b, rcond: (
        _gelsy_kernel(batched_front(self, dims[0], size), batched_front(b, dims[1], size), rcond),
        (0, 0),
    ),
    function=False,
    method=False,
    doc="Solve least-squares problems by QR with pivots; the rank tells what counts as zero.",
)


@composite(
    result_names=("solution", "residuals", "rank", "singular_values"),
    out=True,
    dtypes=WIDE,
    namespace="linalg",
    samples=lambda s: [
        s(s.tensor(4, 2), s.tensor(4, 3)),
        s(s.tensor(2, 4, 2), s.tensor(2, 4, 1), driver="gels"),
        s(s.tensor(2, 4), s.tensor(2, 1), driver="gelsd"),
        s(s.tensor(3, 3), s.tensor(3, 2), driver="gelss"),
        s(s.tensor(2, 4, 2), s.tensor(2, 4), driver="gelsd"),
    ],
    errors=lambda s: [
        (s(s.tensor(3), s.tensor(3)), RuntimeError, "at least 2"),
        (s(s.tensor(3, 2), s.tensor(2, 2)), RuntimeError, "should match"),
        (s(s.tensor(3, 2), s.tensor(3, 2), driver="svd"), RuntimeError, "driver"),
        (s(s.tensor(3, 2), s.tensor()), RuntimeError, "at least 1"),
    ],
)
def linalg_lstsq(
    self: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Find X for which the Frobenius norm of A X - B is least.

    Args:
        self: A, (..., m, n). b: B, (..., m, k) or (..., m).
        rcond: singular values below this times the largest one count as zero. Default: the
            dtype's epsilon times max(m, n).
        driver: LAPACK's routine: 'gelsy' (the default, QR with pivots), 'gels' (full rank),
            'gelsd' or 'gelss' (singular values).

    Returns:
        solution; residuals (of tall matrices of full rank, none by 'gelsy'); rank (none by
        'gels'); singular_values (by 'gelsd' and 'gelss').

    Raises:
        LinAlgError: the singular values did not converge.
    """
    name = "torch.linalg.lstsq"
    check_matrix(name, self, "input")
    check_floating(name, self)
    if b.ndim < 1:
        raise RuntimeError(f"{name}: other must have at least 1 dimension, got a scalar")
    if driver is not None and driver not in _DRIVERS:
        raise RuntimeError(
            f"{name}: parameter `driver` should be one of (gels, gelsy, gelsd, gelss), "
            f"got '{driver}'"
        )
    if not 0 <= self.ndim - b.ndim <= 1:
        raise RuntimeError(
            f"{name}: input.dim() must be greater or equal to other.dim() and the difference must "
            f"be at most 1, got {list(self.shape)} and {list(b.shape)}"
        )
    vector = self.ndim - 1 == b.ndim and tuple(b.shape) == tuple(self.shape)[:-1]
    right = b.unsqueeze(-1) if vector else b
    if right.ndim < 2 or self.shape[-2] != right.shape[-2]:
        where = -1 if vector or right.ndim < 2 else -2
        raise RuntimeError(
            f"{name}: input.size(-2) should match other.size({where}), got {list(self.shape)} and "
            f"{list(b.shape)}"
        )
    check_same_dtype(name, self, right)
    from tangrad.ops.linalg.matrix_checks import broadcast_matrices

    left, right = broadcast_matrices(self, right, name)
    limit = _epsilon(self) * max(self.shape[-2:]) if rcond is None else rcond
    if driver in (None, "gelsy"):
        x, rank = _gelsy_kernel(left, right, limit)
        nothing = x.reshape((-1,)).narrow(0, 0, 0)
        # It has a derivative, though there is nothing to derive, as PyTorch's.
        residuals = values = nothing.real if x.dtype.is_complex else nothing
    else:
        x, residuals, rank, values = _lstsq_kernel(left, right, limit, driver)
    # The singular values are those of a constant: PyTorch's have no derivative either.
    x = x.squeeze(-1) if vector else x
    return linalg_lstsq.return_type(x, residuals, rank, values.detach())


def _epsilon(a: Any) -> float:
    import tangrad

    return float(tangrad.finfo(a.dtype).eps)
