"""Ops that are written by what they are made of, for want of an operator of the standard.

Factorizations go through a matrix column by column, so a file holds as many nodes as a matrix has
columns. What they refuse here (a matrix that has no inverse) gives infinity or NaN in a file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tangrad
from tangrad import Tensor
from tangrad.plugin import all_ops

__all__ = ["DECOMPOSED", "refuse_by_values", "table"]

# Columns up to which a factorization is written.
_MOST = 64
_SQUARINGS, _TERMS = 24, 18


def _columns(count: int, name: str) -> range:
    from tangrad_onnx.errors import UnsupportedOperatorError

    if count == 0:
        raise UnsupportedOperatorError("a matrix without elements", operator=name)
    if count > _MOST:
        raise UnsupportedOperatorError(
            f"a file would have nodes for each of {count} columns; up to {_MOST} are written",
            operator=name,
        )
    return range(count)


def _constant(rows: list[Any], like: Tensor) -> Tensor:
    return tangrad.tensor(rows, dtype=like.dtype)


def _eye(rows: int, columns: int, like: Tensor) -> Tensor:
    made = _constant([[float(i == j) for j in range(columns)] for i in range(rows)], like)
    return made.expand(*like.shape[:-2], rows, columns)


def _info(like: Tensor) -> Tensor:
    return (like[..., 0, 0] * 0).to(tangrad.int32)


def _cholesky(self: Tensor, *, upper: bool = False, check: str = "") -> Any:
    columns: list[Tensor] = []
    for j in _columns(self.shape[-1], "cholesky"):
        # Of an upper factor the upper half is read.
        rest = self[..., j, j:] if upper else self[..., j:, j]
        if columns:
            known = tangrad.stack(columns, -1)[..., j:, :]
            rest = rest - (known * known[..., :1, :]).sum(-1)
        first = rest[..., :1].sqrt()
        parts = [self[..., :j, j] * 0] * bool(j) + [first, rest[..., 1:] / first]
        columns.append(tangrad.cat(parts, -1))
    factor = tangrad.stack(columns, -1)
    return (factor.transpose(-2, -1) if upper else factor), _info(self)


def _swapped(places: Tensor, one: int, other: Tensor) -> Tensor:
    """Return places with two exchanged; `other` has a last dimension of 1."""
    order = tangrad.arange(places.shape[-1])
    first = places[..., one : one + 1]
    second = places.gather(-1, other)
    moved = tangrad.where(order == other, first, places)
    return tangrad.where(order == one, second, moved)


def _rows_at(matrix: Tensor, places: Tensor) -> Tensor:
    at = places.unsqueeze(-1).expand(*places.shape, matrix.shape[-1])
    batch = matrix.expand(*places.shape[:-1], *matrix.shape[-2:])
    return batch.gather(-2, at)


def _lu_factor(A: Tensor, *, pivot: bool = True, check: str = "") -> Any:
    rows, columns = A.shape[-2:]
    work, pivots = A, []
    start = tangrad.arange(rows).expand(*A.shape[:-2], rows)
    for k in _columns(min(rows, columns), "lu"):
        at = start[..., k : k + 1]
        if pivot:
            at = work[..., k:, k].abs().argmax(-1, keepdim=True) + k
            work = _rows_at(work, _swapped(start, k, at))
        pivots.append(at + 1)
        first = work[..., k : k + 1, k : k + 1]
        below = work[..., k + 1 :, k : k + 1]
        factor = tangrad.where(first == 0, below, below / first)
        rest = work[..., k + 1 :, k + 1 :] - factor * work[..., k : k + 1, k + 1 :]
        lower = tangrad.cat([work[..., k + 1 :, :k], factor, rest], -1)
        work = tangrad.cat([work[..., : k + 1, :], lower], -2)
    zero = work.diagonal(dim1=-2, dim2=-1) == 0
    place = zero.to(tangrad.int64).argmax(-1) + 1
    info = tangrad.where(zero.any(-1), place, place * 0)
    return work, tangrad.cat(pivots, -1).to(tangrad.int32), info.to(tangrad.int32)


def _row_order(pivots: Tensor, size: int) -> Tensor:
    order = tangrad.arange(size).expand(*pivots.shape[:-1], size)
    for k in _columns(pivots.shape[-1], "lu_solve"):
        order = _swapped(order, k, (pivots[..., k : k + 1] - 1).to(tangrad.int64))
    return order


def _solve_triangular(
    self: Tensor, B: Tensor, *, upper: bool, left: bool, unitriangular: bool
) -> Tensor:
    if not left:
        flipped = self.transpose(-2, -1)
        given: dict[str, Any] = {"upper": not upper, "left": True, "unitriangular": unitriangular}
        return _solve_triangular(flipped, B.transpose(-2, -1), **given).transpose(-2, -1)
    size = self.shape[-1]
    known: list[Tensor] = []
    for k in _columns(size, "solve_triangular"):
        i = size - 1 - k if upper else k
        row = B[..., i : i + 1, :]
        if known:
            whole = tangrad.cat(known[::-1] if upper else known, -2)
            factors = self[..., i : i + 1, i + 1 :] if upper else self[..., i : i + 1, :i]
            row = row - factors @ whole
        known.append(row if unitriangular else row / self[..., i : i + 1, i : i + 1])
    return tangrad.cat(known[::-1] if upper else known, -2)


def _solve(A: Tensor, B: Tensor, check: str = "") -> Any:
    factors, pivots, info = _lu_factor(A)
    right = _rows_at(B, _row_order(pivots, A.shape[-1]))
    lower = _solve_triangular(factors, right, upper=False, left=True, unitriangular=True)
    return _solve_triangular(factors, lower, upper=True, left=True, unitriangular=False), info


def _inverse(A: Tensor, check: str = "") -> Any:
    return _solve(A, _eye(A.shape[-1], A.shape[-1], A))


def _cholesky_solve(self: Tensor, input2: Tensor, upper: bool) -> Tensor:
    flipped = input2.transpose(-2, -1)
    lower, above = (flipped, input2) if upper else (input2, flipped)
    half = _solve_triangular(lower, self, upper=False, left=True, unitriangular=False)
    return _solve_triangular(above, half, upper=True, left=True, unitriangular=False)


def _cholesky_inverse(self: Tensor, upper: bool = False) -> Tensor:
    return _cholesky_solve(_eye(self.shape[-1], self.shape[-1], self), self, upper)


def _geqrf(self: Tensor) -> Any:
    """Reflect column by column, with LAPACK's signs."""
    rows, columns = self.shape[-2:]
    work, factors = self, []
    for k in _columns(min(rows, columns), "qr"):
        first, below = work[..., k : k + 1, k : k + 1], work[..., k + 1 :, k : k + 1]
        square = (below * below).sum(-2, keepdim=True)
        norm = (first * first + square).sqrt()
        plain = square == 0
        beta = tangrad.where(plain, first, tangrad.where(first < 0, norm, -norm))
        safe = tangrad.where(plain, beta * 0 + 1, beta)
        tau = tangrad.where(plain, beta * 0, (beta - first) / safe)
        vector = below / tangrad.where(plain, beta * 0 + 1, first - beta)
        right = work[..., k:, k + 1 :]
        whole = tangrad.cat([first * 0 + 1, vector], -2)
        right = right - tau * whole @ (whole.transpose(-2, -1) @ right)
        part = tangrad.cat([tangrad.cat([beta, vector], -2), right], -1)
        work = tangrad.cat([work[..., :k, :], tangrad.cat([work[..., k:, :k], part], -1)], -2)
        factors.append(tau[..., 0, :])
    return work, tangrad.cat(factors, -1)


