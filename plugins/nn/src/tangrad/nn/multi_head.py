"""Attention with several heads, as a function of its projections."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tangrad
from tangrad.plugin import find_op, overridable

__all__ = ["multi_head_attention_forward"]


def _check_shapes(
    query: Any, key: Any, value: Any, key_padding_mask: Any, attn_mask: Any, num_heads: int
) -> None:
    for name, x in (("query", query), ("key", key), ("value", value)):
        if not isinstance(x, tangrad.Tensor):
            raise TypeError(
                f"multi_head_attention_forward(): argument '{name}' must be Tensor, not "
                f"{type(x).__name__}"
            )
    if query.ndim not in (2, 3):
        raise AssertionError(
            "query should be unbatched 2D or batched 3D tensor but received "
            f"{query.ndim}-D query tensor"
        )
    kind = "batched (3-D)" if query.ndim == 3 else "unbatched (2-D)"
    if key.ndim != query.ndim or value.ndim != query.ndim:
        raise AssertionError(
            f"For {kind} `query`, expected `key` and `value` to be {query.ndim}-D but found "
            f"{key.ndim}-D and {value.ndim}-D tensors respectively"
        )
    for name, x, wanted in (
        ("key_padding_mask", key_padding_mask, (query.ndim - 1,)),
        ("attn_mask", attn_mask, (2, 3)),
    ):
        if x is not None and x.ndim not in wanted:
            *first, last = "`None`", *(f"{n}-D" for n in wanted)
            dims = f"{', '.join(first)} or {last}"
            raise AssertionError(
                f"For {kind} `query`, expected `{name}` to be {dims} but found {x.ndim}-D tensor "
                "instead"
            )
    if query.ndim == 2 and attn_mask is not None and attn_mask.ndim == 3:
        expected = (num_heads, query.shape[0], key.shape[0])
        if tuple(attn_mask.shape) != expected:
            raise AssertionError(
                f"Expected `attn_mask` shape to be {expected} but got {tuple(attn_mask.shape)}"
            )


def additive_mask(mask: Any, name: str, dtype: Any) -> Any:
    """Turn a mask of what is hidden into numbers to add to the scores."""
    if mask is None or mask.dtype.is_floating_point:
        return mask
    if mask.dtype is not tangrad.bool:
        raise AssertionError(
            f"only bool and floating types of {name} are supported, got {mask.dtype}"
        )
    return tangrad.zeros_like(mask, dtype=dtype).masked_fill(mask, -math.inf)


def _check_attention_mask(mask: Any, heads: int, rows: int, columns: int) -> Any:
    """Bring a mask (L, S) or (N num_heads, L, S) to three dimensions.

    Raises:
        RuntimeError: if it has another shape.
    """
    wanted = (rows, columns) if mask.ndim == 2 else (heads, rows, columns)
    if tuple(mask.shape) != wanted:
        raise RuntimeError(
            f"The shape of the {mask.ndim}D attn_mask is {tuple(mask.shape)}, but should be "
            f"{wanted}."
        )
    return mask.unsqueeze(0) if mask.ndim == 2 else mask


def _check_sizes(
    query: Any, key: Any, value: Any, embed_dim: int, num_heads: int, separate: bool
) -> None:
    if query.shape[2] != embed_dim:
        raise AssertionError(
            f"was expecting embedding dimension of {embed_dim}, but got {query.shape[2]}"
        )
    if embed_dim % num_heads:
        raise AssertionError(f"embed_dim {embed_dim} not divisible by num_heads {num_heads}")
    if separate and key.shape[:2] != value.shape[:2]:
        raise AssertionError(
            f"key's sequence and batch dims {tuple(key.shape[:2])} do not match value's "
            f"{tuple(value.shape[:2])}"
        )
    if not separate and key.shape != value.shape:
        raise AssertionError(
            f"key shape {tuple(key.shape)} does not match value shape {tuple(value.shape)}"
        )


def _projected(
    inputs: Sequence[Any], packed: Any, bias: Any, separate: bool, weights: Sequence[Any]
) -> Sequence[Any]:
    """Apply the projections of query, key and value, packed in one weight or each its own."""
    linear = find_op("linear")
    if not separate:
        if packed is None:
            raise AssertionError("use_separate_proj_weight is False but in_proj_weight is None")
        query, key, value = inputs
        if query is key and key is value:
            together: Sequence[Any] = linear(query, packed, bias).chunk(3, -1)
            return together
        weights = packed.chunk(3)
    for name, weight in zip("qkv", weights, strict=True):
        if weight is None:
            raise AssertionError(f"use_separate_proj_weight is True but {name}_proj_weight is None")
    biases = (None, None, None) if bias is None else bias.chunk(3)
    return [linear(x, w, b) for x, w, b in zip(inputs, weights, biases, strict=True)]


def _by_head(x: Any, heads: int, size: int) -> Any:
    """Bring (L, N, E) to (N num_heads, L, E / num_heads)."""
    return x.reshape((x.shape[0], heads, size)).transpose(0, 1)


def _static(name: str, given: Any, heads: int, size: int) -> Any:
    for dim, wanted in ((0, heads), (2, size)):
        if given.shape[dim] != wanted:
            raise AssertionError(
                f"expecting {name}.size({dim}) of {wanted}, but got {given.shape[dim]}"
            )
    return given


def _one_more_column(mask: Any) -> Any:
    """Let one more key be seen by all."""
    if mask is None:
        return None
    return tangrad.cat([mask, mask.new_zeros((*mask.shape[:-1], 1))], -1)


@overridable
def multi_head_attention_forward(
    query: Any,
    key: Any,
    value: Any,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Any,
    in_proj_bias: Any,
    bias_k: Any,
    bias_v: Any,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Any,
    out_proj_bias: Any,
    training: bool = True,
    key_padding_mask: Any = None,
    need_weights: bool = True,
    attn_mask: Any = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Any = None,
    k_proj_weight: Any = None,
    v_proj_weight: Any = None,
    static_k: Any = None,
    static_v: Any = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Any, Any]:
    """Project query, key and value, attend with several heads, and project the result.

    Vaswani et al.: "Attention is all you need", 2017.

    Args:
        query: (L, N, E) or (L, E).
        key: (S, N, E) or (S, E); with separate weights its last size may differ.
        value: (S, N, E) or (S, E); with separate weights its last size may differ.
        embed_dim_to_check: E.
        num_heads: number of heads, a divisor of E.
        in_proj_weight: weights of the projections of query, key and value (3 E, E).
        in_proj_bias: their biases (3 E).
        bias_k: one more key (1, 1, E).
        bias_v: one more value (1, 1, E).
        add_zero_attn: add a key and a value of zeros.
        dropout_p: probability that a weight of the attention is dropped in training.
        out_proj_weight: weight of the projection of the result.
        out_proj_bias: its bias.
        training: whether to apply dropout.
        key_padding_mask: keys to hide (N, S) or (S): True hides; numbers are added to the scores.
        need_weights: return the weights of the attention, too.
        attn_mask: pairs to hide (L, S) or (N num_heads, L, S): as above.
        use_separate_proj_weight: whether the next three are used, and not `in_proj_weight`.
        q_proj_weight: weight of the query's projection.
        k_proj_weight: weight of the key's projection.
        v_proj_weight: weight of the value's projection.
        static_k: (N num_heads, S, E / num_heads), used instead of the projected key.
        static_v: (N num_heads, S, E / num_heads), used instead of the projected value.
        average_attn_weights: return the weights' mean over the heads.
        is_causal: a hint that `attn_mask` is the causal one.

    Returns:
        The result in the query's shape, and the weights of the attention (N, L, S) or (L, S), of
        each head (N, num_heads, L, S) or (num_heads, L, S), or None.

    Raises:
        AssertionError: if sizes do not fit.
        RuntimeError: if the attention mask is of a wrong shape, or missing with `is_causal`.
    """
    _check_shapes(query, key, value, key_padding_mask, attn_mask, num_heads)
    if is_causal and attn_mask is None:
        raise RuntimeError(
            "Need attn_mask if specifying the is_causal hint. You may use the Transformer module "
            "method `generate_square_subsequent_mask` to create this mask."
        )
    batched = query.ndim == 3
    if not batched:
        same = query is key, key is value
        query = query.unsqueeze(1)
        key = query if same[0] else key.unsqueeze(1)
        value = key if same[1] else value.unsqueeze(1)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    _check_sizes(query, key, value, embed_dim_to_check, num_heads, use_separate_proj_weight)
    rows, batch, embed = query.shape
    heads, size = batch * num_heads, embed // num_heads

    padding = additive_mask(key_padding_mask, "key_padding_mask", query.dtype)
    hint = is_causal and padding is None and not need_weights
    mask = None if hint else additive_mask(attn_mask, "attn_mask", query.dtype)
    if mask is not None:
        mask = _check_attention_mask(mask, heads, rows, key.shape[0])

    separate = (q_proj_weight, k_proj_weight, v_proj_weight)
    q, k, v = _projected(
        (query, key, value), in_proj_weight, in_proj_bias, use_separate_proj_weight, separate
    )
    if (bias_k is None) != (bias_v is None):
        raise AssertionError("bias_k and bias_v must both be set or both be None")
    if bias_k is not None:
        for name, static in (("key", static_k), ("value", static_v)):
            if static is not None:
                raise AssertionError(f"bias cannot be added to static {name}.")
        k = tangrad.cat([k, bias_k.expand((1, batch, embed))])
        v = tangrad.cat([v, bias_v.expand((1, batch, embed))])
        mask, padding = _one_more_column(mask), _one_more_column(padding)
    q = _by_head(q, heads, size)
    k = _by_head(k, heads, size) if static_k is None else _static("static_k", static_k, heads, size)
    v = _by_head(v, heads, size) if static_v is None else _static("static_v", static_v, heads, size)
    if add_zero_attn:
        zeros = k.new_zeros((heads, 1, size))
        k, v = tangrad.cat([k, zeros], 1), tangrad.cat([v, zeros], 1)
        mask, padding = _one_more_column(mask), _one_more_column(padding)
    mask = _merged(mask, padding, batch, num_heads, k.shape[1])
    dropout_p = dropout_p if training else 0.0

    weights = None
    if need_weights:
        weights, mixed = _attended(q, k, v, mask, dropout_p)
        weights = weights.reshape((batch, num_heads, rows, k.shape[1]))
        weights = weights.mean(1) if average_attn_weights else weights
        weights = weights if batched else weights.squeeze(0)
    else:
        if mask is not None:
            parts = 1 if mask.shape[0] == 1 else batch
            mask = mask.reshape((parts, -1, *mask.shape[1:]))
        q, k, v = (x.reshape((batch, num_heads, x.shape[1], size)) for x in (q, k, v))
        attend = find_op("scaled_dot_product_attention")
        mixed = attend(q, k, v, mask, dropout_p, hint).reshape((heads, rows, size))
    mixed = mixed.transpose(0, 1).reshape((rows * batch, embed))
    result = find_op("linear")(mixed, out_proj_weight, out_proj_bias)
    result = result.reshape((rows, batch, result.shape[1]))
    return (result if batched else result.squeeze(1)), weights


def _merged(mask: Any, padding: Any, batch: int, num_heads: int, columns: int) -> Any:
    """Add the mask of keys to that of pairs."""
    if padding is None:
        return mask
    for dim, wanted in enumerate((batch, columns)):
        if padding.shape[dim] != wanted:
            raise AssertionError(
                f"Expected key_padded_mask.shape[{dim}] to be {wanted}, but got "
                f"{padding.shape[dim]}"
            )
    wide = padding.reshape((batch, 1, 1, columns)).expand((batch, num_heads, 1, columns))
    wide = wide.reshape((batch * num_heads, 1, columns))
    return wide if mask is None else mask + wide


def _attended(q: Any, k: Any, v: Any, mask: Any, dropout_p: float) -> tuple[Any, Any]:
    """Return the weights of the attention, and the values mixed by them."""
    scores = (q * math.sqrt(1 / q.shape[2])).matmul(k.transpose(-2, -1))
    weights = (scores if mask is None else scores + mask).softmax(-1)
    if dropout_p > 0:
        weights = find_op("dropout")(weights, dropout_p)
    return weights, weights.matmul(v)
