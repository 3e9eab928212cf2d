"""Define tables of vectors: rows looked up by number, one by one."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.ops.nn.recording import is_recorded
from tangrad.plugin import (
    Tensor,
    WrittenTensor,
    at_all_sizes,
    composite,
    find_op,
    op,
    require_integer_index,
)

index_select_backward = find_op("index_select_backward")


def _scaled_batch(size: int, dims: Any, self: Any, scale: Any) -> Any:
    self, scale = (
        x.expand((size, *x.shape)) if dim is None else x.movedim(dim, 0)
        for x, dim in zip((self, scale), dims, strict=True)
    )
    lacking = [1] * (self.ndim - scale.ndim)
    return scaled_gradient(self, scale.reshape((size, *lacking, *scale.shape[1:]))), 0


scaled_gradient = op(
    "scaled_gradient(Tensor self, Tensor scale) -> Tensor",
    shape=lambda self: self.shape,
    reference=lambda np, self, scale: self.copy(),
    decompose=lambda self, scale: self.clone(),
    vjp={
        "self": lambda g, scale: g * scale.detach(),
        "scale": lambda scale: tangrad.zeros_like(scale),
    },
    jvp=lambda self, scale, self_t: tangrad.zeros_like(self) if self_t is None else self_t * scale,
    batch=_scaled_batch,
    function=False,
    method=False,
    oracle=lambda torch, x, scale: (
        x + (x * (scale.detach() - 1) - (x * (scale.detach() - 1)).detach())
    ),
    samples=lambda s: (
        [
            s(s.tensor(3, 4), s.tensor(3, 1, low=0.25, high=1)),
            s(s.tensor(), s.tensor(low=0.25, high=1)),
            s(s.tensor(0, 2), s.tensor(1, low=0.25, high=1)),
            s(s.tensor(2, 3, strided=True), s.tensor(2, 3, low=0.25, high=1)),
        ]
        if s.is_floating
        else []
    ),
    doc="Return a tensor whose derivatives, in both modes, are multiplied by `scale`.",
)


def row_of(name: str, padding_idx: int | None, rows: int) -> int | None:
    """Count a row from the start.

    Raises:
        RuntimeError: if there is no such row.
    """
    if padding_idx is None or 0 <= padding_idx < rows:
        return padding_idx
    if not -rows <= padding_idx < 0:
        raise RuntimeError(
            f"{name}: padding_idx must be within the number of embeddings, -{rows} through "
            f"{rows - 1}, but got {padding_idx}"
        )
    return padding_idx + rows


def _by_frequency(weight: Any, index: Any) -> Any:
    """Give for each index one over how often it occurs."""
    ones = weight.detach().new_ones(index.shape)
    counts = weight.detach().new_zeros((weight.shape[0],)).index_add(0, index, ones)
    return counts.index_select(0, index).reciprocal()


def rows_at(weight: Any, index: Any, scale_grad_by_freq: bool) -> Any:
    found = weight.index_select(0, index)
    if not scale_grad_by_freq:
        return found
    return scaled_gradient(found, _by_frequency(weight, index).unsqueeze(1))


@composite(
    dtypes="floating",
    method=False,
    vjp="none: the table is scaled without being recorded",
    samples=lambda s: (
        [
            s(s.tensor(4, 3), s.integers(0, 4, 5), 1.0, 2.0),
            s(s.tensor(4, 3, strided=True), s.integers(0, 4, 2, 2), 2.0, 1.0),
            s(s.tensor(4, 3), s.integers(0, 4, 0), 1.0, 2.0),
        ]
        if s.is_floating
        else []
    ),
    errors=lambda s: [
        (s(s.tensor(4), s.integers(0, 4, 2), 1.0, 2.0), RuntimeError, "2-?D|2 dim"),
        (s(s.tensor(4, 2), s.tensor(2), 1.0, 2.0), RuntimeError, "index|scalar types"),
    ],
)
def embedding_renorm_(
    self: WrittenTensor, indices: Tensor, max_norm: float, norm_type: float
) -> Tensor:
    """Scale down, in place, those of the rows that are longer than `max_norm`."""
    if self.ndim != 2:
        raise RuntimeError(f"embedding_renorm_: 'self' must be 2-D, got {list(self.shape)}")
    require_integer_index("embedding_renorm_", indices)
    table, index = self.detach(), indices.reshape((-1,))
    rows = table.index_select(0, index)
    norms = rows.norm(norm_type, 1, keepdim=True)
    # A row must not come out longer than max_norm by rounding.
    margin = norms * 1e-7 if norms.dtype is tangrad.float32 else 1e-7
    short = tangrad.where(norms > max_norm, max_norm / (norms + margin), 1.0)
    table.index_copy_(0, index, rows * short.to(rows.dtype))
    return self


@composite(
    namespace="nn",
    samples=lambda s: [
        s(s.integers(0, 4, 3), s.tensor(4, 2)),
        s(s.integers(0, 4, 2, 3), s.tensor(4, 2), padding_idx=1),
        s(s.integers(0, 4), s.tensor(4, 2)),
        s(s.integers(0, 4, 5), s.tensor(4, 2), -1),
        s(s.integers(0, 4, 2, 0), s.tensor(4, 2)),
    ],
    oracle="nn.functional.embedding",
    errors=lambda s: [
        (s(s.integers(4, 5, 1), s.tensor(4, 2)), IndexError, "out of"),
        (s(s.integers(0, 1, 1), s.tensor(4)), RuntimeError, "'weight' must be 2-D"),
        (s(s.integers(0, 1, 1), s.tensor(4, 2), 9), AssertionError, "adding_idx"),
        (s(s.tensor(2), s.tensor(4, 2)), RuntimeError, "for index|scalar types"),
    ],
)
@at_all_sizes
def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Look rows of a table up.

    Args:
        input: row numbers, of shape (*).
        weight: the table (V, D).
        padding_idx: a row whose gradient is zero.
        max_norm: norm to which the rows that are looked up are shortened, in place.
        norm_type: p of that p-norm.
        scale_grad_by_freq: divide gradients by how often a row is looked up.
        sparse: make the gradient a sparse tensor.

    Returns:
        A tensor of shape (*, D).

    Raises:
        AssertionError: if `padding_idx` lies outside.
        IndexError: if an index does.
        NotImplementedError: for `sparse` without the package that brings sparse tensors.
    """
    if weight.ndim != 2:
        raise RuntimeError(f"'weight' must be 2-D, got shape {list(weight.shape)}")
    if padding_idx is not None:
        rows = weight.shape[0]
        if not -rows <= padding_idx < rows:
            raise AssertionError(
                f"Padding_idx must be within num_embeddings: got {padding_idx} for {rows} rows"
            )
        padding_idx = row_of("embedding", padding_idx, rows)
    require_integer_index("embedding", input)
    if max_norm is not None:
        embedding_renorm_(weight.detach(), input, max_norm, norm_type)
    if sparse and weight.requires_grad:
        find = sparse_rows("embedding", scale_grad_by_freq)
        found = find(weight, input.reshape((-1,)), padding_idx)
        return found.reshape((*input.shape, weight.shape[1]))
    if input.ndim == 1:
        found = rows_at(weight, input, scale_grad_by_freq)
    else:
        found = rows_at(weight, input.reshape((-1,)), scale_grad_by_freq)
        found = found.reshape((*input.shape, weight.shape[1]))
    if padding_idx is None or not is_recorded(weight):
        return found
    return tangrad.where((input == padding_idx).unsqueeze(-1), found.detach(), found)


def sparse_rows(name: str, scale_grad_by_freq: bool) -> Any:
    """Return the op that looks rows up and has a sparse gradient, which a package brings."""
    if scale_grad_by_freq:
        raise RuntimeError(f"{name}: scale_grad_by_freq not supported with sparse gradients")
    try:
        return find_op("_sparse_rows")
    except AttributeError:
        raise NotImplementedError(
            f"{name}: sparse=True needs sparse tensors, which a package of their own brings: "
            "pip install 'tangrad[sparse]'; or use sparse=False"
        ) from None
