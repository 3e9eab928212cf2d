"""Distances and similarities of vectors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tangrad
from tangrad import ops
from tangrad.ops.definition.define import composite, op, pointwise
from tangrad.ops.definition.signature import Dim, Scalar, Tensor
from tangrad.ops.reduction.moments import p_norm
from tangrad.ops.views.geometry import batched_front


def _norm(x: Any, p: Any, dim: Any, keepdim: bool = False) -> Any:
    return ops.linalg_vector_norm(x, p, dim, keepdim)


@composite(
    dtypes="floating complex",
    samples=lambda s: [
        s(s.tensor(3, 4), s.tensor(3, 4)),
        s(s.tensor(3, 1), s.tensor(4), 1),
        s(s.tensor(3), s.tensor(3, strided=True), float("inf")),
        s(s.tensor(3), s.tensor(3), 0),
        s(s.tensor(), s.tensor(), 3),
        s(s.tensor(0), s.tensor(0)),
    ],
    errors=lambda s: [
        (s(s.tensor(2), s.tensor(3)), RuntimeError, "must match"),
        (s(s.tensor(2, dtype="int64"), s.tensor(2, dtype="int64")), RuntimeError, "floating"),
    ],
)
def dist(self: Tensor, other: Tensor, p: Scalar = 2) -> Tensor:
    """Compute the p-norm of the difference of two tensors."""
    return tangrad.norm(self - other, p)


@composite(
    strict_out_dtype=True,
    out=True,
    dtypes="floating complex",
    inplace=True,
    samples=lambda s: [
        s(s.tensor(3, 4), 2, 0, 1.5),
        s(s.tensor(2, 3, 4, strided=True), 1, -1, 3),
        s(s.tensor(3, 4), float("inf"), 1, 2.0),
        s(s.tensor(3, 4, low=-0.1, high=0.1), 2, 0, 5.0),
    ],
    errors=lambda s: [
        (s(s.tensor(3), 2, 0, 1), RuntimeError, "at least 2 dimensions"),
        (s(s.tensor(3, 2), -1, 0, 1), RuntimeError, "non-positive-norm"),
        (s(s.tensor(3, 2), 2, 0, -1), RuntimeError, "maxnorm to be >= 0"),
    ],
)
def renorm(self: Tensor, p: Scalar, dim: Dim, maxnorm: Scalar) -> Tensor:
    """Scale down those slices along a dimension whose p-norm exceeds `maxnorm`.

    Args:
        self: at least two-dimensional.
    """
    for name, value in (("p", p), ("maxnorm", maxnorm)):
        if isinstance(value, complex):
            raise RuntimeError(f"renorm: {name} must be real-valued")
    if not p > 0:
        raise RuntimeError("renorm: non-positive-norm not supported")
    if maxnorm < 0:
        raise RuntimeError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm}")
    if self.ndim < 2:
        raise RuntimeError(f"renorm: input needs at least 2 dimensions, got {self.ndim} dimensions")
    others = tuple(d for d in range(self.ndim) if d != dim)
    wide = self.float() if self.dtype in (tangrad.float16, tangrad.bfloat16) else self
    size = _norm(wide, p, others, True)
    factor = tangrad.where(size > maxnorm, maxnorm / (size + 1e-7), 1.0)
    return (wide * factor).to(self.dtype)


# All pairs ----------------------------------------------------------------------------------------

_MODES = (
    "use_mm_for_euclid_dist_if_necessary",
    "use_mm_for_euclid_dist",
    "donot_use_mm_for_euclid_dist",
)
_MANY = 25  # rows from which products of matrices pay, as in PyTorch


def _euclidean(x1: Any, x2: Any) -> Any:
    """Compute |a|^2 - 2 a.b + |b|^2 in one product: fast, and inexact for small distances."""
    ones1, ones2 = ops.ones_like(x1.narrow(-1, 0, 1)), ops.ones_like(x2.narrow(-1, 0, 1))
    square1, square2 = (x1 * x1).sum(-1, keepdim=True), (x2 * x2).sum(-1, keepdim=True)
    left = ops.cat([x1 * -2, square1, ones1], -1)
    right = ops.cat([x2, ones2, square2], -1)
    return left.matmul(right.mT).clamp(min=1e-30).sqrt()


def _check_distances(name: str, p: Any, **tensors: Any) -> None:
    for which, x in tensors.items():
        if not x.dtype.is_floating_point:
            raise RuntimeError(
                f"{name} only supports floating-point dtypes, {which} got: {x.dtype}"
            )
    if not p >= 0:
        raise RuntimeError(f"{name} only supports non-negative p values, got {p}")


@composite(
    dtypes="floating",
    method=False,
    samples=lambda s: [
        s(s.tensor(3, 4), s.tensor(2, 4)),
        s(s.tensor(2, 3, 4, strided=True), s.tensor(2, 4), p=1.0),
        s(s.tensor(3, 2), s.tensor(2, 2), float("inf")),
        s(s.tensor(3, 2), s.tensor(2, 2), 3.0),
        s(s.tensor(3, 2), s.tensor(2, 2), 0.0),
        s(s.tensor(30, 2), s.tensor(2, 2)),
        s(s.tensor(3, 2), s.tensor(4, 2), compute_mode="use_mm_for_euclid_dist"),
        *(
            [s(s.tensor(0, 2), s.tensor(4, 2)), s(s.tensor(3, 0), s.tensor(4, 0))]
            if s.dtype in ("float32", "float64")
            else []
        ),
    ],
    errors=lambda s: [
        (s(s.tensor(3), s.tensor(2, 3)), RuntimeError, "at least 2D"),
        (s(s.tensor(3, 2), s.tensor(3, 4)), RuntimeError, "same number of columns"),
        (s(s.tensor(3, 2), s.tensor(3, 2), -1.0), RuntimeError, "non-negative p"),
        (
            s(s.tensor(3, 2, dtype="int64"), s.tensor(3, 2, dtype="int64")),
            RuntimeError,
            "floating-point",
        ),
        (s(s.tensor(2, 2), s.tensor(2, 2), 2.0, "mm"), ValueError, "not a valid value"),
    ],
)
def cdist(
    x1: Tensor,
    x2: Tensor,
    p: float = 2.0,
    compute_mode: Any = "use_mm_for_euclid_dist_if_necessary",
) -> Tensor:
    """Compute the p-norm distances of all pairs of rows.

    Args:
        x1: (..., P, M). x2: (..., R, M), whose leading dimensions broadcast.
        compute_mode: whether the Euclidean distance goes by a product of matrices: for more than
            25 rows, always or never.

    Returns:
        (..., P, R).
    """
    if compute_mode is not None and compute_mode not in (*_MODES, 0, 1, 2):
        raise ValueError(f"{compute_mode} is not a valid value for compute_mode")
    for which, x in (("X1", x1), ("X2", x2)):
        if x.ndim < 2:
            raise RuntimeError(f"cdist only supports at least 2D tensors, {which} got: {x.ndim}D")
    if x1.shape[-1] != x2.shape[-1]:
        raise RuntimeError(
            f"X1 and X2 must have the same number of columns. X1: {x1.shape[-1]} X2: {x2.shape[-1]}"
        )
    _check_distances("cdist", p, X1=x1, X2=x2)
    if x1.dtype != x2.dtype:
        raise RuntimeError(f"cdist: expected x2 to have dtype {x1.dtype}, but found {x2.dtype}")
    if x1.shape[-1] == 0:
        return x1.sum(-1).unsqueeze(-1) + x2.sum(-1).unsqueeze(-2)  # zeros
    mode = compute_mode if isinstance(compute_mode, str) else _MODES[compute_mode or 0]
    many = x1.shape[-2] > _MANY or x2.shape[-2] > _MANY
    if p == 2 and (mode == _MODES[1] or (mode == _MODES[0] and many)):
        return _euclidean(x1, x2)
    return _distances("cdist", x1.unsqueeze(-2) - x2.unsqueeze(-3), p)


def _no_halves(name: str, dtype: Any) -> NotImplementedError:
    return NotImplementedError(f"\"{name}\" not implemented for '{dtype}'; convert with .float()")


def _distances(name: str, difference: Any, p: float) -> Any:
    if difference.dtype in (tangrad.float16, tangrad.bfloat16):
        raise _no_halves(name, difference.dtype)
    return _norm_of_rows(difference, p)


def _norm_of_rows(difference: Any, p: float) -> Any:
    if p == 0:
        # Not what differs from zero is counted: where infinities are subtracted, nothing is known.
        return difference.abs().ceil().clamp(max=1).sum(-1)
    return p_norm(difference, p, (difference.ndim - 1,), False)


# Elements from which the differences of one row outweigh the calls for it, and all differences
# the nodes of a graph for each row.
_LONG, _LARGE = 2**14, 2**21


def _places(x: Any) -> Any:
    """Give the two rows of each pair."""
    return ops.triu_indices(x.shape[-2], x.shape[-2], 1, device=x.device)


def _differences(x: Any) -> Any:
    first, second = _places(x)
    return x.index_select(-2, first) - x.index_select(-2, second)


def _distances_of_pairs(self: Any, p: float) -> Any:
    if self.numel() < _LONG or self.numel() * self.shape[0] < _LARGE:
        return _norm_of_rows(_differences(self), p)
    return ops.cat(list(_row_by_row(self, p)))


def _row_by_row(x: Any, p: float) -> Iterator[Any]:
    """Give the distances of each row to those behind it: differences of one row fit a cache."""
    last = x.shape[0] - 1
    for i, row in enumerate(x.split(1)[:last]):
        yield _norm_of_rows(row - x.narrow(0, i + 1, last - i), p)


def _slopes(difference: Any, result: Any, p: float) -> Any:
    """Differentiate the distances by the differences, zero where a distance has a corner."""
    distance = result.unsqueeze(-1)
    size = difference.abs()
    if p == 0:
        return tangrad.zeros_like(difference)
    if p == 1:
        return difference.sign()
    if p == float("inf"):
        largest = (size == distance).to(difference.dtype)
        return difference.sign() * largest / largest.sum(-1, keepdim=True)
    # Masked twice, so that further derivatives are zero where a difference is, not NaN.
    none = (size == 0) | (distance == 0)
    ratio = size.masked_fill(none, 1) / distance.masked_fill(distance == 0, 1)
    return difference.sign() * (ratio ** (p - 1)).masked_fill(none, 0)


def _gradient_of_pairs(g: Any, self: Any, result: Any, p: float) -> Any:
    first, second = _places(self)
    by_difference = _slopes(_differences(self), result, p) * g.unsqueeze(-1)
    zeros = tangrad.zeros_like(self)
    return zeros.index_add(0, first, by_difference).index_add(0, second, -by_difference)


def _pdist_vjp(g: Any, self: Any, result: Any, p: float) -> Any:
    if p == 0:
        return tangrad.zeros_like(self)
    pull = _gradient_of_pairs if tangrad.is_grad_enabled() else _pdist_backward
    return pull(g, self, result, p)


_pdist_backward = op(
    "_pdist_backward(Tensor g, Tensor self, Tensor result, float p) -> Tensor",
    shape=lambda self: self.shape,
    dtype=lambda self: self.dtype,
    decompose=_gradient_of_pairs,
    vjp="none: `_pdist` takes tensor code where further derivatives may follow",
    dtypes="floating",
    function=False,
    method=False,
    doc="Compute the gradient of `_pdist` by the rows.",
)

pair_distances = op(
    "_pdist(Tensor self, float p) -> Tensor",
    shape=lambda self: (self.shape[0] * (self.shape[0] - 1) // 2,),
    decompose=_distances_of_pairs,
    vjp={"self": _pdist_vjp},
    jvp=lambda self, self_t, result, p: (
        _slopes(_differences(self), result, p) * _differences(self_t)
    ).sum(-1),
    batch=lambda size, dims, self, p: (
        p_norm(_differences(batched_front(self, dims[0], size)), p, (2,), False),
        0,
    ),
    dtypes="floating",
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(4, 3), p)
        for p in (2.0, 1.0, float("inf"), 3.0, 0.0)
        if s.dtype in ("float32", "float64")
    ],
    oracle=lambda torch, x, p: torch.nn.functional.pdist(x, p),
    doc="Compute the distances of all pairs of at least two rows, which are not empty.",
)


@composite(
    dtypes="floating",
    method=False,
    samples=lambda s: [
        s(s.tensor(4, 3)),
        s(s.tensor(3, 2, strided=True), 1.0),
        s(s.tensor(3, 2), float("inf")),
        s(s.tensor(3, 2), 3.0),
        s(s.tensor(3, 2), 0.0),
        s(s.tensor(1, 3)),  # none without rows: PyTorch's gradient of that crashes
    ],
    errors=lambda s: [
        (s(s.tensor(3)), RuntimeError, "2D"),
        (s(s.tensor(3, 2), -1.0), RuntimeError, "non-negative p"),
        (s(s.tensor(3, 2, dtype="int64")), RuntimeError, "floating-point"),
    ],
)
def pdist(self: Tensor, p: float = 2) -> Tensor:
    """Compute the p-norm distances of the rows i < j of a matrix, in the order of (i, j)."""
    if self.ndim != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {self.ndim}D")
    _check_distances("pdist", p, input=self)
    if self.shape[0] < 2:
        return self.new_empty((0,)) + self.sum() * 0
    if self.shape[1] == 0:
        return self.new_zeros((self.shape[0] * (self.shape[0] - 1) // 2,))
    if self.dtype.itemsize < 4:
        raise _no_halves("pdist", self.dtype)
    return pair_distances(self.contiguous(), p)


# Pairs --------------------------------------------------------------------------------------------


@composite(
    dtypes="floating",
    method=False,
    samples=lambda s: [
        s(s.tensor(3, 4), s.tensor(3, 4)),
        s(s.tensor(2, 3, 4, strided=True), s.tensor(3, 1), dim=-1),
        s(s.tensor(3), s.tensor(3), 0),
        s(s.tensor(2, 2, nonzero=True), s.tensor(2, 2, nonzero=True), eps=0.1),
        s(s.tensor(3, 0), s.tensor(3, 0)),
    ],
    errors=lambda s: [
        (
            s(s.tensor(2, 2, dtype="int64"), s.tensor(2, 2, dtype="int64")),
            RuntimeError,
            "floating point",
        ),
        (s(s.tensor(2, 2), s.tensor(3, 3)), RuntimeError, "must match|broadcast|size"),
    ],
)
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-08) -> Tensor:
    """Compute the cosine of the angle of vectors along a dimension.

    Norms below `eps` count as `eps`, but in the derivative.
    """
    common = tangrad.promote_types(x1.dtype, x2.dtype)
    if not common.is_floating_point:
        raise RuntimeError(
            f"expected common dtype to be floating point, yet common dtype is {common}"
        )
    # Squares of reciprocal norms, in the derivatives, leave the range of halves.
    wide = tangrad.float32 if common.itemsize < 4 else common
    x1, x2 = x1.to(wide), x2.to(wide)
    if x1.shape != x2.shape:
        x1, x2 = ops.broadcast_tensors(x1, x2)
    cosine = scaled_product(x1, _scale(x1, dim, eps), x2, _scale(x2, dim, eps)).sum(dim)
    return cosine.to(common)


# Of vectors that are scaled first, so that no product overflows.
scaled_product = pointwise(
    "_scaled_product(Tensor self, Tensor scale, Tensor other, Tensor other_scale) -> Tensor",
    "(self * scale) * (other * other_scale)",
    dtypes="floating",
    function=False,
    method=False,
    samples=lambda s: (
        [s(s.tensor(3, 4), s.tensor(3, 1), s.tensor(3, 4), s.tensor(3, 1))] if s.is_floating else []
    ),
    oracle=lambda torch, x, scale, y, other_scale: (x * scale) * (y * other_scale),
    doc="Multiply two tensors, each with a scale of its own.",
)


def _scale(x: Any, dim: int, eps: float) -> Any:
    """Give the reciprocals of norms; least norms have no derivative."""
    size = _norm(x, 2, (dim,), True)
    return 1 / (size + (eps - size.detach()).clamp(min=0))


shifted_difference = pointwise(
    "_shifted_difference(Tensor x1, Tensor x2, float eps) -> Tensor",
    "x1 - x2 + eps",
    dtypes="floating complex",
    function=False,
    method=False,
    samples=lambda s: (
        [s(s.tensor(3, 4), s.tensor(4), 0.5)] if s.is_floating or s.is_complex else []
    ),
    oracle=lambda torch, x1, x2, eps: x1 - x2 + eps,
    doc="Subtract, and add a number.",
)


def difference_plus(x1: Any, x2: Any, eps: float) -> Any:
    """Compute x1 - x2 + eps; integers are subtracted as such."""
    if all(x.dtype.is_floating_point or x.dtype.is_complex for x in (x1, x2)):
        return shifted_difference(x1, x2, eps)
    return x1 - x2 + eps


@composite(
    dtypes="floating complex",
    method=False,
    samples=lambda s: [
        s(s.tensor(3, 4), s.tensor(3, 4)),
        s(s.tensor(2, 3, 4, strided=True), s.tensor(4), 1.0),
        s(s.tensor(4), s.tensor(3, 4), float("inf"), keepdim=True),
        s(s.tensor(4), s.tensor(4), eps=0.5),
    ],
    errors=lambda s: [(s(s.tensor(2, 2), s.tensor(3, 3)), RuntimeError, "must match")],
)
def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-06, keepdim: bool = False
) -> Tensor:
    """Compute the p-norm of x1 - x2 + eps over the last dimension."""
    difference = difference_plus(x1, x2, eps)
    return _norm(difference, p, (difference.ndim - 1,), keepdim)