def _reflected(vectors: Tensor, tau: Tensor, made: Tensor, forward: bool = False) -> Tensor:
    """Apply reflections to a matrix, the last first unless `forward`."""
    count = tau.shape[-1]
    for at in _columns(count, "householder_product"):
        k = at if forward else count - 1 - at
        below = vectors[..., k + 1 :, k : k + 1]
        one = vectors[..., k : k + 1, k : k + 1] * 0 + 1
        whole = tangrad.cat([vectors[..., :k, k : k + 1] * 0, one, below], -2)
        share = tau[..., k : k + 1].unsqueeze(-1)
        made = made - share * whole @ (whole.transpose(-2, -1) @ made)
    return made


def _householder_product(input: Tensor, tau: Tensor) -> Tensor:
    return _reflected(input, tau, _eye(input.shape[-2], input.shape[-1], input))


def _ormqr(
    self: Tensor, input2: Tensor, input3: Tensor, left: bool = True, transpose: bool = False
) -> Tensor:
    if left:
        return _reflected(self, input2, input3, forward=transpose)
    flipped = input3.transpose(-2, -1)
    return _reflected(self, input2, flipped, forward=not transpose).transpose(-2, -1)


def _qr(A: Tensor, mode: str = "reduced") -> Any:
    rows, columns = A.shape[-2:]
    packed, tau = _geqrf(A)
    count = rows if mode == "complete" else min(rows, columns)
    upper = packed[..., :count, :].triu()
    if mode == "r":
        return A[..., :0, :0].reshape(-1)[:0], upper
    return _reflected(packed, tau, _eye(rows, count, A)), upper


