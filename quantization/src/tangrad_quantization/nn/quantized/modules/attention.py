"""Attention over quantized tensors, made of an observed one."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad_quantization import qparams
from tangrad_quantization.layouts import layout
from tangrad_quantization.nn.quantizable.modules import activation as quantizable


def _quantized(x: Any) -> Any:
    scale, zero_point = qparams.of_tensor(x, 0, 255)
    return layout.quantize_per_tensor(x.detach().contiguous(), scale, zero_point, tangrad.quint8)


class MultiheadAttention(quantizable.MultiheadAttention):
    """Attention with several heads over quantized tensors; softmax and products are float.

    Arguments as of `nn.MultiheadAttention`.
    """

    _FLOAT_MODULE: Any = tangrad.nn.MultiheadAttention
    _OBSERVED: Any = quantizable.MultiheadAttention

    def _get_name(self) -> str:
        return "QuantizedMultiheadAttention"

    @classmethod
    def from_float(cls, other: Any) -> Any:
        """Refuse: it is made of an observed attention.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            "nn.quantized.MultiheadAttention is made of an observed one, by from_observed: call "
            "prepare, run calibration data through the model, then convert"
        )

    @classmethod
    def from_observed(cls, other: Any) -> Any:
        """Return the quantized attention for an observed one."""
        from tangrad_quantization.quantize import convert

        made = convert(other, inplace=False, remove_qconfig=True)
        made.__class__ = cls
        for name in ("bias_k", "bias_v"):
            held = getattr(made, name)
            made._parameters.pop(name, None)
            setattr(made, name, None if held is None else _quantized(held))
        return made
