"""Activations of quantized tensors.

Functions of one number go by a table of all 256 values, so they are exact everywhere; softmax
sums, and is computed in float32.
"""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad import nn
from tangrad.nn import functional as F
from tangrad_quantization import functional
from tangrad_quantization.layouts import layout
from tangrad_quantization.nn.quantized.modules.weights import (
    Ends,
    output_scale,
    quantized_weight,
)


class ReLU6(nn.ReLU):
    """min(max(x, 0), 6), without a new scale."""

    def forward(self, input: Any) -> Any:
        """Apply to a quantized tensor."""
        return functional.clipped(input, 0.0, 6.0)

    def _get_name(self) -> str:
        return "QuantizedReLU6"

    @staticmethod
    def from_float(mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Return the module for a float one."""
        return ReLU6(mod.inplace)


class _Scaled(Ends):
    """What activations with a scale of their own share; stands before the float class."""

    _name: str

    def _set_scale(self: Any, scale: float, zero_point: int) -> None:
        self.register_buffer("scale", tangrad.tensor(scale))
        self.register_buffer("zero_point", tangrad.tensor(zero_point))

    def _apply_table(self: Any, input: Any, name: str, function: Any, *key: Any) -> Any:
        return functional.by_table(input, name, function, *self.ends(), *key)

    def _get_name(self) -> str:
        return self._name


class Hardswish(_Scaled, nn.Hardswish):
    """x relu6(x + 3) / 6 of quantized tensors.

    Args:
        scale: of the output.
        zero_point: of the output.
    """

    _name = "QuantizedHardswish"

    def __init__(
        self, scale: float, zero_point: int, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self._set_scale(scale, zero_point)

    def forward(self, input: Any) -> Any:
        """Apply to a quantized tensor."""
        return self._apply_table(input, "hardswish", F.hardswish)

    @staticmethod
    def from_float(mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Return the module for an observed float one."""
        return Hardswish.from_reference(mod, *output_scale(mod))

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> Any:
        """Return the module for a float one, with the output's scale and zero point."""
        return cls(float(scale), int(zero_point))


class ELU(_Scaled, nn.ELU):
    """x, or alpha (exp(x) - 1) below zero, of quantized tensors.

    Args:
        scale: of the output.
        zero_point: of the output.
        alpha: the limit of -x.
    """

    _name = "QuantizedELU"

    def __init__(self, scale: float, zero_point: int, alpha: float = 1.0) -> None:
        super().__init__(alpha)
        self.scale, self.zero_point = scale, zero_point

    def forward(self, input: Any) -> Any:
        """Apply to a quantized tensor."""
        return self._apply_table(input, "elu", lambda x: F.elu(x, self.alpha), self.alpha)

    @staticmethod
    def from_float(mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Return the module for an observed float one."""
        return ELU.from_reference(mod, *output_scale(mod))

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> Any:
        """Return the module for a float one, with the output's scale and zero point."""
        return cls(float(scale), int(zero_point), mod.alpha)


class LeakyReLU(_Scaled, nn.LeakyReLU):
    """x, or a multiple of x below zero, of quantized tensors.

    Args:
        scale: of the output.
        zero_point: of the output.
        negative_slope: the multiple.
        inplace: kept for PyTorch's programs.
    """

    _name = "QuantizedLeakyReLU"

    def __init__(
        self,
        scale: float,
        zero_point: int,
        negative_slope: float = 1e-2,
        inplace: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(negative_slope, inplace)
        self._set_scale(scale, zero_point)

    def forward(self, input: Any) -> Any:
        """Apply to a quantized tensor."""
        slope = self.negative_slope
        return self._apply_table(input, "leaky_relu", lambda x: F.leaky_relu(x, slope), slope)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Return the module for an observed float one."""
        return cls.from_reference(mod, *output_scale(mod))

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> Any:
        """Return the module for a float one, with the output's scale and zero point."""
        return cls(float(scale), int(zero_point), mod.negative_slope, mod.inplace)


class Sigmoid(_Scaled, nn.Sigmoid):
    """The logistic function of quantized tensors.

    Args:
        output_scale: of the output.
        output_zero_point: of the output.
    """

    _name = "QuantizedSigmoid"

    def __init__(self, output_scale: float, output_zero_point: int) -> None:
        super().__init__()
        self.scale = self.output_scale = output_scale
        self.zero_point = self.output_zero_point = output_zero_point

    def forward(self, input: Any) -> Any:
        """Apply to a quantized tensor."""
        return self._apply_table(input, "sigmoid", tangrad.sigmoid)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Return the module for an observed float one."""
        return cls.from_reference(mod, *output_scale(mod))

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> Any:
        """Return the module for a float one, with the output's scale and zero point."""
        return cls(float(scale), int(zero_point))


class Softmax(_Scaled, nn.Softmax):
    """Softmax of quantized tensors, computed in float32.

    Args:
        dim: the dimension that is normalized.
        scale: of the output.
        zero_point: of the output.
    """

    _name = "QuantizedSoftmax"

    def __init__(self, dim: int | None = None, scale: float = 1.0, zero_point: int = 0) -> None:
        super().__init__()
        self.dim, self.scale, self.zero_point = dim, scale, zero_point

    def forward(self, input: Any) -> Any:
        """Apply to a quantized tensor."""
        return functional.through_float(
            input,
            "quantized softmax",
            lambda x: F.softmax(x, self.dim),
            self.scale,
            self.zero_point,
        )

    @staticmethod
    def from_float(mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Return the module for an observed float one."""
        return Softmax.from_reference(mod, *output_scale(mod))

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> Any:
        """Return the module for a float one, with the output's scale and zero point."""
        return cls(mod.dim, float(scale), int(zero_point))


class PReLU(nn.Module):
    """x, or a learned multiple of x below zero, of quantized tensors.

    Args:
        output_scale: of the output.
        output_zero_point: of the output.
        num_parameters: multiples: one, or one per channel.
    """

    def __init__(
        self, output_scale: float, output_zero_point: int, num_parameters: int = 1
    ) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.scale, self.zero_point = output_scale, output_zero_point
        weight = tangrad.randn(num_parameters)
        self.set_weight(layout.quantize_per_tensor(weight, 1.0, 0, tangrad.quint8))

    def set_weight(self, w: Any) -> None:
        """Replace the multiples, a quantized tensor."""
        self.weight = w

    def forward(self, input: Any) -> Any:
        """Apply to a quantized tensor."""
        multiples = layout.dequantize(self.weight)
        return functional.through_float(
            input,
            "quantized prelu",
            lambda x: F.prelu(x, multiples),
            self.scale,
            self.zero_point,
        )

    def _get_name(self) -> str:
        return "QuantizedPReLU"

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Return the module for an observed float one."""
        return cls.from_reference(mod, *output_scale(mod))

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> Any:
        """Return the module for a float one, with the output's scale and zero point."""
        made = cls(float(scale), int(zero_point), mod.num_parameters)
        observer = mod.qconfig.weight()
        observer(mod.weight)
        if observer.dtype != tangrad.quint8:
            raise AssertionError(
                f"PReLU's weight observer must have dtype quint8 but got {observer.dtype}"
            )
        made.set_weight(quantized_weight(mod.weight, observer))
        return made
