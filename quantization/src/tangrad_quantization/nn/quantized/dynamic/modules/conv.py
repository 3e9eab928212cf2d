"""Convolutions with quantized weights, whose input is quantized in each call.

They save memory, and are no faster than float.
"""

from __future__ import annotations

from typing import Any

from tangrad.nn import functional as F
from tangrad_quantization import functional
from tangrad_quantization.nn import quantized as nnq


class _Dynamic:
    """What the classes below share; stands before the static class."""

    _name: str

    def forward(self: Any, input: Any, reduce_range: bool = True) -> Any:
        """Apply the convolution to numbers; nothing is recorded for a gradient."""
        if self.padding_mode != "zeros":
            ends = [size for size in reversed(self.padding) for _ in range(2)]
            input = F.pad(input, ends, mode=self.padding_mode)
        return functional.conv_dynamic(input, self._packed_params, reduce_range).to(input.dtype)

    def _get_name(self) -> str:
        return self._name

    @classmethod
    def _output(cls, mod: Any) -> tuple[float, int]:
        return 1.0, 0


class Conv1d(_Dynamic, nnq.Conv1d):
    """A convolution over one dimension of numbers with a quantized weight."""

    _name = "DynamicQuantizedConv1d"


class Conv2d(_Dynamic, nnq.Conv2d):
    """A convolution over two dimensions of numbers with a quantized weight."""

    _name = "DynamicQuantizedConv2d"


class Conv3d(_Dynamic, nnq.Conv3d):
    """A convolution over three dimensions of numbers with a quantized weight."""

    _name = "DynamicQuantizedConv3d"


class ConvTranspose1d(_Dynamic, nnq.ConvTranspose1d):
    """A transposed convolution over one dimension of numbers with a quantized weight."""

    _name = "DynamicQuantizedConvTranspose1d"


class ConvTranspose2d(_Dynamic, nnq.ConvTranspose2d):
    """A transposed convolution over two dimensions of numbers with a quantized weight."""

    _name = "DynamicQuantizedConvTranspose2d"


class ConvTranspose3d(_Dynamic, nnq.ConvTranspose3d):
    """A transposed convolution over three dimensions of numbers with a quantized weight."""

    _name = "DynamicQuantizedConvTranspose3d"
