"""Attention and what belongs to it."""

from __future__ import annotations

import math
from typing import Any

import tangrad
from tangrad_onnx.limits import checked_count
from tangrad_onnx.operators.registry import broadcasting, operator
from tangrad_onnx.values import TENSOR_TYPES


def _heads(x: Any, count: int) -> Any:
    batch, length, width = x.shape
    return x.reshape(batch, length, count, width // count).transpose(1, 2)


@broadcasting()
def Attention(
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    past_key: Any = None,
    past_value: Any = None,
    lengths: Any = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    left_window_size: int = -1,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
) -> Any:
    given, packed = q.dtype, q.ndim == 3
    if packed:
        q = _heads(q, q_num_heads or 1)
        k, v = _heads(k, kv_num_heads or 1), _heads(v, kv_num_heads or 1)
    past = 0
    if past_key is not None:
        past = past_key.shape[2]
        k, v = tangrad.cat([past_key, k], 2), tangrad.cat([past_value, v], 2)
    present_key, present_value = k, v
    checked_count([*q.shape[:3], k.shape[2]])
    if q.shape[1] != k.shape[1]:
        shared = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(shared, 1), v.repeat_interleave(shared, 1)
    # Half precision is rounded at the end alone, as kernels that fuse the steps do.
    if q.element_size() == 2:
        q, k, v = q.float(), k.float(), v.float()
        mask = mask.float() if mask is not None and mask.is_floating_point() else mask
    root = math.sqrt(scale if scale is not None else 1 / math.sqrt(q.shape[-1]))
    products = (q * root) @ (k.transpose(-1, -2) * root)
    shown = {0: products}
    bias, allowed = _mask(q, k, mask, lengths, past, is_causal, left_window_size, right_window_size)
    scores = products
    if softcap > 0:
        scores = softcap * tangrad.tanh(scores / softcap)
    shown[1] = scores
    if bias is not None:
        scores = scores + bias
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -float("inf"))
    shown[2] = scores
    kind = TENSOR_TYPES[softmax_precision] if softmax_precision else scores.dtype
    weights = tangrad.softmax(scores.to(kind), -1)
    if allowed is not None or bias is not None:
        nothing = (scores == -float("inf")).all(-1, keepdim=True)
        weights = weights.masked_fill(nothing, 0)
    weights = weights.to(given).to(q.dtype)
    shown[3] = weights
    y = (weights @ v).to(given)
    if packed:
        y = y.transpose(1, 2).reshape(y.shape[0], y.shape[2], -1)
    return y, present_key, present_value, shown[qk_matmul_output_mode].to(given)


def _mask(
    q: Any, k: Any, mask: Any, lengths: Any, past: int, causal: int, left: int, right: int
) -> tuple[Any, Any]:
    """Return what is added to the scores, and where a query attends; None where nothing is."""
    rows, columns = q.shape[2], k.shape[2]
    bias = allowed = None
    if mask is not None:
        if mask.shape[-1] < columns:
            filler = False if mask.dtype is tangrad.bool else -float("inf")
            widths = [0, columns - mask.shape[-1]]
            mask = tangrad.nn.functional.pad(mask, widths, value=filler)
        if mask.dtype is tangrad.bool:
            allowed = mask
        else:
            bias = mask
    key = tangrad.arange(columns, device=q.device)
    offset: Any = past
    if lengths is not None:
        length = lengths.reshape(-1, 1, 1, 1)
        inside = key < length
        allowed = inside if allowed is None else allowed & inside
        if past == 0:
            offset = length - rows
    query = tangrad.arange(rows, device=q.device).reshape(-1, 1) + offset
    for wanted, limit in (
        (causal, lambda: key <= query),
        (left >= 0, lambda: key >= query - left),
        (right >= 0, lambda: key <= query + right),
    ):
        if wanted:
            allowed = limit() if allowed is None else allowed & limit()
    return bias, allowed


