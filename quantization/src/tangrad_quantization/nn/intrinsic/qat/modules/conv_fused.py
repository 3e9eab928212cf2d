"""Convolutions with their batch norm and ReLU, trained as one."""

from __future__ import annotations

import math
from typing import Any

from tangrad import nn
from tangrad.nn import functional as F
from tangrad.nn import init
from tangrad.nn.utils.fusion import fuse_conv_bn_weights
from tangrad_quantization.nn import intrinsic as nni
from tangrad_quantization.nn import qat as nnqat
from tangrad_quantization.nn.intrinsic.modules import _FusedModule
from tangrad_quantization.nn.intrinsic.qat.modules.folding import (
    BATCH_NORMS,
    WithBatchNorm,
    freeze_bn_stats,
    update_bn_stats,
)
from tangrad_quantization.nn.qat.modules.conv import conv_arguments
from tangrad_quantization.nn.qat.modules.swapping import (
    require_float,
    require_qconfig,
    with_parameters_of,
)

__all__ = [
    "ConvBn1d",
    "ConvBn2d",
    "ConvBn3d",
    "ConvBnReLU1d",
    "ConvBnReLU2d",
    "ConvBnReLU3d",
    "ConvReLU1d",
    "ConvReLU2d",
    "ConvReLU3d",
    "freeze_bn_stats",
    "update_bn_stats",
]


class _ConvBnNd(WithBatchNorm):
    """What the classes below share; stands before the convolution's class."""

    _version = 2
    _FLOAT_MODULE: Any
    _FLOAT_CONV_MODULE: Any
    _FLOAT_BN_MODULE: Any = True
    _FLOAT_RELU_MODULE: Any = None
    _FUSED_FLOAT_MODULE: Any = None

    def __init__(
        self: Any,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool | None = None,
        padding_mode: str = "zeros",
        eps: float = 1e-05,
        momentum: float = 0.1,
        freeze_bn: bool = False,
        qconfig: Any = None,
    ) -> None:
        self._FLOAT_CONV_MODULE.__init__(
            self,
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bool(bias),
            padding_mode,
        )
        require_qconfig(qconfig)
        norm = BATCH_NORMS[self.weight.dim() - 2](out_channels, eps, momentum)
        self._attach(norm, freeze_bn, qconfig)

    def reset_bn_parameters(self: Any) -> None:
        """Give the batch norm new parameters, and the convolution a new bias."""
        super().reset_bn_parameters()
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            bound = 1 / math.sqrt(fan_in)
            init.uniform_(self.bias, -bound, bound)

    def forward(self: Any, input: Any) -> Any:
        """Compute with the folded weight rounded."""
        output = self.normalized(
            lambda weight, bias: self._conv_forward(input, weight, bias.to(input.dtype))
        )
        return output if self._FLOAT_RELU_MODULE is None else F.relu(output)

    @classmethod
    def from_float(cls: Any, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Return the module for float ones, which it shares its parameters with."""
        require_float(cls, mod)
        conv, bn = mod[0], mod[1]
        made = cls(
            **conv_arguments(conv),
            eps=bn.eps,
            momentum=bn.momentum,
            freeze_bn=False,
            qconfig=mod.qconfig,
        )
        return made._take_over(conv, bn)

    def to_float(self: Any) -> Any:
        """Return the convolution with the batch norm folded in, with its ReLU if it has one."""
        conv = with_parameters_of(self, self._FLOAT_CONV_MODULE(**conv_arguments(self)))
        bn = self.bn
        conv.weight, conv.bias = fuse_conv_bn_weights(
            conv.weight, conv.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
        )
        if self._FLOAT_RELU_MODULE is None:
            return conv
        return self._FUSED_FLOAT_MODULE(conv, self._FLOAT_RELU_MODULE()).train(self.training)


class ConvBn1d(_ConvBnNd, nn.Conv1d, _FusedModule):
    """A convolution over one dimension and its batch norm."""

    _FLOAT_MODULE = nni.ConvBn1d
    _FLOAT_CONV_MODULE = nn.Conv1d


class ConvBn2d(_ConvBnNd, nn.Conv2d, _FusedModule):
    """A convolution over two dimensions and its batch norm."""

    _FLOAT_MODULE = nni.ConvBn2d
    _FLOAT_CONV_MODULE = nn.Conv2d


class ConvBn3d(_ConvBnNd, nn.Conv3d, _FusedModule):
    """A convolution over three dimensions and its batch norm."""

    _FLOAT_MODULE = nni.ConvBn3d
    _FLOAT_CONV_MODULE = nn.Conv3d


class ConvBnReLU1d(ConvBn1d):
    """A convolution over one dimension, its batch norm and its ReLU."""

    _FLOAT_MODULE = nni.ConvBnReLU1d
    _FLOAT_RELU_MODULE = nn.ReLU
    _FUSED_FLOAT_MODULE = nni.ConvReLU1d


class ConvBnReLU2d(ConvBn2d):
    """A convolution over two dimensions, its batch norm and its ReLU."""

    _FLOAT_MODULE = nni.ConvBnReLU2d
    _FLOAT_RELU_MODULE = nn.ReLU
    _FUSED_FLOAT_MODULE = nni.ConvReLU2d


class ConvBnReLU3d(ConvBn3d):
    """A convolution over three dimensions, its batch norm and its ReLU."""

    _FLOAT_MODULE = nni.ConvBnReLU3d
    _FLOAT_RELU_MODULE = nn.ReLU
    _FUSED_FLOAT_MODULE = nni.ConvReLU3d


class _ConvReLU:
    """What convolutions with a ReLU share."""

    _FLOAT_BN_MODULE: Any = None
    _FLOAT_RELU_MODULE: Any = nn.ReLU

    def forward(self: Any, input: Any) -> Any:
        """Compute with the rounded weight."""
        return F.relu(self._conv_forward(input, self.weight_fake_quant(self.weight), self.bias))


class ConvReLU1d(_ConvReLU, nnqat.Conv1d, _FusedModule):
    """A convolution over one dimension and its ReLU."""

    _FLOAT_MODULE = nni.ConvReLU1d


class ConvReLU2d(_ConvReLU, nnqat.Conv2d, _FusedModule):
    """A convolution over two dimensions and its ReLU."""

    _FLOAT_MODULE = nni.ConvReLU2d


class ConvReLU3d(_ConvReLU, nnqat.Conv3d, _FusedModule):
    """A convolution over three dimensions and its ReLU."""

    _FLOAT_MODULE = nni.ConvReLU3d
