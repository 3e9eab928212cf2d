"""Inverses and determinants."""

from __future__ import annotations

import math
from typing import Any

from tangrad import ops
from tangrad.devices import lapack, lapack_spectral
from tangrad.ops.definition.define import composite, op
from tangrad.ops.definition.signature import Tensor
from tangrad.ops.linalg.matrix_checks import (
    check_square_floating,
    checked,
    real_of,
    regular,
    square_errors,
    wide_only,
)

WIDE = "floating complex"

# Inverses -----------------------------------------------------------------------------------------

_inverse_kernel = op(
    "_linalg_inverse(Tensor A, str check='') -> (Tensor inverse, Tensor info)",
    dtypes=WIDE,
    shape=lambda A: (A.shape, A.shape[:-2]),
    dtype=lambda A: (A.dtype, "int32"),
    check=lambda A: check_square_floating("linalg.inv", A),
    reference=lambda np, A, check: checked(lapack.inverse(np, A), check, _NOT_INVERTIBLE),
    vjp={"A": lambda g0, result0: -result0.mH.matmul(g0).matmul(result0.mH)},
    jvp=lambda A_t, result: [-result[0].matmul(A_t).matmul(result[0]), None],
    batch="dims",
    function=False,
    method=False,
    oracle="linalg.inv_ex",
    samples=lambda s: [
        s(regular(s, 3, 3)),
        s(regular(s, 2, 3, 3, strided=True)),
        *wide_only(s, s(s.tensor(0, 0))),
        *wide_only(s, s(s.tensor(0, 2, 2))),
    ],
    errors=square_errors,
    doc="Invert matrices (Giles 2008 for the derivative).",
)
_NOT_INVERTIBLE = (
    "The diagonal element {} is zero, the inversion could not be completed because the input "
    "matrix is singular."
)


def _inverse_samples(s: Any) -> list[Any]:
    return [s(regular(s, 3, 3)), s(regular(s, 2, 2, 2))]


