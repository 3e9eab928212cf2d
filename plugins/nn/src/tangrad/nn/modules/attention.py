"""Attention with several heads."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.nn import functional as F
from tangrad.nn import init
from tangrad.nn.modules.linear import NonDynamicallyQuantizableLinear
from tangrad.nn.modules.module import Module
from tangrad.nn.parameter import Parameter

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    """Attend with several heads to projections of a query, a key and a value.

    Vaswani et al. 2017, arXiv:1706.03762.

    Args:
        embed_dim: number of features E of the query and the result.
        num_heads: number of heads, a divisor of E.
        dropout: probability that a weight of the attention is zeroed in training.
        bias: whether the projections have biases.
        add_bias_kv: append a learned key and value.
        add_zero_attn: append a key and value of zeros.
        kdim: number of features of the key; E by default.
        vdim: number of features of the value; E by default.
        batch_first: take and give (N, L, E) in place of (L, N, E).
        device: device of the parameters.
        dtype: dtype of the parameters.

    Raises:
        ValueError: a size is not positive.
        AssertionError: E is not divisible by the number of heads.

    Attributes:
        in_proj_weight: (3 E, E), drawn by Glorot's uniform; None when `kdim` or `vdim` differ, and
            then there are `q_proj_weight`, `k_proj_weight` and `v_proj_weight`.
        in_proj_bias: (3 E), zeros at first; None without bias.
        out_proj: the projection of the result.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                "embed_dim and num_heads must be greater than 0, got "
                f"embed_dim={embed_dim} and num_heads={num_heads} instead"
            )
        super().__init__()
        self.embed_dim = embed_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads
        if self.head_dim * num_heads != embed_dim:
            raise AssertionError(
                f"embed_dim must be divisible by num_heads, got {embed_dim} and {num_heads}"
            )
        made = {"device": device, "dtype": dtype}

        def parameter(*shape: int) -> Any:
            return Parameter(tangrad.empty(shape, **made))

        if self._qkv_same_embed_dim:
            self.in_proj_weight = parameter(3 * embed_dim, embed_dim)
            for name in ("q_proj_weight", "k_proj_weight", "v_proj_weight"):
                self.register_parameter(name, None)
        else:
            self.q_proj_weight = parameter(embed_dim, embed_dim)
            self.k_proj_weight = parameter(embed_dim, self.kdim)
            self.v_proj_weight = parameter(embed_dim, self.vdim)
            self.register_parameter("in_proj_weight", None)
        self.register_parameter("in_proj_bias", parameter(3 * embed_dim) if bias else None)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, **made)
        self.bias_k = self.bias_v = None
        if add_bias_kv:
            self.bias_k = parameter(1, 1, embed_dim)
            self.bias_v = parameter(1, 1, embed_dim)
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        """Draw all parameters but the weight of `out_proj` anew."""
        if self._qkv_same_embed_dim:
            init.xavier_uniform_(self.in_proj_weight)
        else:
            for weight in (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.constant_(self.in_proj_bias, 0.0)
            init.constant_(self.out_proj.bias, 0.0)
        for weight in (self.bias_k, self.bias_v):
            if weight is not None:
                init.xavier_normal_(weight)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({"_qkv_same_embed_dim": True, **state})

    def forward(
        self,
        query: Any,
        key: Any,
        value: Any,
        key_padding_mask: Any = None,
        need_weights: bool = True,
        attn_mask: Any = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Any, Any]:
        """Return the result, and the weights of the attention.

        Args:
            query: (L, N, E), (N, L, E) with `batch_first`, or (L, E).
            key: (S, N, kdim), (N, S, kdim) or (S, kdim).
            value: (S, N, vdim), (N, S, vdim) or (S, vdim).
            key_padding_mask: keys to hide (N, S) or (S): True hides; numbers are added.
            need_weights: return the weights, too; without them a fused kernel is used.
            attn_mask: pairs to hide (L, S) or (N * num_heads, L, S): as above.
            average_attn_weights: return the weights' mean over the heads.
            is_causal: a hint that `attn_mask` is the causal one.

        Returns:
            The result in the query's shape, and the weights (N, L, S), each head's (N, num_heads,
            L, S), or None.
        """
        turned = self.batch_first and query.dim() == 3
        bias = self.in_proj_bias
        if turned:
            query, key, value = (x.transpose(1, 0) for x in (query, key, value))
            if bias is not None and bias.dtype != query.dtype:
                bias = bias.to(query.dtype)  # of batches first PyTorch adds it in place
        separate: dict[str, Any] = {}
        if not self._qkv_same_embed_dim:
            separate = {
                "use_separate_proj_weight": True,
                "q_proj_weight": self.q_proj_weight,
                "k_proj_weight": self.k_proj_weight,
                "v_proj_weight": self.v_proj_weight,
            }
        result, weights = F.multi_head_attention_forward(
            query,
            key,
            value,
            self.embed_dim,
            self.num_heads,
            self.in_proj_weight,
            bias,
            self.bias_k,
            self.bias_v,
            self.add_zero_attn,
            self.dropout,
            self.out_proj.weight,
            self.out_proj.bias,
            training=self.training,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
            **separate,
        )
        return (result.transpose(1, 0) if turned else result), weights