def _matrix_exp(self: Tensor) -> Tensor:
    """Sum the series of a matrix halved until it is small, and square the result as often."""
    size = self.shape[-1]
    norm = self.abs().sum(-2).amax(-1)[..., None, None]
    halvings = (tangrad.where(norm > 0, norm, norm * 0 + 1).log2().ceil() + 1).clamp(0, _SQUARINGS)
    small = self * tangrad.exp2(-halvings)
    total = term = _eye(size, size, self)
    for k in range(1, _TERMS):
        term = term @ small / k
        total = total + term
    for k in range(_SQUARINGS):
        total = tangrad.where(halvings > k, total @ total, total)
    return total


def _integer_product(self: Tensor, mat2: Tensor) -> Tensor:
    return self.to(tangrad.int32) @ mat2.to(tangrad.int32)


def _weight_gradient(
    input: Tensor, grad: Tensor, shape: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Tensor:
    """Convolve the input with the gradient, batch and channels exchanged."""
    places = len(stride)
    function = getattr(tangrad.nn.functional, f"conv{places}d")
    parts = []
    for x, g in zip(input.chunk(groups, 1), grad.chunk(groups, 1), strict=True):
        found = function(
            x.transpose(0, 1), g.transpose(0, 1), None, dilation, padding, stride
        ).transpose(0, 1)
        for dim in range(places):
            found = found.narrow(2 + dim, 0, shape[2 + dim])
        parts.append(found)
    return tangrad.cat(parts, 0)


def _recurrence(decay: Tensor, input: Tensor, dim: int) -> Tensor:
    state, found = None, []
    for d, x in zip(decay.unbind(dim), input.unbind(dim), strict=True):
        state = x if state is None else d * state + x
        found.append(state)
    return tangrad.stack(found, dim)


def _unfolded(g: Tensor, shape: Any, dimension: int, size: int, step: int) -> Tensor:
    """Add what overlaps: each window back to where it was taken from."""
    dim = dimension % len(shape)
    rows = g.movedim(-1, dim + 1).flatten(dim, dim + 1)
    at = tangrad.tensor([i * step + k for i in range(g.shape[dim]) for k in range(size)])
    return tangrad.zeros(tuple(shape), dtype=g.dtype).index_add(dim, at, rows)


_OWN: dict[str, Callable[..., Any]] = {
    "_cholesky_solve": _cholesky_solve,
    "_int_mm": _integer_product,
    "_linalg_cholesky": _cholesky,
    "_linalg_inverse": _inverse,
    "_linalg_lu_factor": _lu_factor,
    "_linalg_row_order": _row_order,
    "_linalg_solve": _solve,
    "_linalg_solve_triangular": _solve_triangular,
    "cholesky_inverse": _cholesky_inverse,
    "convolution_weight": _weight_gradient,
    "geqrf": _geqrf,
    "linalg_householder_product": _householder_product,
    "linalg_matrix_exp": _matrix_exp,
    "linalg_qr": _qr,
    "linear_recurrence": _recurrence,
    "ormqr": _ormqr,
    "unfold_backward": _unfolded,
}
# Those whose definition itself says what they are made of.
_DEFINED = (
    "_bag_sum",
    "_block_diag",
    "_ctc_loss",
    "_grid_sampled",
    "_norms",
    "_pdist",
    "_total_norm",
    "_weighted_gather",
    "_weighted_lines",
    "as_log_softmax",
    "convolution_channels_last",
    "convolution_weight_bias",
    "depthwise_channels_last",
    "diagonal_scatter",
    "fused_group_norm",
    "linear_weight_bias",
    "nanmedian_all",
)
#: Names of the ops that are taken apart.
DECOMPOSED = frozenset((*_OWN, *_DEFINED))


def refuse_by_values(name: str | None, node: Any) -> None:
    """Refuse a call whose parts depend on the numbers of the example.

    Raises:
        UnsupportedOperatorError: it is such a call.
    """
    from tangrad_onnx.errors import UnsupportedOperatorError

    if name == "histc":
        least, most = (*node.args[2:4], *(node.kwargs.get(k, 0) for k in ("min", "max")))[:2]
        by_values = least == most
    else:
        by_values = name in ("histogram", "histogramdd") and node.kwargs.get("range") is None
    if by_values:
        raise UnsupportedOperatorError(
            "its range is that of the values, which a file does not look at; give it a range",
            operator=name,
        )


def _defined(op: Any) -> Callable[..., Any]:
    """Return what an op's definition says that it is made of, as a call with defaults."""
    params = op.definition.schema.params

    def call(*args: Any, **kwargs: Any) -> Any:
        rest = params[len(args) :]
        return op.definition.decompose(*args, *(kwargs.get(p.name, p.default) for p in rest))

    return call


def table(custom: Any) -> dict[Any, Callable[..., Any]]:
    """Return {op: function} of what is taken apart, but what a user has a form for."""
    ops = all_ops()
    found = {ops[name]: function for name, function in _OWN.items()}
    found |= {ops[name]: _defined(ops[name]) for name in _DEFINED}
    return {op: function for op, function in found.items() if op.name not in custom}