@composite(
    result_names=("inverse", "info"),
    strict_out_dtype=True,
    out=True,
    dtypes=WIDE,
    namespace="linalg",
    samples=_inverse_samples,
    errors=square_errors,
)
def linalg_inv_ex(A: Tensor, *, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    """Invert matrices without a check unless asked for.

    Returns:
        The inverses, and int32 numbers: 0 or the first pivot that is zero.
    """
    return linalg_inv_ex.return_type(*_inverse_kernel(A, "linalg.inv_ex" if check_errors else ""))


def _inverse_errors(s: Any) -> list[Any]:
    return [
        *square_errors(s),
        (s(s.values([[1, 1], [1, 1]])), RuntimeError, "singular"),
        (s(s.values([[[1, 0], [0, 1]], [[0, 0], [0, 1]]])), RuntimeError, "Batch element 1"),
    ]


@composite(
    strict_out_dtype=True,
    out=True,
    dtypes=WIDE,
    namespace="linalg",
    samples=_inverse_samples,
    errors=_inverse_errors,
)
def linalg_inv(A: Tensor) -> Tensor:
    """Invert matrices (..., n, n).

    Raises:
        LinAlgError: a matrix is singular.
    """
    return _inverse_kernel(A, "linalg.inv")[0]


@composite(out=True, dtypes=WIDE, samples=_inverse_samples, errors=_inverse_errors)
def inverse(self: Tensor) -> Tensor:
    """Invert matrices; see `linalg.inv`."""
    return linalg_inv(self)


# Determinants -------------------------------------------------------------------------------------


def _det_vjp(g: Any, A: Any, result: Any) -> Any:
    """Pull back through det A: the gradient is g times the conjugated cofactors.

    They are det(A) inv(A)^T of a regular matrix; `_linalg_cofactors` has them of every matrix.
    """
    return g.unsqueeze(-1).unsqueeze(-1) * _cofactors(A).conj()


# Condition up to which the inverse in double precision tells the cofactors to eight places.
_REGULAR = 1e7


def _cofactors_reference(np: Any, A: Any) -> Any:
    """Compute det(A) inv(A)^T of regular matrices, and the cofactors of others by their factors."""
    matrices = A.reshape((math.prod(A.shape[:-2]), *A.shape[-2:]))
    wide = matrices.astype(np.result_type(A.dtype, np.float64))
    with np.errstate(all="ignore"):
        size = np.linalg.det(wide)
        regular = np.isfinite(size) & (np.abs(size) > np.finfo(np.float64).tiny)
        inverse = np.linalg.inv(wide[regular])
        norms = [np.abs(x).sum(-1).max(-1, initial=0) for x in (wide[regular], inverse)]
        regular[regular] = well = norms[0] * norms[1] < _REGULAR
        found = np.empty(wide.shape, A.dtype)
        found[regular] = size[regular, None, None] * inverse[well].swapaxes(-1, -2)
    if not regular.all():
        found[~regular] = _cofactors_by_factors(np, matrices[~regular])
    return found.reshape(A.shape)


def _cofactors_by_factors(np: Any, A: Any) -> Any:
    """Multiply out A = U S V^H: cof(A) = det(U) conj(det(V)) conj(U) cof(S) V^T, finite always."""
    u, s, vh = np.linalg.svd(A)
    n = A.shape[-1]
    others = np.ones_like(s)
    for i in range(n):
        others[..., i] = np.delete(s, i, -1).prod(-1)
    phase = (np.linalg.det(u) * np.linalg.det(vh))[..., None, None]
    return (phase * ((u.conj() * others[..., None, :]) @ vh.conj())).astype(A.dtype)


def _cofactors_vjp(g: Any, A: Any, result: Any) -> Any:
    """Differentiate C = det(A) inv(A)^T of regular matrices.

    dC = tr(inv(A) dA) C - C dA^T inv(A)^T.
    """
    adjoint = ops.linalg_inv_ex(A)[0].mH
    along = (g * result.conj()).sum((-2, -1), keepdim=True)
    return along * adjoint - adjoint.matmul(g.mT).matmul(result.conj())


_cofactors = op(
    "_linalg_cofactors(Tensor A) -> Tensor",
    dtypes=WIDE,
    reference=_cofactors_reference,
    vjp={"A": _cofactors_vjp},
    batch="dims",
    function=False,
    method=False,
    oracle=lambda torch, A: torch.linalg.det(A)[..., None, None] * torch.linalg.inv(A).mT,
    samples=lambda s: wide_only(
        s, s(regular(s, 3, 3)), s(regular(s, 2, 2, 2)), s(regular(s, 1, 1))
    ),
    doc="Compute the matrices of cofactors.",
)

linalg_det = op(
    "linalg_det(Tensor A) -> Tensor",
    dtypes=WIDE,
    namespace="linalg",
    check=lambda A: check_square_floating("linalg.det", A),
    shape=lambda A: A.shape[:-2],
    reference=lambda np, A: lapack_spectral.det(np, A),
    strict_out_dtype=True,
    vjp={"A": _det_vjp},
    batch="dims",
    samples=lambda s: [
        s(regular(s, 3, 3)),
        s(regular(s, 2, 3, 3, strided=True)),
        *wide_only(s, s(s.tensor(2, 0, 0))),
        s(s.tensor(1, 1)),
    ],
    errors=square_errors,
    doc="Compute determinants of matrices (..., n, n).",
)


def _slogdet_vjp(g0: Any, g1: Any, A: Any, result0: Any) -> Any:
    """Pull back through (sign, log|det|): both move by z = tr(inv(A) dA).

    d log|det| = Re z, and of a complex matrix d sign = i sign Im z.
    """
    adjoint = ops.linalg_inv_ex(A)[0].mH
    if A.dtype.is_complex:
        turning = -(g0.conj() * result0).imag
        return ops.complex(g1, turning).unsqueeze(-1).unsqueeze(-1) * adjoint
    return g1.unsqueeze(-1).unsqueeze(-1) * adjoint


linalg_slogdet = op(
    "linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet)",
    dtypes=WIDE,
    namespace="linalg",
    check=lambda A: check_square_floating("linalg.slogdet", A),
    shape=lambda A: (A.shape[:-2], A.shape[:-2]),
    dtype=lambda A: (A.dtype, real_of(A.dtype)),
    reference=lambda np, A: lapack_spectral.slogdet(np, A),
    strict_out_dtype=True,
    vjp={"A": _slogdet_vjp},
    batch="dims",
    samples=lambda s: [
        s(regular(s, 3, 3)),
        s(regular(s, 2, 3, 3)),
        *wide_only(s, s(s.tensor(2, 0, 0))),
    ],
    errors=square_errors,
    doc="Compute the sign of the determinant and the logarithm of its absolute value.",
)


@composite(
    dtypes=WIDE,
    samples=lambda s: [s(regular(s, 3, 3)), s(regular(s, 2, 2, 2))],
    errors=square_errors,
)
def det(self: Tensor) -> Tensor:
    """Compute determinants; see `linalg.det`."""
    return linalg_det(self)


@composite(
    result_names=("sign", "logabsdet"),
    out=True,
    dtypes=WIDE,
    samples=lambda s: [s(regular(s, 3, 3)), s(regular(s, 2, 2, 2))],
    errors=square_errors,
)
def slogdet(self: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the sign and the logarithm of determinants; see `linalg.slogdet`."""
    return slogdet.return_type(*linalg_slogdet(self))


@composite(
    dtypes=WIDE,
    samples=lambda s: [
        s(regular(s, 3, 3)),
        s(regular(s, 2, 2, 2)),
        *wide_only(s, s(s.tensor(0, 0))),
    ],
    errors=square_errors,
)
def logdet(self: Tensor) -> Tensor:
    """Compute the logarithm of determinants: NaN where a real one is negative, -inf at zero."""
    sign, size = linalg_slogdet(self)
    if self.dtype.is_complex:
        return sign.log() + size
    return size.masked_fill(sign == -1.0, float("nan"))
