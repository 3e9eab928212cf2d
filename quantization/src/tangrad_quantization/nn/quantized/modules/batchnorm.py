"""Batch norms of quantized tensors, where no convolution stands before to fold them into."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad import nn
from tangrad.nn import functional as F
from tangrad_quantization import functional
from tangrad_quantization.nn import intrinsic as nni
from tangrad_quantization.nn.quantized.modules.weights import ScaleBuffers, output_scale


class _BatchNorm(ScaleBuffers, nn.modules.batchnorm._BatchNorm):
    """What the classes below share."""

    _name: str
    _relu = False

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, **made: Any
    ) -> None:
        super().__init__(num_features, eps, momentum, True, True, **made)
        self.register_buffer("scale", tangrad.tensor(1.0))
        self.register_buffer("zero_point", tangrad.tensor(0))

    def _get_name(self) -> str:
        return self._name

    def _check_input_dim(self, input: Any) -> None:
        if input.dim() != self._dims:
            raise ValueError(f"{self._name}: Input shape must have {self._dims} dimensions!")

    _dims: int

    def forward(self, input: Any) -> Any:
        """Normalize a quantized tensor by the running statistics."""
        self._check_input_dim(input)
        return functional.through_float(input, self._name, self._normalize, *self.ends())

    def _normalize(self, x: Any) -> Any:
        made = F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps
        )
        return made.relu() if self._relu else made

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Return the module for an observed float one."""
        return cls.from_reference(mod, *output_scale(mod))

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> Any:
        """Return the module for a float one, with the output's scale and zero point."""
        bn = mod[0] if isinstance(mod, nni._FusedModule) else mod
        made = cls(bn.num_features, bn.eps)
        made.weight, made.bias = bn.weight, bn.bias
        made.running_mean, made.running_var = bn.running_mean, bn.running_var
        made.scale = tangrad.tensor(float(scale))
        made.zero_point = tangrad.tensor(int(zero_point))
        return made


class BatchNorm2d(_BatchNorm):
    """Batch normalization of quantized images."""

    _name, _dims = "QuantizedBatchNorm2d", 4


class BatchNorm3d(_BatchNorm):
    """Batch normalization of quantized volumes."""

    _name, _dims = "QuantizedBatchNorm3d", 5
