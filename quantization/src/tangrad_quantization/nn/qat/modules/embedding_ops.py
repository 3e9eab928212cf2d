"""Embeddings whose weight is rounded as it will be when quantized."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad import nn
from tangrad.nn import functional as F
from tangrad_quantization.nn.qat.modules.swapping import (
    require_float,
    require_qconfig,
    with_parameters_of,
)


def _require_float_zero_point(qconfig: Any) -> None:
    scheme = qconfig.weight().qscheme
    if scheme != tangrad.per_channel_affine_float_qparams:
        raise AssertionError(
            "Embedding weights requires a qscheme of per_channel_affine_float_qparams, got "
            f"{scheme}: take default_embedding_qat_qconfig"
        )


_SHARED = ("num_embeddings", "embedding_dim", "padding_idx", "max_norm", "norm_type")
_OF_EMBEDDING = (*_SHARED, "scale_grad_by_freq", "sparse")
_OF_BAG = (*_OF_EMBEDDING, "mode", "include_last_offset")


class _Fake:
    """What the two below share."""

    _FLOAT_MODULE: Any
    _names: tuple[str, ...]

    @classmethod
    def from_float(cls: Any, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Return the module for a float one, which it shares its weight with."""
        require_float(cls, mod)
        _require_float_zero_point(mod.qconfig)
        arguments = {name: getattr(mod, name) for name in cls._names}
        made = cls(**arguments, _weight=mod.weight, qconfig=mod.qconfig)
        made.weight = mod.weight
        return made

    def to_float(self: Any) -> Any:
        """Return the float module, which shares the memory of the weight."""
        arguments = {name: getattr(self, name) for name in self._names}
        return with_parameters_of(self, self._FLOAT_MODULE(**arguments))

    def _fake(self: Any, qconfig: Any, made: dict[str, Any]) -> None:
        require_qconfig(qconfig)
        _require_float_zero_point(qconfig)
        self.qconfig = qconfig
        self.weight_fake_quant = qconfig.weight(factory_kwargs=made)


class Embedding(_Fake, nn.Embedding):
    """An embedding with fake quantization of its weight; arguments as of `nn.Embedding`."""

    _FLOAT_MODULE = nn.Embedding
    _names = _OF_EMBEDDING

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Any = None,
        device: Any = None,
        dtype: Any = None,
        qconfig: Any = None,
    ) -> None:
        made = {"device": device, "dtype": dtype}
        nn.Embedding.__init__(
            self,
            num_embeddings,
            embedding_dim,
            padding_idx,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            sparse,
            _weight,
            **made,
        )
        self._fake(qconfig, made)

    def forward(self, input: Any) -> Any:
        """Look up rows of the rounded weight."""
        return F.embedding(
            input,
            self.weight_fake_quant(self.weight),
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )


class EmbeddingBag(_Fake, nn.EmbeddingBag):
    """An embedding bag with fake quantization of its weight; arguments as of the float one."""

    _FLOAT_MODULE = nn.EmbeddingBag
    _names = _OF_BAG

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Any = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        qconfig: Any = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        made = {"device": device, "dtype": dtype}
        nn.EmbeddingBag.__init__(
            self,
            num_embeddings,
            embedding_dim,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            mode,
            sparse,
            _weight,
            include_last_offset,
            padding_idx,
            **made,
        )
        self._fake(qconfig, made)

    def forward(self, input: Any, offsets: Any = None, per_sample_weights: Any = None) -> Any:
        """Reduce bags of rows of the rounded weight."""
        return F.embedding_bag(
            input,
            self.weight_fake_quant(self.weight),
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )
