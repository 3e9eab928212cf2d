"""What singular values tell of a matrix: its rank, pseudoinverse and condition."""

from __future__ import annotations

import math
from typing import Any

import tangrad
from tangrad import ops
from tangrad.devices import lapack_spectral
from tangrad.ops.definition.define import composite, op, overload
from tangrad.ops.definition.signature import Tensor
from tangrad.ops.linalg.eigenvalues import linalg_eigvalsh
from tangrad.ops.linalg.matrix_checks import (
    check_floating,
    check_matrix,
    check_square_floating,
    definite,
    real_of,
    regular,
    wide_only,
)
from tangrad.ops.linalg.singular_values import linalg_svdvals

WIDE = "floating complex"


def _epsilon(a: Any) -> float:
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


@composite(out=True, function=False, method=False)
def _matrix_rank_tolerances(
    input: Tensor, *, atol: Any = None, rtol: Any = None, hermitian: bool = False
) -> Tensor:
    """Count singular values above max(atol, rtol * the largest)."""
    return _rank("torch.linalg.matrix_rank", input, atol, rtol, hermitian)


@composite(out=True, function=False, method=False)
def _matrix_rank_tol(input: Tensor, tol: Any, hermitian: bool = False) -> Tensor:
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


@composite(out=True, function=False, method=False)
def _pinv_tolerances(
    self: Tensor, *, atol: Any = None, rtol: Any = None, hermitian: bool = False
) -> Tensor:
    """Compute pseudoinverses; singular values up to max(atol, rtol * the largest) are zero."""
    return _pinv(self, atol, rtol, hermitian)


@composite(out=True, function=False, method=False)
def _pinv_rcond(self: Tensor, rcond: Any, hermitian: bool = False) -> Tensor:
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
    dtypes=WIDE,
    samples=lambda s: [s(regular(s, 3, 3)), s(regular(s, 2, 4))],
    errors=lambda s: [(s(s.tensor(3)), RuntimeError, "at least 2|2 or more")],
)
def pinverse(self: Tensor, rcond: float = 1e-15) -> Tensor:
    """Compute pseudoinverses; `linalg.pinv` is the newer name."""
    return _pinv(self, 0.0, rcond, False)


@composite(
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
def linalg_cond(self: Tensor, p: Any = None) -> Tensor:
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
    if p == "nuc":
        values = linalg_svdvals(self)
        return values.sum(-1) * values.reciprocal().sum(-1)
    inverted, info = ops.linalg_inv_ex(self)
    broken = (info != 0).unsqueeze(-1).unsqueeze(-1)
    inverted = inverted.masked_fill(broken, float("inf"))
    found = ops.linalg_matrix_norm(self, p) * ops.linalg_matrix_norm(inverted, p)
    return found.nan_to_num(math.inf, math.inf, -math.inf)  # of zeros there is none, as in NumPy
