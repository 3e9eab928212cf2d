"""Convolutions that know how their weights will be quantized."""

from __future__ import annotations

from typing import Any

from tangrad import nn
from tangrad.nn import functional as F
from tangrad_quantization.nn.quantized.reference.modules.weights import ReferenceQuantizedModule

_GEOMETRY = ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation")


class _Conv(ReferenceQuantizedModule):
    """What the classes below share; each takes the arguments of the float class.

    Args:
        weight_qparams: {"qscheme", "dtype", "scale", "zero_point", "axis"}.
    """

    _names: tuple[str, ...] = (*_GEOMETRY, "groups", "padding_mode")

    def __init__(
        self: Any, *args: Any, weight_qparams: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._init_weight_qparams(weight_qparams, kwargs.get("device"))

    def _get_name(self) -> str:
        return f"Quantized{type(self).__name__}(Reference)"

    def forward(self: Any, x: Any) -> Any:
        """Convolve with the rounded weight."""
        return self._conv_forward(x, self.get_weight(), self.bias)

    @classmethod
    def from_float(cls: Any, float_conv: Any, weight_qparams: dict[str, Any]) -> Any:
        """Return the module for a float one."""
        given = {name: getattr(float_conv, name) for name in cls._names}
        made = cls(**given, bias=float_conv.bias is not None, weight_qparams=weight_qparams)
        return made._take_over(float_conv)


class Conv1d(_Conv, nn.Conv1d):
    """A convolution over one dimension that rounds its weight as its quantized form does."""


class Conv2d(_Conv, nn.Conv2d):
    """A convolution over two dimensions that rounds its weight as its quantized form does."""


class Conv3d(_Conv, nn.Conv3d):
    """A convolution over three dimensions that rounds its weight as its quantized form does."""


class _ConvTranspose(_Conv):
    _names = (*_GEOMETRY, "output_padding", "groups", "padding_mode")
    _places: int

    def forward(self: Any, x: Any, output_size: Any = None) -> Any:
        """Convolve with the rounded weight."""
        padding = self._output_padding(
            x, output_size, self.stride, self.padding, self.kernel_size, self._places, self.dilation
        )
        function = getattr(F, f"conv_transpose{self._places}d")
        return function(
            x,
            self.get_weight(),
            self.bias,
            self.stride,
            self.padding,
            padding,
            self.groups,
            self.dilation,
        )


class ConvTranspose1d(_ConvTranspose, nn.ConvTranspose1d):
    """A transposed convolution over one dimension, with a rounded weight."""

    _places = 1


class ConvTranspose2d(_ConvTranspose, nn.ConvTranspose2d):
    """A transposed convolution over two dimensions, with a rounded weight."""

    _places = 2


class ConvTranspose3d(_ConvTranspose, nn.ConvTranspose3d):
    """A transposed convolution over three dimensions, with a rounded weight."""

    _places = 3
