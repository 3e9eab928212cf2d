"""Where numbers become quantized, and numbers again, in a quantized model."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad import nn
from tangrad_quantization.layouts import layout
from tangrad_quantization.nn.quantized.modules.weights import ScaleBuffers, output_scale


class Quantize(ScaleBuffers, nn.Module):
    """Quantize what passes.

    Args:
        scale: the scale.
        zero_point: the zero point.
        dtype: the quantized dtype.
        factory_kwargs: device and dtype of the buffers.
    """

    def __init__(
        self, scale: float, zero_point: int, dtype: Any, factory_kwargs: Any = None
    ) -> None:
        super().__init__()
        made = dict(factory_kwargs or {})
        self.register_buffer("scale", tangrad.tensor([scale], **made))
        made.pop("dtype", None)
        self.register_buffer(
            "zero_point", tangrad.tensor([zero_point], dtype=tangrad.int64, **made)
        )
        self.dtype = dtype

    def forward(self, x: Any) -> Any:
        """Return the tensor quantized."""
        scale, zero_point = self.ends()
        return layout.quantize_per_tensor(x.detach().contiguous(), scale, zero_point, self.dtype)

    @staticmethod
    def from_float(mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Return the module for an observed `QuantStub`."""
        scale, zero_point = output_scale(mod)
        return Quantize(scale, zero_point, mod.activation_post_process.dtype)

    def extra_repr(self) -> str:
        return f"scale={self.scale}, zero_point={self.zero_point}, dtype={self.dtype}"


class DeQuantize(nn.Module):
    """Return the numbers of what passes."""

    def forward(self, x: Any) -> Any:
        """Return the tensor as numbers."""
        return layout.dequantize(x) if layout.is_quantized(x) else x.dequantize()

    @staticmethod
    def from_float(mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Return the module for a `DeQuantStub`."""
        return DeQuantize()