@broadcasting()
def RotaryEmbedding(
    x: Any,
    cos: Any,
    sin: Any,
    positions: Any = None,
    *,
    interleaved: int = 0,
    num_heads: int | None = None,
    rotary_embedding_dim: int = 0,
) -> Any:
    shape = x.shape
    rows = _heads(x, num_heads or 1) if x.ndim == 3 else x
    width = rotary_embedding_dim or rows.shape[-1]
    turned, rest = rows[..., :width], rows[..., width:]
    if positions is not None:
        cos, sin = cos[positions], sin[positions]
    cos, sin = (c[..., : width // 2].unsqueeze(1) for c in (cos, sin))
    if interleaved:
        a, b = turned[..., 0::2], turned[..., 1::2]
    else:
        a, b = turned[..., : width // 2], turned[..., width // 2 :]
    real, imaginary = cos * a - sin * b, sin * a + cos * b
    if interleaved:
        turned = tangrad.stack([real, imaginary], -1).flatten(-2)
    else:
        turned = tangrad.cat([real, imaginary], -1)
    y = tangrad.cat([turned, rest], -1)
    return y.transpose(1, 2).reshape(shape) if x.ndim == 3 else y


@operator()
def CausalConvWithState(
    x: Any, w: Any, b: Any = None, past: Any = None, *, activation: str = "none"
) -> Any:
    carried = w.shape[-1] - 1
    checked_count([*x.shape[:2], carried + x.shape[-1]], x.element_size())
    if past is None:
        past = tangrad.zeros(*x.shape[:2], carried, dtype=x.dtype, device=x.device)
    whole = tangrad.cat([past, x], -1)
    y = tangrad.nn.functional.conv1d(whole, w, b, groups=x.shape[1])
    if activation.lower() in {"silu", "swish"}:
        y = y * tangrad.sigmoid(y)
    return y, whole[..., whole.shape[-1] - carried :]


@broadcasting()
def LinearAttention(
    q: Any,
    k: Any,
    v: Any,
    state: Any = None,
    decay: Any = None,
    beta: Any = None,
    *,
    q_num_heads: int,
    kv_num_heads: int,
    chunk_size: int = 64,
    scale: float = 0.0,
    update_rule: str = "gated_delta",
) -> Any:
    kind, wide = q.dtype, tangrad.float64 if q.dtype is tangrad.float64 else tangrad.float32
    q = _heads(q, q_num_heads).to(wide)
    k, v = _heads(k, kv_num_heads).to(wide), _heads(v, kv_num_heads).to(wide)
    batch, _, steps, width = k.shape
    checked_count([batch, kv_num_heads, width, v.shape[-1]])
    factor = scale or 1 / math.sqrt(width)
    if state is None:
        s = tangrad.zeros(batch, kv_num_heads, width, v.shape[-1], dtype=wide, device=q.device)
    else:
        s = state.to(wide)
    g = None if decay is None else tangrad.exp(_heads(decay, kv_num_heads).to(wide))
    rate = None if beta is None else beta.to(wide).reshape(batch, steps, -1).transpose(1, 2)
    outputs = []
    for t in range(steps):
        key, value = k[:, :, t].unsqueeze(-1), v[:, :, t].unsqueeze(-2)
        if "gated" in update_rule and g is not None:
            s = s * g[:, :, t].unsqueeze(-1)
        if "delta" in update_rule:
            value = value - key.transpose(-1, -2) @ s
            if rate is not None:
                value = value * rate[:, :, t].reshape(batch, -1, 1, 1)
        s = s + key * value
        query = q[:, :, t].reshape(batch, kv_num_heads, -1, width)
        outputs.append((factor * query @ s).reshape(batch, q_num_heads, -1))
    y = tangrad.stack(outputs, 1).reshape(batch, steps, -1)
    return y.to(kind), s.to(kind if state is None else state.dtype)
