"""A linear layer whose weight is rounded as it will be when quantized."""

from __future__ import annotations

from typing import Any

from tangrad import nn
from tangrad.nn import functional as F
from tangrad_quantization.nn.intrinsic.modules import LinearReLU
from tangrad_quantization.nn.qat.modules.swapping import (
    require_float,
    require_qconfig,
    take_over,
    with_parameters_of,
)


class Linear(nn.Linear):
    """A linear layer with fake quantization of its weight.

    Args:
        in_features: size of each input vector.
        out_features: size of each output vector.
        bias: whether there is one.
        qconfig: whose `weight` makes the fake quantization.
        device: of the parameters.
        dtype: of the parameters.
    """

    _FLOAT_MODULE: Any = nn.Linear

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        qconfig: Any = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        made = {"device": device, "dtype": dtype}
        super().__init__(in_features, out_features, bias, **made)
        require_qconfig(qconfig)
        self.qconfig = qconfig
        self.weight_fake_quant = qconfig.weight(factory_kwargs=made)

    def forward(self, input: Any) -> Any:
        """Compute with the rounded weight."""
        return F.linear(input, self.weight_fake_quant(self.weight), self.bias)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Return the module for a float one, which it shares its parameters with."""
        require_float(cls, mod)
        qconfig = mod.qconfig
        if isinstance(mod, LinearReLU):
            mod = mod[0]
        made = cls(mod.in_features, mod.out_features, mod.bias is not None, qconfig=qconfig)
        take_over(made, mod, "weight", "bias")
        return made

    def to_float(self) -> Any:
        """Return the float module, which shares the memory of the parameters."""
        return with_parameters_of(
            self, nn.Linear(self.in_features, self.out_features, self.bias is not None)
        )
