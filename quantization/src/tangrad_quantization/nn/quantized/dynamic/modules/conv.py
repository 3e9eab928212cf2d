"""Convolutions with quantized weights, whose input is quantized in each call.

The convolution itself runs in float32, on the numbers that both stand for: it saves memory, and
is no faster than float.
"""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad_quantization import layout, qparams
from tangrad_quantization.nn import quantized as nnq


class _Dynamic:
    """What the classes below share; stands before the static class."""

    _name: str

    def forward(self: Any, input: Any, reduce_range: bool = True) -> Any:
        """Apply the convolution to numbers; nothing is recorded for a gradient."""
        most = 127 if reduce_range else 255
        scale, zero_point = qparams.of_tensor(input, 0, most)
        seen = layout.quantize_per_tensor(
            input.detach().float().contiguous(), scale, zero_point, tangrad.quint8
        )
        weight = layout.dequantize(self.weight())
        return self._float(layout.dequantize(seen), weight, self.bias()).to(input.dtype)

    def _float(self: Any, x: Any, weight: Any, bias: Any) -> Any:
        function = getattr(tangrad.nn.functional, f"conv{self._places}d")
        return function(x, weight, bias, self.stride, self.padding, self.dilation, self.groups)

    def _get_name(self) -> str:
        return self._name

    @classmethod
    def _output(cls, mod: Any) -> tuple[float, int]:
        return 1.0, 0


class _Transposed(_Dynamic):
    def _float(self: Any, x: Any, weight: Any, bias: Any) -> Any:
        function = getattr(tangrad.nn.functional, f"conv_transpose{self._places}d")
        return function(
            x,
            weight,
            bias,
            self.stride,
            self.padding,
            self.output_padding,
            self.groups,
            self.dilation,
        )


class Conv1d(_Dynamic, nnq.Conv1d):
    """A convolution over one dimension of numbers with a quantized weight."""

    _name = "DynamicQuantizedConv1d"


class Conv2d(_Dynamic, nnq.Conv2d):
    """A convolution over two dimensions of numbers with a quantized weight."""

    _name = "DynamicQuantizedConv2d"


class Conv3d(_Dynamic, nnq.Conv3d):
    """A convolution over three dimensions of numbers with a quantized weight."""

    _name = "DynamicQuantizedConv3d"


class ConvTranspose1d(_Transposed, nnq.ConvTranspose1d):
    """A transposed convolution over one dimension of numbers with a quantized weight."""

    _name = "DynamicQuantizedConvTranspose1d"


class ConvTranspose2d(_Transposed, nnq.ConvTranspose2d):
    """A transposed convolution over two dimensions of numbers with a quantized weight."""

    _name = "DynamicQuantizedConvTranspose2d"


class ConvTranspose3d(_Transposed, nnq.ConvTranspose3d):
    """A transposed convolution over three dimensions of numbers with a quantized weight."""

    _name = "DynamicQuantizedConvTranspose3d"
