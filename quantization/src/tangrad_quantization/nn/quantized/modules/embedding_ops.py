"""Embeddings whose rows have 8 or 4 bits, each with a scale and a zero point."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad import nn
from tangrad_quantization import functional
from tangrad_quantization.layouts import layout
from tangrad_quantization.nn.quantized.modules.weights import pop_quantized, quantized_weight
from tangrad_quantization.observer import default_float_qparams_observer

_DTYPES = ("quint8", "quint4x2")


class EmbeddingPackedParams(nn.Module):
    """The weight of an embedding.

    Args:
        num_embeddings: rows.
        embedding_dim: size of a row.
        dtype: quint8 or quint4x2.

    Raises:
        NotImplementedError: the dtype is neither.
    """

    _version = 1

    def __init__(self, num_embeddings: int, embedding_dim: int, dtype: Any = None) -> None:
        super().__init__()
        self.dtype = tangrad.quint8 if dtype is None else dtype
        if self.dtype.name not in _DTYPES:
            raise NotImplementedError(
                "Unsupported dtype on quantized embedding! Supports quint8 and quint4x2. Got "
                f"dtype: {self.dtype}"
            )
        self.set_weight(
            layout.quantize_per_channel(
                tangrad.zeros(num_embeddings, embedding_dim),
                tangrad.ones(num_embeddings),
                tangrad.zeros(num_embeddings),
                0,
                self.dtype,
            )
        )

    def set_weight(self, weight: Any) -> None:
        """Replace the weight, quantized by rows."""
        layout.require(weight, "quantized embedding", layout.PER_CHANNEL)
        self._packed_weight = weight

    def _weight(self) -> Any:
        return self._packed_weight

    def forward(self, x: Any) -> Any:
        """Return the argument: this module only holds something."""
        return x

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "dtype"] = self.dtype
        destination[prefix + "_packed_weight"] = self._weight()

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, *rest: Any
    ) -> None:
        weight = pop_quantized(state_dict, prefix + "_packed_weight", self)
        self.dtype = state_dict.pop(prefix + "dtype", weight.dtype)
        self.set_weight(weight)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, False, *rest)

    def __repr__(self) -> str:
        return repr(self._weight())


class Embedding(nn.Module):
    """Look up rows of 8 or 4 bits, and return them as numbers.

    Args: as of `nn.Embedding`; `dtype` is quint8 or quint4x2.
    """

    _version = 1
    _FLOAT_MODULE: Any = nn.Embedding
    _name = "QuantizedEmbedding"

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
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.dtype = tangrad.quint8 if dtype is None else dtype
        self._packed_params = EmbeddingPackedParams(num_embeddings, embedding_dim, self.dtype)
        if _weight is not None:
            if list(_weight.shape) != [num_embeddings, embedding_dim]:
                raise AssertionError(
                    "Shape of weight does not match num_embeddings and embedding_dim: "
                    f"{list(_weight.shape)}"
                )
            self.set_weight(_weight)

    def forward(self, indices: Any) -> Any:
        """Return the rows, float32."""
        return functional.embedding(indices, self.weight())

    def _get_name(self) -> str:
        return self._name

    def extra_repr(self) -> str:
        return (
            f"num_embeddings={self.num_embeddings}, embedding_dim={self.embedding_dim}, "
            f"dtype={self._packed_params.dtype}, qscheme={self.weight().qscheme()}"
        )

    def __repr__(self) -> str:
        return f"{self._get_name()}({self.extra_repr()})"

    def set_weight(self, w: Any) -> None:
        """Replace the weight, quantized by rows."""
        self._packed_params.set_weight(w)

    def weight(self) -> Any:
        """Return the quantized weight."""
        return self._packed_params._weight()

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Return the quantized module for a float one, or one trained for it.

        Raises:
            AssertionError: the weight is not observed by rows with float zero points.
        """
        if hasattr(mod, "weight_fake_quant"):
            observer = mod.weight_fake_quant
        else:
            if type(mod) is not cls._FLOAT_MODULE:
                raise AssertionError(
                    f"nnq.{cls.__name__}.from_float only works for "
                    f"{cls._FLOAT_MODULE.__name__}, got {type(mod).__name__}"
                )
            given = getattr(getattr(mod, "qconfig", None), "weight", None)
            observer = (given or default_float_qparams_observer)()
        scheme = observer.qscheme
        if scheme != tangrad.per_channel_affine_float_qparams:
            raise AssertionError(
                f"Embedding quantization is only supported with "
                f"float_qparams_weight_only_qconfig, got a weight observer of {scheme}"
            )
        observer(mod.weight)
        made = cls(mod.num_embeddings, mod.embedding_dim, dtype=observer.dtype)
        made.set_weight(quantized_weight(mod.weight, observer))
        return made._like(mod)

    @classmethod
    def from_reference(cls, ref_embedding: Any) -> Any:
        """Return the quantized module for a reference one."""
        rows, width = ref_embedding.num_embeddings, ref_embedding.embedding_dim
        made = cls(rows, width, dtype=ref_embedding.weight_dtype)
        made.set_weight(ref_embedding.get_quantized_weight())
        return made._like(ref_embedding)

    def _like(self, mod: Any) -> Any:
        return self


class EmbeddingBag(Embedding):
    """Sum or average bags of rows of 8 or 4 bits; arguments as of `nn.EmbeddingBag`."""

    _FLOAT_MODULE = nn.EmbeddingBag
    _name = "QuantizedEmbeddingBag"

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "sum",
        sparse: bool = False,
        _weight: Any = None,
        include_last_offset: bool = False,
        dtype: Any = None,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, _weight=_weight, dtype=dtype)
        self.mode = mode
        self.include_last_offset = include_last_offset
        self.padding_idx: int | None = None  # of the float module

    def forward(
        self,
        indices: Any,
        offsets: Any = None,
        per_sample_weights: Any = None,
        compressed_indices_mapping: Any = None,
    ) -> Any:
        """Return one vector for each bag, float32."""
        return functional.embedding_bag(
            functional.embedding(indices.reshape(-1), self.weight()),
            indices,
            offsets,
            self.mode,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )

    def _like(self, mod: Any) -> Any:
        self.mode, self.include_last_offset = mod.mode, mod.include_last_offset
        self.padding_idx = mod.padding_idx
        return self
