"""Normalizations of quantized tensors: computed in float32, quantized afterwards."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad import nn
from tangrad.nn import functional as F
from tangrad_quantization import functional
from tangrad_quantization.nn.quantized.modules.weights import ScaleBuffers, output_scale


class _Normalized(ScaleBuffers):
    """What the classes below share; stands before the float class.

    Each takes the arguments of the float class, after weight and bias and the scale and zero
    point of the output, as PyTorch's do.
    """

    _name: str
    _arguments: tuple[str, ...]
    _FLOAT_MODULE: Any

    def _set(self: Any, weight: Any, bias: Any, scale: float, zero_point: int) -> None:
        self.weight, self.bias = weight, bias
        self.register_buffer("scale", tangrad.tensor(scale))
        self.register_buffer("zero_point", tangrad.tensor(zero_point))

    def _get_name(self) -> str:
        return self._name

    def forward(self: Any, input: Any) -> Any:
        """Normalize a quantized tensor."""
        return functional.through_float(input, self._name, self._normalize, *self.ends())

    @classmethod
    def from_float(cls: Any, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Return the module for an observed float one."""
        return cls.from_reference(mod, *output_scale(mod))

    @classmethod
    def from_reference(cls: Any, mod: Any, scale: float, zero_point: int) -> Any:
        """Return the module for a float one, with the output's scale and zero point."""
        first, *rest = (getattr(mod, name) for name in cls._arguments)
        return cls(first, mod.weight, mod.bias, float(scale), int(zero_point), *rest)


class LayerNorm(_Normalized, nn.LayerNorm):
    """Layer normalization of quantized tensors."""

    _name = "QuantizedLayerNorm"
    _arguments = ("normalized_shape", "eps", "elementwise_affine")

    def __init__(
        self,
        normalized_shape: Any,
        weight: Any,
        bias: Any,
        scale: float,
        zero_point: int,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        nn.LayerNorm.__init__(self, normalized_shape, eps, elementwise_affine)
        self._set(weight, bias, scale, zero_point)

    def _normalize(self, x: Any) -> Any:
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)


class _Grouped(_Normalized):
    _arguments = ("num_features", "eps", "momentum", "affine", "track_running_stats")

    def __init__(
        self: Any,
        num_features: int,
        weight: Any,
        bias: Any,
        scale: float,
        zero_point: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        self._FLOAT_MODULE.__init__(self, num_features, eps, momentum, affine, track_running_stats)
        self._set(weight, bias, scale, zero_point)

    def _normalize(self: Any, x: Any) -> Any:
        return F.instance_norm(x, weight=self.weight, bias=self.bias, eps=self.eps)


class GroupNorm(_Normalized, nn.GroupNorm):
    """Group normalization of quantized tensors."""

    _name = "QuantizedGroupNorm"

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        weight: Any,
        bias: Any,
        scale: float,
        zero_point: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        nn.GroupNorm.__init__(self, num_groups, num_channels, eps, affine)
        self._set(weight, bias, scale, zero_point)

    def _normalize(self, x: Any) -> Any:
        return F.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Return the module for an observed float one."""
        return cls.from_reference(mod, *output_scale(mod))

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> Any:
        """Return the module for a float one, with the output's scale and zero point."""
        return cls(
            mod.num_groups,
            mod.num_channels,
            mod.weight,
            mod.bias,
            float(scale),
            int(zero_point),
            mod.eps,
            mod.affine,
        )


class InstanceNorm1d(_Grouped, nn.InstanceNorm1d):
    """Instance normalization over one dimension of quantized tensors."""

    _name, _FLOAT_MODULE = "QuantizedInstanceNorm1d", nn.InstanceNorm1d


class InstanceNorm2d(_Grouped, nn.InstanceNorm2d):
    """Instance normalization over two dimensions of quantized tensors."""

    _name, _FLOAT_MODULE = "QuantizedInstanceNorm2d", nn.InstanceNorm2d


class InstanceNorm3d(_Grouped, nn.InstanceNorm3d):
    """Instance normalization over three dimensions of quantized tensors."""

    _name, _FLOAT_MODULE = "QuantizedInstanceNorm3d", nn.InstanceNorm3d
