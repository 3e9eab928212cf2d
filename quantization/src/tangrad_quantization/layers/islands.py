"""Quantized layers among float ones: numbers come in, numbers go out.

A model's code need not know: where a layer stood, a layer stands that quantizes its input,
computes on integers, and returns numbers.
"""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad import nn
from tangrad_quantization import functional, qparams
from tangrad_quantization.layouts import layout
from tangrad_quantization.observer import PerChannelMinMaxObserver
from tangrad_quantization.weights.packed import PackedConv, PackedLinear

KINDS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


def can_be_quantized(module: Any) -> bool:
    """Return whether a layer has a quantized form here."""
    if type(module) is nn.Linear:
        return True
    return type(module) in KINDS and module.padding_mode == "zeros" and module.padding != "same"


def _weight(module: Any) -> Any:
    observer = PerChannelMinMaxObserver(
        dtype=tangrad.qint8, qscheme=tangrad.per_channel_symmetric, eps=2.0**-100
    )
    observer(module.weight)
    scales, zeros = observer.calculate_qparams()
    return layout.quantize_per_channel(
        module.weight.detach().float().contiguous(),
        scales.double(),
        zeros.long(),
        0,
        tangrad.qint8,
    )


class Island(nn.Module):
    """A layer of integers between numbers.

    Attributes:
        weight: the quantized weight.
        bias: float32, or None.
    """

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.description = module.extra_repr()
        self.register_buffer("weight", _weight(module))
        bias = None if module.bias is None else module.bias.detach().float().clone()
        self.register_buffer("bias", bias)
        self._held: Any = None

    def _packed(self) -> Any:
        if self._held is None or self._held.source is not self.weight:
            self._held = self._pack()
        return self._held

    def _pack(self) -> Any:
        raise NotImplementedError

    def extra_repr(self) -> str:
        return self.description


class LinearIsland(Island):
    """A linear layer whose input is quantized by its range in each call."""

    def _pack(self) -> Any:
        return PackedLinear(self.weight, self.bias)

    def forward(self, input: Any) -> Any:
        """Apply the layer to numbers; nothing is recorded for a gradient."""
        return functional.linear_dynamic(input, self._packed(), False).to(input.dtype)


class ConvIsland(Island):
    """A convolution whose input and output have scales that were calibrated.

    Args:
        module: the float convolution.
        input_scale, output_scale: pairs of scale and zero point.
    """

    def __init__(
        self, module: Any, input_scale: tuple[float, int], output_scale: tuple[float, int]
    ) -> None:
        super().__init__(module)
        self.input_scale, self.output_scale = input_scale, output_scale
        self.geometry = (module.stride, module.padding, module.dilation, module.groups)

    def _pack(self) -> Any:
        stride, padding, dilation, groups = self.geometry
        padding = (0,) * len(stride) if padding == "valid" else padding
        return PackedConv(self.weight, self.bias, stride, padding, dilation, groups)

    def forward(self, input: Any) -> Any:
        """Apply the layer to numbers; nothing is recorded for a gradient."""
        numbers = input.detach().float().contiguous()
        quantized = layout.quantize_per_tensor(numbers, *self.input_scale, tangrad.quint8)
        made = functional.conv(quantized, self._packed(), *self.output_scale)
        return layout.dequantize(made).to(input.dtype)


def quantized_layer(module: Any, seen: Any) -> Any:
    """Return the quantized form of a layer.

    Args:
        module: the layer.
        seen: what calibration saw of it: ranges of its input and output.
    """
    if isinstance(module, nn.Linear):
        return LinearIsland(module)
    return ConvIsland(
        module,
        qparams.choose(*seen.input.range(), 0, 255),
        qparams.choose(*seen.output.range(), 0, 255),
    )
