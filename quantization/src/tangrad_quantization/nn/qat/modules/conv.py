"""Convolutions whose weight is rounded as it will be when quantized."""

from __future__ import annotations

from typing import Any

from tangrad import nn
from tangrad_quantization.nn.intrinsic.modules import _FusedModule
from tangrad_quantization.nn.qat.modules.swapping import (
    require_float,
    require_qconfig,
    take_over,
    with_parameters_of,
)


def conv_arguments(conv: Any) -> dict[str, Any]:
    """Return the arguments of which a convolution was made."""
    return {
        "in_channels": conv.in_channels,
        "out_channels": conv.out_channels,
        "kernel_size": conv.kernel_size,
        "stride": conv.stride,
        "padding": conv.padding,
        "dilation": conv.dilation,
        "groups": conv.groups,
        "bias": conv.bias is not None,
        "padding_mode": conv.padding_mode,
    }


class _Fake:
    """What the convolutions below share; stands before the float class among the bases."""

    _FLOAT_MODULE: Any
    _FLOAT_CONV_MODULE: Any
    _FLOAT_RELU_MODULE: Any = None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        qconfig: Any = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        made = {"device": device, "dtype": dtype}
        self._FLOAT_CONV_MODULE.__init__(
            self,
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias,
            padding_mode,
            **made,
        )
        require_qconfig(qconfig)
        self.qconfig = qconfig
        self.weight_fake_quant = qconfig.weight(factory_kwargs=made)

    def forward(self: Any, input: Any) -> Any:
        """Compute with the rounded weight."""
        return self._conv_forward(input, self.weight_fake_quant(self.weight), self.bias)

    @classmethod
    def from_float(cls: Any, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Return the module for a float one, which it shares its parameters with."""
        require_float(cls, mod)
        qconfig = mod.qconfig
        if isinstance(mod, _FusedModule):
            mod = mod[0]
        made = cls(**conv_arguments(mod), qconfig=qconfig)
        take_over(made, mod, "weight", "bias")
        return made

    def to_float(self: Any) -> Any:
        """Return the float module, which shares the memory of the parameters."""
        conv = with_parameters_of(self, self._FLOAT_CONV_MODULE(**conv_arguments(self)))
        if self._FLOAT_RELU_MODULE is None:
            return conv
        return self._FLOAT_MODULE(conv, self._FLOAT_RELU_MODULE()).train(self.training)


class Conv1d(_Fake, nn.Conv1d):
    """A convolution over one dimension with fake quantization of its weight."""

    _FLOAT_MODULE = _FLOAT_CONV_MODULE = nn.Conv1d


class Conv2d(_Fake, nn.Conv2d):
    """A convolution over two dimensions with fake quantization of its weight."""

    _FLOAT_MODULE = _FLOAT_CONV_MODULE = nn.Conv2d


class Conv3d(_Fake, nn.Conv3d):
    """A convolution over three dimensions with fake quantization of its weight."""

    _FLOAT_MODULE = _FLOAT_CONV_MODULE = nn.Conv3d
