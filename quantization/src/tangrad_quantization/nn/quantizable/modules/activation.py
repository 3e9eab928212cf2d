"""Attention of linear layers that can be observed; the products inside stay float."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad import nn
from tangrad.nn import functional as F
from tangrad_quantization.layers.float_functional import FloatFunctional
from tangrad_quantization.layouts import layout
from tangrad_quantization.nn.quantizable.modules.rnn import joined
from tangrad_quantization.stubs import DeQuantStub, QuantStub


class MultiheadAttention(nn.MultiheadAttention):
    """Attention with several heads (Vaswani et al., 2017) whose layers can be observed.

    Arguments as of `nn.MultiheadAttention`.
    """

    _FLOAT_MODULE: Any = nn.MultiheadAttention

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
        made = {"device": device, "dtype": dtype}
        super().__init__(
            embed_dim,
            num_heads,
            dropout,
            bias,
            add_bias_kv,
            add_zero_attn,
            kdim,
            vdim,
            batch_first,
            **made,
        )
        self.linear_Q = nn.Linear(embed_dim, embed_dim, bias=bias, **made)
        self.linear_K = nn.Linear(self.kdim, embed_dim, bias=bias, **made)
        self.linear_V = nn.Linear(self.vdim, embed_dim, bias=bias, **made)
        self.out_proj: Any = nn.Linear(embed_dim, embed_dim, bias=bias, **made)
        self.q_scaling_product = FloatFunctional()
        self.quant_attn_output, self.quant_attn_output_weights = QuantStub(), QuantStub()
        self.dequant_q, self.dequant_k = DeQuantStub(), DeQuantStub()
        self.dequant_v = DeQuantStub()

    def _get_name(self) -> str:
        return "QuantizableMultiheadAttention"

    @classmethod
    def from_float(cls, other: Any) -> Any:
        """Return the prepared attention for a float one that has a configuration.

        Raises:
            AssertionError: it is of another type, or has none.
        """
        from tangrad_quantization.quantize import prepare

        if type(other) is not cls._FLOAT_MODULE:
            raise AssertionError(f"Expected type {cls._FLOAT_MODULE}, got {type(other)}")
        if not hasattr(other, "qconfig"):
            raise AssertionError("The float module must have 'qconfig'")
        made = cls(
            other.embed_dim,
            other.num_heads,
            other.dropout,
            other.in_proj_bias is not None,
            other.bias_k is not None,
            other.add_zero_attn,
            other.kdim,
            other.vdim,
            other.batch_first,
        )
        made.bias_k, made.bias_v, made.qconfig = other.bias_k, other.bias_v, other.qconfig
        made.out_proj.weight, made.out_proj.bias = other.out_proj.weight, other.out_proj.bias
        made._take_projections(other)
        return prepare(made.eval(), inplace=True)

    def _projections(self) -> tuple[Any, Any, Any]:
        return self.linear_Q, self.linear_K, self.linear_V

    def _take_projections(self, other: Any) -> None:
        if other._qkv_same_embed_dim:
            weights = other.in_proj_weight.detach().chunk(3, 0)
        else:
            weights = [other.q_proj_weight, other.k_proj_weight, other.v_proj_weight]
        whole = other.in_proj_bias
        biases = [None] * 3 if whole is None else whole.detach().chunk(3, 0)
        for layer, weight, bias in zip(self._projections(), weights, biases, strict=True):
            layer.weight = nn.Parameter(weight.detach().clone())
            layer.bias = None if bias is None else nn.Parameter(bias.clone())

    def dequantize(self) -> Any:
        """Return the float attention that a quantized one stands for."""
        made = self._FLOAT_MODULE(
            self.embed_dim,
            self.num_heads,
            self.dropout,
            self.linear_Q._weight_bias()[1] is not None,
            self.bias_k is not None,
            self.add_zero_attn,
            self.kdim,
            self.vdim,
            self.batch_first,
        )
        found = [layer._weight_bias() for layer in (*self._projections(), self.out_proj)]
        weights = [layout.dequantize(weight) for weight, _ in found]
        biases = [bias for _, bias in found]
        with tangrad.no_grad():
            for name in ("bias_k", "bias_v"):
                if getattr(self, name) is not None:
                    getattr(made, name).copy_(layout.dequantize(getattr(self, name)))
            made.out_proj.weight.copy_(weights[3])
            if biases[3] is not None:
                made.out_proj.bias.copy_(biases[3])
            if made._qkv_same_embed_dim:
                made.in_proj_weight.copy_(tangrad.cat(weights[:3]))
            else:
                for name, weight in zip("qkv", weights, strict=False):
                    getattr(made, f"{name}_proj_weight").copy_(weight)
            if made.in_proj_bias is not None:
                made.in_proj_bias.copy_(tangrad.cat(biases[:3]))
        return made

    @classmethod
    def from_observed(cls, other: Any) -> Any:
        """Refuse: the quantized attention is `nn.quantized.MultiheadAttention`.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            "nn.quantizable.MultiheadAttention is what is observed; "
            "nn.quantized.MultiheadAttention.from_observed converts it"
        )

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
        """Attend; arguments and results as of `nn.MultiheadAttention`.

        Raises:
            AssertionError: a size does not fit, or `is_causal` is asked for.
            RuntimeError: a mask has another shape.
        """
        if is_causal:
            raise AssertionError("causal mask not supported by AO MHA module: give attn_mask")
        if self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        length, batch, width = query.shape
        self._require_sizes(width, key, value)
        q, k, v = self.linear_Q(query), self.linear_K(key), self.linear_V(value)
        q = self.q_scaling_product.mul_scalar(q, float(self.head_dim) ** -0.5)
        added = 0
        if self.bias_k is not None:
            k, v = (
                joined([x, b.repeat(1, batch, 1)], 0)
                for x, b in ((k, self.bias_k), (v, self.bias_v))
            )
            added += 1
        q, k, v = (self._by_heads(x, batch) for x in (q, k, v))
        if self.add_zero_attn:
            k, v = (joined([x, self._zeros_like(x)], 1) for x in (k, v))
            added += 1
        q, k, v = self.dequant_q(q), self.dequant_k(k), self.dequant_v(v)
        scores = self._masked(q @ k.transpose(1, 2), attn_mask, key_padding_mask, batch, added)
        weights = F.dropout(F.softmax(scores, dim=-1), p=self.dropout, training=self.training)
        output = (weights @ v).transpose(0, 1).reshape(length, batch, self.embed_dim)
        if self.batch_first:
            output = output.transpose(0, 1)
        output = self.out_proj(self.quant_attn_output(output.contiguous()))
        weights = self.quant_attn_output_weights(weights)
        if not need_weights:
            return output, None
        weights = weights.reshape(batch, self.num_heads, length, -1)
        return output, weights.mean(dim=1) if average_attn_weights else weights

    def _require_sizes(self, width: int, key: Any, value: Any) -> None:
        if width != self.embed_dim:
            raise AssertionError(f"embed_dim mismatch: {self.embed_dim} != {width}")
        if tuple(key.shape[:2]) != tuple(value.shape[:2]):
            raise AssertionError(
                f"key and value size mismatch: key.size()={list(key.shape)}, "
                f"value.size()={list(value.shape)}"
            )

    def _by_heads(self, x: Any, batch: int) -> Any:
        """Return [batch * heads, length, size of a head]."""
        return x.contiguous().reshape(-1, batch * self.num_heads, self.head_dim).transpose(0, 1)

    def _zeros_like(self, x: Any) -> Any:
        zeros = tangrad.zeros(x.shape[0], 1, x.shape[2])
        if not layout.is_quantized(x):
            return zeros
        return tangrad.quantize_per_tensor(zeros, x.q_scale(), x.q_zero_point(), x.dtype)

    def _masked(self, scores: Any, mask: Any, padding: Any, batch: int, added: int) -> Any:
        length, source = scores.shape[1], scores.shape[2]
        if mask is not None:
            mask = mask[None] if mask.dim() == 2 else mask
            wanted = ([1, length, source - added], [len(scores), length, source - added])
            if list(mask.shape) not in wanted:
                raise RuntimeError(
                    f"attn_mask: expected shape {wanted[0][1:]} or {wanted[1]}, got "
                    f"{list(mask.shape)}"
                )
            mask = F.pad(mask, (0, added)) if added else mask
            scores = (
                scores + mask
                if mask.is_floating_point()
                else scores.masked_fill(mask.to(tangrad.bool), float("-inf"))
            )
        if padding is None:
            return scores
        if list(padding.shape) != [batch, source - added]:
            raise AssertionError(
                f"key_padding_mask: expected shape {[batch, source - added]}, got "
                f"{list(padding.shape)}"
            )
        padding = F.pad(padding.to(tangrad.bool), (0, added))[:, None, None]
        wide = scores.reshape(batch, self.num_heads, length, source)
        return wide.masked_fill(padding, float("-inf")).reshape(scores.shape)
