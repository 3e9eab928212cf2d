"""Dropout in a quantized model, which is for inference: nothing is dropped."""

from __future__ import annotations

from typing import Any

from tangrad import nn


class Dropout(nn.Dropout):
    """Return the input."""

    def forward(self, input: Any) -> Any:
        """Return the tensor."""
        return input

    def _get_name(self) -> str:
        return "QuantizedDropout"

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Return the module for a float one."""
        return cls(mod.p, mod.inplace)

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> Any:
        """Return the module for a float one, with the output's scale and zero point."""
        return cls(mod.p, mod.inplace)
