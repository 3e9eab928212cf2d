"""A linear layer that knows how its weight will be quantized."""

from __future__ import annotations

from typing import Any

from tangrad import nn
from tangrad.nn import functional as F
from tangrad_quantization.nn.quantized.reference.modules.weights import ReferenceQuantizedModule


class Linear(ReferenceQuantizedModule, nn.Linear):
    """A linear layer in float that rounds its weight as its quantized form does.

    Args:
        in_features, out_features, bias_, device, dtype: as of `nn.Linear`.
        weight_qparams: {"qscheme", "dtype", "scale", "zero_point", "axis"}.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias_: bool = True,
        device: Any = None,
        dtype: Any = None,
        weight_qparams: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(in_features, out_features, bias_, device=device, dtype=dtype)
        self._init_weight_qparams(weight_qparams, device)

    def _get_name(self) -> str:
        return "QuantizedLinear(Reference)"

    def forward(self, x: Any) -> Any:
        """Apply the layer with the rounded weight."""
        return F.linear(x, self.get_weight(), self.bias)

    @classmethod
    def from_float(cls, float_linear: Any, weight_qparams: dict[str, Any]) -> Any:
        """Return the module for a float one."""
        made = cls(
            float_linear.in_features,
            float_linear.out_features,
            float_linear.bias is not None,
            weight_qparams=weight_qparams,
        )
        return made._take_over(float_linear)
