"""Define attention as one op with its gradient, for kernels that never form its weights."""

from __future__ import annotations

import math
from typing import Any

import tangrad
from tangrad.plugin import op


def _kept(x: Any) -> Any:
    """Return the dtype that sums and logarithms are kept in: halves have float32 ones."""
    return tangrad.float32 if x.dtype.itemsize < 4 else x.dtype


def masked(scores: Any, mask: Any) -> Any:
    """Hide scores where a bool mask is false, or add a mask of numbers."""
    if mask.dtype.name == "bool":
        return scores.masked_fill(mask.logical_not(), -math.inf)
    return scores + mask.to(scores.dtype)


def causal_mask(scores: Any) -> Any:
    """Return where a query's place is not before the key's."""
    rows, columns = scores.shape[-2], scores.shape[-1]
    return tangrad.ones((rows, columns), dtype=tangrad.bool, device=scores.device).tril()


def _across(x: Any) -> Any:
    return x.transpose(-2, -1)


def _scores(query: Any, key: Any, mask: Any, is_causal: bool, scale: float) -> Any:
    kept = _kept(query)
    scores = (query.to(kept) * scale).matmul(_across(key.to(kept)))
    scores = scores if mask is None else masked(scores, mask)
    return masked(scores, causal_mask(scores)) if is_causal else scores


def _weights(scores: Any, lse: Any) -> Any:
    """Give the softmax of scores, zero where they are hidden, from the logarithms of its sums."""
    return (scores - lse.unsqueeze(-1)).exp().masked_fill(scores == -math.inf, 0)


def _attention_code(
    query: Any, key: Any, value: Any, mask: Any, is_causal: bool, scale: float
) -> tuple[Any, Any]:
    scores = _scores(query, key, mask, is_causal, scale)
    lse = scores.new_full(scores.shape[:-1], -math.inf)
    if scores.shape[-1]:
        lse = scores.logsumexp(-1)
    weights = scores.softmax(-1).masked_fill(lse.unsqueeze(-1) == -math.inf, 0)
    return weights.matmul(value.to(scores.dtype)).to(query.dtype), lse


def _check_shapes(query: Any, key: Any, value: Any, mask: Any) -> None:
    lead = tuple(query.shape[:-2])
    named: list[tuple[str, Any]] = [("key", key), ("value", value)]
    for name, x in named:
        if len(x.shape) < 2 or tuple(x.shape[:-2]) != lead or x.dtype != query.dtype:
            raise RuntimeError(
                f"_attention: {name} must be of shape ({', '.join(map(str, (*lead, 'S', 'E')))}) "
                f"and {query.dtype}, got {list(x.shape)} and {x.dtype}"
            )
    if not query.dtype.is_floating_point:
        raise NotImplementedError(f'"_attention" not implemented for {query.dtype}')
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise RuntimeError(
            "_attention: query and key must agree in the last size, key and value in the one "
            f"before it, got {list(query.shape)}, {list(key.shape)} and {list(value.shape)}"
        )
    full = (*lead, query.shape[-2], key.shape[-2])
    if mask is not None and tuple(mask.shape) != full:
        raise RuntimeError(
            f"_attention: mask must be of shape {list(full)}, got {list(mask.shape)}"
        )


def _attention_vjp(
    grads: Any,
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    is_causal: bool,
    scale: float,
    result0: Any,
    result1: Any,
    needs: Any,
) -> tuple[Any, ...]:
    """Differentiate (result, lse).

    The part of the result is an op of its own, but for the mask's. By scores S, the logarithms of
    sums give the weights P: dS = P g1.
    """
    g0, g1 = grads
    by_query = by_key = by_value = by_scores = None
    if g0 is not None:
        by_query, by_key, by_value = _attention_backward(
            g0, query, key, value, mask, result0, result1, is_causal, scale
        )
    if g1 is not None or needs[3]:
        weights = _weights(_scores(query, key, mask, is_causal, scale), result1)
        if g1 is not None:
            by_scores = weights * g1.unsqueeze(-1)
            first = by_scores.matmul(key.to(weights.dtype)) * scale
            second = _across(by_scores).matmul(query.to(weights.dtype)) * scale
            by_query = first if by_query is None else by_query + first
            by_key = second if by_key is None else by_key + second
        if g0 is not None and needs[3]:
            g = g0.to(weights.dtype)
            owed = (g * result0).sum(-1, keepdim=True)
            part = weights * (g.matmul(_across(value.to(weights.dtype))) - owed)
            by_scores = part if by_scores is None else by_scores + part
    return (
        None if by_query is None else by_query.to(query.dtype),
        None if by_key is None else by_key.to(key.dtype),
        by_value,
        by_scores.to(mask.dtype) if needs[3] and by_scores is not None else None,
    )


