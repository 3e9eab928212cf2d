"""Define attention."""

from __future__ import annotations

import math
from typing import Any

import tangrad
from tangrad.ops.nn.attention_kernel import attention, causal_mask, masked
from tangrad.ops.nn.recording import is_recorded
from tangrad.plugin import Tensor, composite, find_op

dropout = find_op("dropout")


def _check_attention(query: Any, key: Any, value: Any, attn_mask: Any, is_causal: bool) -> None:
    if attn_mask is not None and is_causal:
        raise RuntimeError(
            "scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True"
        )
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.ndim < 2:
            raise RuntimeError(
                "scaled_dot_product_attention: expected query, key, and value to be at least 2 "
                f"dimensional, but got {name} of shape {list(x.shape)}"
            )
        if x.dtype != query.dtype:
            raise RuntimeError(
                "Expected query, key, and value to have the same dtype, but got query.dtype: "
                f"{query.dtype}, key.dtype: {key.dtype}, and value.dtype: {value.dtype} instead."
            )
    if attn_mask is not None and attn_mask.dtype not in (
        tangrad.bool,
        tangrad.float32,
        query.dtype,
    ):
        raise RuntimeError(
            "Expected attn_mask dtype to be bool or float or to match query dtype, but got "
            f"attn_mask.dtype: {attn_mask.dtype} and query.dtype: {query.dtype} instead."
        )


def _shared_heads(query: Any, key: Any, value: Any) -> tuple[Any, Any]:
    """Repeat heads of key and value so that each serves a group of the query's heads."""
    heads = query.shape[-3]
    if heads % key.shape[-3] or heads % value.shape[-3]:
        raise RuntimeError(
            "scaled_dot_product_attention: with enable_gqa the number of heads in key and value "
            f"must divide the number of heads in query, got {key.shape[-3]}, "
            f"{value.shape[-3]} and {heads}"
        )
    return (
        key.repeat_interleave(heads // key.shape[-3], -3),
        value.repeat_interleave(heads // value.shape[-3], -3),
    )


def _broadcast(query: Any, key: Any, value: Any, mask: Any) -> tuple[Any, Any, Any, Any]:
    """Give all of them the same leading dimensions, and the mask the shape of the scores."""
    lead = tuple(query.shape[:-2])
    if tuple(key.shape[:-2]) != lead or tuple(value.shape[:-2]) != lead:
        lead = tuple(tangrad.broadcast_shapes(lead, key.shape[:-2], value.shape[:-2]))
        query, key, value = (x.expand((*lead, *x.shape[-2:])) for x in (query, key, value))
    if mask is not None:
        mask = mask.expand((*lead, query.shape[-2], key.shape[-2]))
    return query, key, value, mask


@composite(
    dtypes="floating",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(2, 3, 4), s.tensor(2, 3, 4), s.tensor(2, 3, 2)),
        s(s.tensor(1, 2, 2, 3), s.tensor(1, 2, 3, 3), s.tensor(1, 2, 3, 3), is_causal=True),
        s(s.tensor(2, 3), s.tensor(2, 3), s.tensor(2, 3), s.tensor(2, 2), scale=0.5),
        s(
            s.tensor(1, 4, 2, 2),
            s.tensor(1, 2, 3, 2),
            s.tensor(1, 2, 3, 2),
            enable_gqa=True,
        ),
    ],
    oracle="nn.functional.scaled_dot_product_attention",
    errors=lambda s: [
        (
            s(s.tensor(2, 2), s.tensor(2, 2), s.tensor(2, 2), s.tensor(2, 2), 0.0, True),
            RuntimeError,
            "should not be set when is_causal",
        ),
        (s(s.tensor(2), s.tensor(2), s.tensor(2)), RuntimeError, "at least 2 dimensional"),
        (
            s(s.tensor(2, 2), s.tensor(2, 2), s.tensor(2, 2), s.integers(0, 2, 2, 2)),
            RuntimeError,
            "Expected attn_mask dtype",
        ),
        (
            s(s.tensor(2, 2), s.tensor(2, 2), s.tensor(2, 2), None, 1.5),
            RuntimeError,
            "between 0 and 1",
        ),
    ],
)
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Mix values by the softmax of the similarity of queries and keys.

    softmax(Q Kᵀ scale + mask) V (Vaswani et al.: "Attention is all you need", 2017).
    A query for which every key is masked out gives zeros.

    Args:
        query: (..., L, E).
        key: (..., S, E).
        value: (..., S, Ev).
        attn_mask: broadcast to (..., L, S): bool (True takes part) or a number to add.
        dropout_p: probability that a weight is dropped.
        is_causal: let query i see only keys up to i.
        scale: default 1 / sqrt(E).
        enable_gqa: let groups of the query's heads share heads of key and value.
    """
    _check_attention(query, key, value, attn_mask, is_causal)
    if not 0 <= dropout_p <= 1:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {dropout_p}")
    if enable_gqa:
        key, value = _shared_heads(query, key, value)
    if scale is None:
        scale = 1 / math.sqrt(query.shape[-1]) if query.shape[-1] else 1.0
    # Derivatives by a mask that hides by its dtype's least number need the weights themselves:
    # beside that number the logarithm of a row's sum has no digits left.
    learned = attn_mask is not None and is_recorded(attn_mask)
    if dropout_p == 0 and not learned:
        query, key, value, attn_mask = _broadcast(query, key, value, attn_mask)
        return attention(query, key, value, attn_mask, is_causal, scale)[0]
    dtype = query.dtype
    if dtype.itemsize < 4 and dtype.is_floating_point:  # one rounding, at the end
        query, key, value = (x.to(tangrad.float32) for x in (query, key, value))
    scores = (query * scale).matmul(key.transpose(-2, -1))
    mask = causal_mask(scores) if is_causal else attn_mask
    if mask is None:
        weights = scores.softmax(-1)
    else:
        scores = masked(scores, mask)
        hidden = (scores == -math.inf).all(-1, keepdim=True)
        weights = scores.masked_fill(hidden, 0).softmax(-1).masked_fill(hidden, 0)
    if dropout_p:
        weights = dropout(weights, dropout_p, True)
    return weights.matmul(value).to(dtype)
