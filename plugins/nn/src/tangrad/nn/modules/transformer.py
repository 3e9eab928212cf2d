"""The Transformer: stacks of layers of attention (Vaswani et al. 2017, arXiv:1706.03762)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import tangrad
from tangrad import Tensor
from tangrad.nn import functional as F
from tangrad.nn import init
from tangrad.nn.modules.activation import GELU, ReLU
from tangrad.nn.modules.attention import MultiheadAttention
from tangrad.nn.modules.container import ModuleList
from tangrad.nn.modules.dropout import Dropout
from tangrad.nn.modules.linear import Linear
from tangrad.nn.modules.module import Module
from tangrad.nn.modules.normalization import LayerNorm
from tangrad.nn.multi_head import additive_mask
from tangrad.plugin import current

__all__ = [
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
]


def _get_clones(module: Any, count: int) -> ModuleList:
    return ModuleList([copy.deepcopy(module) for _ in range(count)])


def _get_activation_fn(activation: Any) -> Callable[[Any], Any]:
    if not isinstance(activation, str):
        return activation
    if activation == "relu":
        return F.relu
    if activation == "gelu":
        return F.gelu
    raise RuntimeError(f"activation should be relu/gelu, not {activation}")


def _is_causal(mask: Any, is_causal: bool | None, size: int | None) -> bool:
    """Return whether a mask is the causal one; a hint decides."""
    if is_causal is not None:
        return is_causal
    if mask is None or size is None or tuple(mask.shape) != (size, size):
        return False
    causal = Transformer.generate_square_subsequent_mask(size, mask.device, mask.dtype)
    return bool((mask == causal).all())


def _length(x: Any, batch_first: bool) -> int | None:
    if x.dim() == 2:
        return int(x.shape[0])
    return int(x.shape[1 if batch_first else 0])


class TransformerEncoderLayer(Module):
    """Attention of a sequence to itself, then two affine layers on each of its elements.

    Args:
        d_model: number of features E.
        nhead: number of heads.
        dim_feedforward: number of features between the affine layers.
        dropout: probability of dropout.
        activation: between the affine layers: "relu", "gelu" or a function.
        layer_norm_eps: added to the variance in the normalizations.
        batch_first: take and give (N, S, E) in place of (S, N, E).
        norm_first: normalize before attention and affine layers, not after.
        bias: whether affine layers and normalizations have biases.
        device: device of the parameters.
        dtype: dtype of the parameters.

    Raises:
        RuntimeError: the activation is unknown.
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Any = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        made = {"bias": bias, "device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(
            d_model, nhead, dropout=dropout, batch_first=batch_first, **made
        )
        self.linear1 = Linear(d_model, dim_feedforward, **made)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, **made)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, **made)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, **made)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.activation = _get_activation_fn(activation)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("activation", F.relu)

    def forward(
        self,
        src: Tensor,
        src_mask: Any = None,
        src_key_padding_mask: Any = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Return the sequence after the layer.

        Args:
            src: (S, N, E), (N, S, E) with `batch_first`, or (S, E).
            src_mask: pairs to hide (S, S) or (N * nhead, S, S): True hides; numbers are added.
            src_key_padding_mask: elements to hide (N, S) or (S).
            is_causal: a hint that `src_mask` is the causal one.
        """

        def attend(x: Any) -> Any:
            found, _ = self.self_attn(
                x,
                x,
                x,
                attn_mask=src_mask,
                key_padding_mask=src_key_padding_mask,
                need_weights=False,
                is_causal=is_causal,
            )
            return self.dropout1(found)

        if self.norm_first:
            src = src + attend(self.norm1(src))
            return src + self._feed_forward(self.norm2(src))
        src = self.norm1(src + attend(src))
        return self.norm2(src + self._feed_forward(src))

    def _feed_forward(self, x: Any) -> Any:
        return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))


class TransformerDecoderLayer(Module):
    """Attention of a sequence to itself, then to another, then two affine layers.

    Args:
        d_model: number of features E.
        nhead: number of heads.
        dim_feedforward: number of features between the affine layers.
        dropout: probability of dropout.
        activation: between the affine layers: "relu", "gelu" or a function.
        layer_norm_eps: added to the variance in the normalizations.
        batch_first: take and give (N, T, E) in place of (T, N, E).
        norm_first: normalize before attention and affine layers, not after.
        bias: whether affine layers and normalizations have biases.
        device: device of the parameters.
        dtype: dtype of the parameters.

    Raises:
        RuntimeError: the activation is unknown.
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Any = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        made = {"bias": bias, "device": device, "dtype": dtype}
        attention = {"dropout": dropout, "batch_first": batch_first, **made}
        self.self_attn = MultiheadAttention(d_model, nhead, **attention)
        self.multihead_attn = MultiheadAttention(d_model, nhead, **attention)
        self.linear1 = Linear(d_model, dim_feedforward, **made)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, **made)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, **made)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, **made)
        self.norm3 = LayerNorm(d_model, eps=layer_norm_eps, **made)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.dropout3 = Dropout(dropout)
        self.activation = _get_activation_fn(activation)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("activation", F.relu)

    def forward(
        self,
        tgt: Tensor,
        memory: Any,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Return the sequence after the layer.

        Args:
            tgt: (T, N, E), (N, T, E) with `batch_first`, or (T, E).
            memory: the other sequence, of length S.
            tgt_mask: pairs to hide (T, T) or (N * nhead, T, T): True hides; numbers are added.
            memory_mask: pairs to hide (T, S) or (N * nhead, T, S).
            tgt_key_padding_mask: elements to hide (N, T) or (T).
            memory_key_padding_mask: elements of the other to hide (N, S) or (S).
            tgt_is_causal: a hint that `tgt_mask` is the causal one.
            memory_is_causal: a hint that `memory_mask` is the causal one.
        """

        def attend_itself(x: Any) -> Any:
            found, _ = self.self_attn(
                x,
                x,
                x,
                attn_mask=tgt_mask,
                key_padding_mask=tgt_key_padding_mask,
                is_causal=tgt_is_causal,
                need_weights=False,
            )
            return self.dropout1(found)

        def attend_memory(x: Any) -> Any:
            found, _ = self.multihead_attn(
                x,
                memory,
                memory,
                attn_mask=memory_mask,
                key_padding_mask=memory_key_padding_mask,
                is_causal=memory_is_causal,
                need_weights=False,
            )
            return self.dropout2(found)

        if self.norm_first:
            tgt = tgt + attend_itself(self.norm1(tgt))
            tgt = tgt + attend_memory(self.norm2(tgt))
            return tgt + self._feed_forward(self.norm3(tgt))
        tgt = self.norm1(tgt + attend_itself(tgt))
        tgt = self.norm2(tgt + attend_memory(tgt))
        return self.norm3(tgt + self._feed_forward(tgt))

    def _feed_forward(self, x: Any) -> Any:
        return self.dropout3(self.linear2(self.dropout(self.activation(self.linear1(x)))))


class TransformerEncoder(Module):
    """A stack of encoder layers.

    Args:
        encoder_layer: the layer to copy.
        num_layers: number of copies.
        norm: a normalization of the result, or None.
        enable_nested_tensor: in evaluation without gradients, whether the results of hidden
            elements are zero, as PyTorch's nested tensors leave them. That takes a batch-first
            layer of relu or gelu that normalizes last, and no `mask`.
        mask_check: whether this is so only where the hidden elements are the last of each row.
    """

    def __init__(
        self,
        encoder_layer: Any,
        num_layers: int,
        norm: Any = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = _get_clones(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm
        self.enable_nested_tensor = enable_nested_tensor
        self.use_nested_tensor = enable_nested_tensor and _serves_nested(encoder_layer)
        self.mask_check = mask_check

    def forward(
        self,
        src: Tensor,
        mask: Any = None,
        src_key_padding_mask: Any = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        """Return the sequence after all layers.

        Args:
            src: (S, N, E), (N, S, E) with `batch_first`, or (S, E).
            mask: pairs to hide (S, S) or (N * nhead, S, S): True hides; numbers are added.
            src_key_padding_mask: elements to hide (N, S) or (S).
            is_causal: a hint whether `mask` is the causal one; None looks.
        """
        batch_first = self.layers[0].self_attn.batch_first
        # Once for all layers.
        hidden = additive_mask(src_key_padding_mask, "src_key_padding_mask", src.dtype)
        mask = additive_mask(mask, "mask", src.dtype)
        causal = _is_causal(mask, is_causal, _length(src, batch_first))
        for layer in self.layers:
            src = layer(src, src_mask=mask, is_causal=causal, src_key_padding_mask=hidden)
        if hidden is not None and mask is None and self._leaves_zeros(src, hidden):
            src = src.masked_fill((hidden != 0).unsqueeze(-1), 0)
        return src if self.norm is None else self.norm(src)

    def _leaves_zeros(self, result: Tensor, hidden: Tensor) -> bool:
        if not self.use_nested_tensor or self.layers[0].training or result.dim() != 3:
            return False
        if result.requires_grad or tangrad.is_autocast_enabled():
            return False
        if not self.mask_check:
            return True
        if tangrad.compiler.is_compiling() or current().tracers or current().levels:
            return False  # where values cannot be asked for
        seen = (hidden == 0).int()
        return bool((seen[:, 1:] <= seen[:, :-1]).all())


def _serves_nested(layer: Any) -> bool:
    """Return whether PyTorch runs an encoder of such layers on nested tensors."""
    if not isinstance(layer, TransformerEncoderLayer) or layer.norm_first:
        return False
    attention = layer.self_attn
    return bool(
        attention.batch_first
        and attention._qkv_same_embed_dim
        and attention.in_proj_bias is not None
        and attention.num_heads % 2 == 0
        and layer.norm1.eps == layer.norm2.eps
        and (layer.activation in (F.relu, F.gelu) or isinstance(layer.activation, (ReLU, GELU)))
    )


class TransformerDecoder(Module):
    """A stack of decoder layers.

    Args:
        decoder_layer: the layer to copy.
        num_layers: number of copies.
        norm: a normalization of the result, or None.
    """

    def __init__(self, decoder_layer: Any, num_layers: int, norm: Any = None) -> None:
        super().__init__()
        self.layers = _get_clones(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt: Tensor,
        memory: Any,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Return the sequence after all layers; see `TransformerDecoderLayer.forward`.

        Args:
            tgt: (T, N, E), (N, T, E) with `batch_first`, or (T, E).
            memory: the encoder's result, of length S.
            tgt_mask: pairs to hide (T, T) or (N * nhead, T, T): True hides; numbers are added.
            memory_mask: pairs to hide (T, S) or (N * nhead, T, S).
            tgt_key_padding_mask: elements to hide (N, T) or (T).
            memory_key_padding_mask: elements of `memory` to hide (N, S) or (S).
            tgt_is_causal: a hint whether `tgt_mask` is the causal one; None looks.
            memory_is_causal: a hint that `memory_mask` is the causal one.
        """
        batch_first = self.layers[0].self_attn.batch_first
        causal = _is_causal(tgt_mask, tgt_is_causal, _length(tgt, batch_first))
        for layer in self.layers:
            tgt = layer(
                tgt,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=causal,
                memory_is_causal=memory_is_causal,
            )
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """An encoder and a decoder.

    Args:
        d_model: number of features E.
        nhead: number of heads.
        num_encoder_layers: number of layers of the encoder.
        num_decoder_layers: number of layers of the decoder.
        dim_feedforward: number of features between the affine layers.
        dropout: probability of dropout.
        activation: between the affine layers: "relu", "gelu" or a function.
        custom_encoder: another encoder.
        custom_decoder: another decoder.
        layer_norm_eps: added to the variance in the normalizations.
        batch_first: take and give (N, S, E) in place of (S, N, E).
        norm_first: normalize before attention and affine layers, not after.
        bias: whether affine layers and normalizations have biases.
        device: device of the parameters.
        dtype: dtype of the parameters.
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Any = F.relu,
        custom_encoder: Any = None,
        custom_decoder: Any = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        made = {"bias": bias, "device": device, "dtype": dtype}
        layer = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps)

        def norm() -> LayerNorm:
            return LayerNorm(d_model, eps=layer_norm_eps, **made)

        if custom_encoder is not None:
            self.encoder = custom_encoder
        else:
            first = TransformerEncoderLayer(*layer, batch_first, norm_first, **made)
            self.encoder = TransformerEncoder(first, num_encoder_layers, norm())
        if custom_decoder is not None:
            self.decoder = custom_decoder
        else:
            second = TransformerDecoderLayer(*layer, batch_first, norm_first, **made)
            self.decoder = TransformerDecoder(second, num_decoder_layers, norm())
        self._reset_parameters()
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Any = None,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        src_key_padding_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Return the decoder's result, in the shape of `tgt`.

        Args:
            src: (S, N, E), (N, S, E) with `batch_first`, or (S, E).
            tgt: (T, N, E), (N, T, E) with `batch_first`, or (T, E).
            src_mask: pairs to hide (S, S) or (N * nhead, S, S): True hides; numbers are added.
            tgt_mask: pairs to hide (T, T) or (N * nhead, T, T).
            memory_mask: pairs to hide (T, S) or (N * nhead, T, S).
            src_key_padding_mask: elements of `src` to hide (N, S) or (S).
            tgt_key_padding_mask: elements of `tgt` to hide (N, T) or (T).
            memory_key_padding_mask: elements of the encoder's result to hide (N, S) or (S).
            src_is_causal: a hint whether `src_mask` is the causal one; None looks.
            tgt_is_causal: a hint whether `tgt_mask` is the causal one; None looks.
            memory_is_causal: a hint that `memory_mask` is the causal one.

        Raises:
            RuntimeError: batch sizes or numbers of features differ.
        """
        batch = 0 if self.batch_first else 1
        if src.dim() == 3 and src.size(batch) != tgt.size(batch):
            raise RuntimeError(
                f"the batch number of src and tgt must be equal, got {src.size(batch)} and "
                f"{tgt.size(batch)}"
            )
        if src.size(-1) != self.d_model or tgt.size(-1) != self.d_model:
            raise RuntimeError(
                "the feature number of src and tgt must be equal to d_model "
                f"{self.d_model}, got {src.size(-1)} and {tgt.size(-1)}"
            )
        memory = self.encoder(
            src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal
        )
        return self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Any:
        """Return the causal mask: -inf above the diagonal, 0 elsewhere, (sz, sz)."""
        whole = tangrad.full((sz, sz), float("-inf"), dtype=dtype, device=device)
        return tangrad.triu(whole, diagonal=1)

    def _reset_parameters(self) -> None:
        """Draw all matrices anew."""
        for parameter in self.parameters():
            if parameter.dim() > 1:
                init.xavier_uniform_(parameter)
