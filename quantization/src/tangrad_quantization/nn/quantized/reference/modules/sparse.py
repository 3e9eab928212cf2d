"""Embeddings that know how their rows will be quantized."""

from __future__ import annotations

from typing import Any

from tangrad import nn
from tangrad.nn import functional as F
from tangrad_quantization.nn.quantized.reference.modules.weights import ReferenceQuantizedModule

_NAMES = ("num_embeddings", "embedding_dim", "max_norm", "norm_type", "scale_grad_by_freq")


class _Rows(ReferenceQuantizedModule):
    """What the classes below share; each takes the arguments of the float class.

    Args:
        weight_qparams: {"qscheme", "dtype", "scale", "zero_point", "axis"}.
    """

    _names: tuple[str, ...]

    def __init__(
        self: Any, *args: Any, weight_qparams: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._init_weight_qparams(weight_qparams, kwargs.get("device"))

    def _get_name(self) -> str:
        return f"Quantized{type(self).__name__}(Reference)"

    @classmethod
    def from_float(cls: Any, mod: Any, weight_qparams: dict[str, Any]) -> Any:
        """Return the module for a float one."""
        given = {name: getattr(mod, name) for name in cls._names}
        return cls(**given, weight_qparams=weight_qparams)._take_over(mod)


class Embedding(_Rows, nn.Embedding):
    """An embedding in float that rounds its rows as its quantized form does."""

    _names = (*_NAMES, "sparse", "padding_idx")

    def forward(self, input: Any) -> Any:
        """Look up rounded rows."""
        return F.embedding(
            input,
            self.get_weight(),
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )


class EmbeddingBag(_Rows, nn.EmbeddingBag):
    """An embedding of bags in float that rounds its rows as its quantized form does."""

    _names = (*_NAMES, "mode", "sparse", "include_last_offset", "padding_idx")

    def forward(self, input: Any, offsets: Any = None, per_sample_weights: Any = None) -> Any:
        """Sum or average bags of rounded rows."""
        return F.embedding_bag(
            input,
            self.get_weight(),
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