def _scores_tangent(
    query: Any, key: Any, scale: float, query_t: Any, key_t: Any, mask_t: Any, like: Any
) -> Any:
    tangent = tangrad.zeros_like(like)
    if query_t is not None:
        tangent = tangent + (query_t.to(like.dtype) * scale).matmul(_across(key.to(like.dtype)))
    if key_t is not None:
        tangent = tangent + (query.to(like.dtype) * scale).matmul(_across(key_t.to(like.dtype)))
    return tangent if mask_t is None else tangent + mask_t.to(like.dtype)


def _attention_jvp(
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    is_causal: bool,
    scale: float,
    query_t: Any,
    key_t: Any,
    value_t: Any,
    mask_t: Any,
    result0: Any,
    result1: Any,
) -> tuple[Any, Any]:
    weights = _weights(_scores(query, key, mask, is_causal, scale), result1)
    scores_t = _scores_tangent(query, key, scale, query_t, key_t, mask_t, weights)
    lse_t = (weights * scores_t).sum(-1)
    weights_t = weights * (scores_t - lse_t.unsqueeze(-1))
    tangent = weights_t.matmul(value.to(weights.dtype))
    if value_t is not None:
        tangent = tangent + weights.matmul(value_t.to(weights.dtype))
    return tangent.to(result0.dtype), lse_t


def _front(size: int, tensors: Any, dims: Any) -> list[Any]:
    """Move the dimension of a vmap to the front; tensors without one are expanded."""
    return [
        x if x is None else (x.expand((size, *x.shape)) if dim is None else x.movedim(dim, 0))
        for x, dim in zip(tensors, dims, strict=True)
    ]


def _attention_batch(
    size: int,
    dims: Any,
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    is_causal: bool,
    scale: float,
) -> Any:
    tensors = _front(size, (query, key, value, mask), dims[:4])
    return attention(*tensors, is_causal, scale), (0, 0)


def _backward_code(
    grad_out: Any,
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    output: Any,
    lse: Any,
    is_causal: bool,
    scale: float,
) -> tuple[Any, Any, Any]:
    weights = _weights(_scores(query, key, mask, is_causal, scale), lse)
    kept = weights.dtype
    g = grad_out.to(kept)
    owed = (g * output.to(kept)).sum(-1, keepdim=True)
    by_scores = weights * (g.matmul(_across(value.to(kept))) - owed) * scale
    return (
        by_scores.matmul(key.to(kept)).to(query.dtype),
        _across(by_scores).matmul(query.to(kept)).to(key.dtype),
        _across(weights).matmul(g).to(value.dtype),
    )


def _check_backward(
    grad_out: Any, query: Any, key: Any, value: Any, mask: Any, output: Any, lse: Any
) -> None:
    _check_shapes(query, key, value, mask)
    full = (*query.shape[:-1], value.shape[-1])
    named: list[tuple[str, Any]] = [("grad_out", grad_out), ("output", output)]
    for name, x in named:
        if tuple(x.shape) != tuple(full) or x.dtype != query.dtype:
            raise RuntimeError(
                f"_attention_backward: {name} must be of shape {list(full)} and {query.dtype}, "
                f"got {list(x.shape)} and {x.dtype}"
            )
    if tuple(lse.shape) != tuple(query.shape[:-1]) or lse.dtype != _kept(query):
        raise RuntimeError(
            f"_attention_backward: lse must be of shape {list(query.shape[:-1])} and "
            f"{_kept(query)}, got {list(lse.shape)} and {lse.dtype}"
        )


