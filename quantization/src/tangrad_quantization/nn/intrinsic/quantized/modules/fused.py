"""Quantized layers with their activation inside: rounding happens once."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad_quantization import functional
from tangrad_quantization.layouts import layout
from tangrad_quantization.nn import intrinsic as nni
from tangrad_quantization.nn import quantized as nnq
from tangrad_quantization.nn.intrinsic import qat as nniqat
from tangrad_quantization.nn.quantized.modules.batchnorm import _BatchNorm


class LinearReLU(nnq.Linear):
    """A quantized linear layer and a ReLU."""

    _FLOAT_MODULE = (nni.LinearReLU,)
    _name = "QuantizedLinearReLU"

    def forward(self, x: Any) -> Any:
        """Apply to a quantized tensor."""
        packed = self._packed_params._packed_params
        return functional.linear(x, packed, self.scale, self.zero_point, relu=True)


class _Through(nnq.Linear):
    """A linear layer whose activation is no clipping: in float32 from the exact sums."""

    def forward(self, x: Any) -> Any:
        """Apply to a quantized tensor."""
        packed = self._packed_params._packed_params
        return functional.linear_then(x, packed, self._activation, self.scale, self.zero_point)

    def _activation(self, x: Any) -> Any:
        raise NotImplementedError


class LinearLeakyReLU(_Through):
    """A quantized linear layer and a leaky ReLU.

    Args:
        negative_slope: of the leaky ReLU.
    """

    _FLOAT_MODULE = (nni.LinearLeakyReLU,)
    _name = "QuantizedLinearLeakyReLU"

    def __init__(
        self,
        in_features: int,
        out_features: int,
        negative_slope: float = 0.01,
        bias: bool = True,
        dtype: Any = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, dtype)
        self.negative_slope = negative_slope

    def _activation(self, x: Any) -> Any:
        return tangrad.nn.functional.leaky_relu(x, self.negative_slope)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Return the quantized module for observed float ones."""
        made = super().from_float(mod, use_precomputed_fake_quant)
        made.negative_slope = mod[1].negative_slope
        return made

    @classmethod
    def from_reference(  # type: ignore[override]
        cls, ref_mod: Any, output_scale: float, output_zero_point: int
    ) -> Any:
        """Return the quantized module for a reference linear layer and a leaky ReLU."""
        made = super().from_reference(ref_mod[0], output_scale, output_zero_point)
        made.negative_slope = ref_mod[1].negative_slope
        return made


class LinearTanh(_Through):
    """A quantized linear layer and a tanh."""

    _FLOAT_MODULE = (nni.LinearTanh,)
    _name = "QuantizedLinearTanh"

    def _activation(self, x: Any) -> Any:
        return tangrad.tanh(x)


class ConvReLU1d(nnq.Conv1d):
    """A quantized convolution over one dimension and a ReLU."""

    _FLOAT_MODULE, _QAT_WITH_BN = nni.ConvReLU1d, nniqat.ConvBnReLU1d
    _name, _relu = "QuantizedConvReLU1d", True


class ConvReLU2d(nnq.Conv2d):
    """A quantized convolution over two dimensions and a ReLU."""

    _FLOAT_MODULE, _QAT_WITH_BN = nni.ConvReLU2d, nniqat.ConvBnReLU2d
    _name, _relu = "QuantizedConvReLU2d", True


class ConvReLU3d(nnq.Conv3d):
    """A quantized convolution over three dimensions and a ReLU."""

    _FLOAT_MODULE, _QAT_WITH_BN = nni.ConvReLU3d, nniqat.ConvBnReLU3d
    _name, _relu = "QuantizedConvReLU3d", True


class ConvAdd2d(nnq.Conv2d):
    """A quantized convolution and the sum with a second quantized tensor."""

    _FLOAT_MODULE = nni.ConvAdd2d
    _name = "QuantizedConvAdd2d"

    def forward(self, input: Any, extra_input: Any) -> Any:  # type: ignore[override]
        """Apply to quantized tensors; the sum is of exact sums and rounded once."""
        if self.padding_mode != "zeros":
            input = self._reflected(input)
        extra = layout.dequantize(extra_input)
        return functional.conv_then(
            input,
            self._packed_params,
            lambda x: self._after(x + extra),
            self.scale,
            self.zero_point,
        )

    def _after(self, x: Any) -> Any:
        return x


class ConvAddReLU2d(ConvAdd2d):
    """A quantized convolution, the sum with a second quantized tensor, and a ReLU."""

    _FLOAT_MODULE = nni.ConvAddReLU2d
    _name = "QuantizedConvAddReLU2d"

    def _after(self, x: Any) -> Any:
        return x.relu()


class BNReLU2d(_BatchNorm):
    """A quantized batch norm of images and a ReLU."""

    _name, _dims, _relu = "QuantizedBNReLU2d", 4, True


class BNReLU3d(_BatchNorm):
    """A quantized batch norm of volumes and a ReLU."""

    _name, _dims, _relu = "QuantizedBNReLU3d", 5, True