def _backward_vjp(
    grads: Any,
    grad_out: Any,
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    output: Any,
    lse: Any,
    is_causal: bool,
    scale: float,
    needs: Any,
) -> tuple[Any, ...]:
    """Differentiate dQ = s dS K, dK = s dS' Q and dV = P' g.

    Here P = exp(S - lse), dP = g V', D = rows of g output added up and dS = P (dP - D). With
    cotangents a, b, c and T = s (a K' + Q b'), the cotangents of P, dP and D are T (dP - D) + g c',
    P T and -rows of P T added up; that of S is P times P's.
    """
    a, b, c = grads
    kept = lse.dtype
    g, q, k, v = (x.to(kept) for x in (grad_out, query, key, value))
    weights = _weights(_scores(query, key, mask, is_causal, scale), lse)
    slope = g.matmul(_across(v)) - (g * output.to(kept)).sum(-1, keepdim=True)
    by_scores = weights * slope
    turned = tangrad.zeros_like(weights)
    by_g, by_q, by_k = (tangrad.zeros_like(x) for x in (g, q, k))
    if a is not None:
        a = a.to(kept)
        turned = turned + a.matmul(_across(k)) * scale
        by_k = by_k + _across(by_scores).matmul(a) * scale
    if b is not None:
        b = b.to(kept)
        turned = turned + q.matmul(_across(b)) * scale
        by_q = by_q + by_scores.matmul(b) * scale
    by_weights = turned * slope
    if c is not None:
        c = c.to(kept)
        by_weights = by_weights + g.matmul(_across(c))
        by_g = by_g + weights.matmul(c)
    by_slope = weights * turned
    owed = -by_slope.sum(-1, keepdim=True)
    by_s = weights * by_weights
    found = (
        by_g + by_slope.matmul(v) + owed * output,
        by_q + by_s.matmul(k) * scale,
        by_k + _across(by_s).matmul(q) * scale,
        _across(by_slope).matmul(g),
        by_s if needs[4] else None,
        owed * g,
        -by_s.sum(-1),
    )
    places = (grad_out, query, key, value, mask, output, lse)
    return tuple(
        None if x is None else x.to(like.dtype) for x, like in zip(found, places, strict=True)
    )


def _backward_jvp(
    grad_out: Any,
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    output: Any,
    lse: Any,
    is_causal: bool,
    scale: float,
    grad_out_t: Any,
    query_t: Any,
    key_t: Any,
    value_t: Any,
    mask_t: Any,
    output_t: Any,
    lse_t: Any,
) -> tuple[Any, Any, Any]:
    kept = lse.dtype

    def given(tangent: Any, like: Any) -> Any:
        return tangrad.zeros_like(like, dtype=kept) if tangent is None else tangent.to(kept)

    g, q, k, v, y = (x.to(kept) for x in (grad_out, query, key, value, output))
    pairs = ((grad_out_t, g), (query_t, q), (key_t, k), (value_t, v), (output_t, y), (lse_t, lse))
    g_t, q_t, k_t, v_t, y_t, l_t = (given(tangent, like) for tangent, like in pairs)
    weights = _weights(_scores(query, key, mask, is_causal, scale), lse)
    scores_t = _scores_tangent(query, key, scale, query_t, key_t, mask_t, weights)
    weights_t = weights * (scores_t - l_t.unsqueeze(-1))
    slope = g.matmul(_across(v)) - (g * y).sum(-1, keepdim=True)
    slope_t = g_t.matmul(_across(v)) + g.matmul(_across(v_t))
    slope_t = slope_t - (g_t * y + g * y_t).sum(-1, keepdim=True)
    s, s_t = weights * slope * scale, (weights_t * slope + weights * slope_t) * scale
    return (
        (s_t.matmul(k) + s.matmul(k_t)).to(query.dtype),
        (_across(s_t).matmul(q) + _across(s).matmul(q_t)).to(key.dtype),
        (_across(weights_t).matmul(g) + _across(weights).matmul(g_t)).to(value.dtype),
    )


def _backward_batch(
    size: int,
    dims: Any,
    grad_out: Any,
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    output: Any,
    lse: Any,
    is_causal: bool,
    scale: float,
) -> Any:
    tensors = _front(size, (grad_out, query, key, value, mask, output, lse), dims[:7])
    return _attention_backward(*tensors, is_causal, scale), (0, 0, 0)


def _torch_scores(torch: Any, q: Any, k: Any, mask: Any, is_causal: bool, scale: float) -> Any:
    scores = (q * scale) @ k.mT
    if is_causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if mask is None:
        return scores
    if mask.dtype == torch.bool:
        return scores.masked_fill(~mask, -math.inf)
    return scores + mask


def _torch_wide(torch: Any, *tensors: Any) -> list[Any]:
    if not tensors[0].is_floating_point():
        torch.nn.functional.layer_norm(tensors[0], tensors[0].shape[-1:])  # refuses
        raise RuntimeError("not implemented for this dtype")
    half = tensors[0].dtype.itemsize < 4
    return [x.float() if half and x is not None and x.dtype != torch.bool else x for x in tensors]


def _attention_of(
    torch: Any, q: Any, k: Any, v: Any, mask: Any, is_causal: bool, scale: float
) -> Any:
    wide = _torch_wide(torch, q, k, v, mask)
    scores = _torch_scores(torch, wide[0], wide[1], wide[3], is_causal, scale)
    lse = scores.logsumexp(-1)
    weights = (scores - lse.unsqueeze(-1)).exp().masked_fill(scores == -math.inf, 0)
    return (weights @ wide[2]).to(q.dtype), lse


def _backward_of(
    torch: Any,
    g: Any,
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    output: Any,
    lse: Any,
    is_causal: bool,
    scale: float,
) -> Any:
    dtype = q.dtype
    g, q, k, v, mask, output = _torch_wide(torch, g, q, k, v, mask, output)
    scores = _torch_scores(torch, q, k, mask, is_causal, scale)
    weights = (scores - lse.to(scores.dtype).unsqueeze(-1)).exp()
    weights = weights.masked_fill(scores == -math.inf, 0)
    by_scores = weights * (g @ v.mT - (g * output).sum(-1, keepdim=True)) * scale
    return (by_scores @ k).to(dtype), (by_scores.mT @ q).to(dtype), (weights.mT @ g).to(dtype)


def _backward_samples(s: Any) -> list[Any]:
    if not s.is_floating or s.dtype in ("float16", "bfloat16"):
        return []
    return [
        s(
            s.tensor(2, 3, 4), s.tensor(2, 3, 4), s.tensor(2, 5, 4, strided=True),
            s.tensor(2, 5, 4), None, s.tensor(2, 3, 4), s.tensor(2, 3, low=9, high=15), True, 0.5,
        ),
        s(
            s.tensor(3, 2), s.tensor(3, 4), s.tensor(2, 4), s.tensor(2, 2), s.tensor(3, 2),
            s.tensor(3, 2), s.tensor(3, low=9, high=15), False, 0.3,
        ),
    ]  # fmt: skip


_attention_backward = op(
    "_attention_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor? mask,"
    " Tensor output, Tensor lse, bool is_causal, float scale)"
    " -> (Tensor grad_query, Tensor grad_key, Tensor grad_value)",
    dtypes="floating",
    check=_check_backward,
    shape=lambda query, key, value: [query.shape, key.shape, value.shape],
    dtype=lambda query: [query.dtype] * 3,
    decompose=_backward_code,
    vjp={
        ("grad_out", "query", "key", "value", "mask", "output", "lse"): _backward_vjp,
    },
    jvp=_backward_jvp,
    batch=_backward_batch,
    function=False,
    method=False,
    node="scaled_dot_product_flash_attention_for_cpu_backward",
    samples=_backward_samples,
    oracle=_backward_of,
    errors=lambda s: [
        (
            s(*[s.tensor(2, 3)] * 4, None, s.tensor(2, 3), s.tensor(3), False, 1.0),
            RuntimeError,
            "lse must be of shape",
        )
    ],
    doc="Compute the gradients of attention by query, key and value.",
)

attention = op(
    "_attention(Tensor query, Tensor key, Tensor value, Tensor? mask, bool is_causal, float scale)"
    " -> (Tensor result, Tensor lse)",
    dtypes="floating",
    check=_check_shapes,
    shape=lambda query, value: [(*query.shape[:-1], value.shape[-1]), query.shape[:-1]],
    dtype=lambda query: [query.dtype, _kept(query)],
    decompose=_attention_code,
    vjp={("query", "key", "value", "mask"): _attention_vjp},
    jvp=_attention_jvp,
    batch=_attention_batch,
    function=False,
    method=False,
    node="scaled_dot_product_flash_attention_for_cpu",
    samples=lambda s: [
        s(s.tensor(2, 3, 4), s.tensor(2, 5, 4), s.tensor(2, 5, 2), None, False, 0.5),
        s(s.tensor(3, 4, strided=True), s.tensor(4, 4), s.tensor(4, 3), None, True, 0.3),
        s(s.tensor(2, 3), s.tensor(4, 3), s.tensor(4, 2), s.tensor(2, 4), False, 1.0),
    ],
    oracle=_attention_of,
    errors=lambda s: [
        (
            s(s.tensor(2, 3), s.tensor(2, 4), s.tensor(2, 4), None, False, 1.0),
            RuntimeError,
            "must agree",
        ),
        (
            s(s.tensor(2, 2), s.tensor(2, 2), s.tensor(2, 2), s.tensor(2), False, 1.0),
            RuntimeError,
            "mask must be of shape",
        ),
    ],
    doc="""Mix values by the softmax of the similarity of queries and keys.

    Give also the logarithm of each softmax's sum, -inf for a query that sees no key.
    """,
)
