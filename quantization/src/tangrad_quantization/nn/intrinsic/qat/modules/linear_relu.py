"""A linear layer and its ReLU with fake quantization."""

from __future__ import annotations

from typing import Any

from tangrad import nn
from tangrad.nn import functional as F
from tangrad_quantization.nn import intrinsic as nni
from tangrad_quantization.nn import qat as nnqat
from tangrad_quantization.nn.intrinsic.modules import _FusedModule


class LinearReLU(nnqat.Linear, _FusedModule):
    """A linear layer and a ReLU, with fake quantization of the weight."""

    _FLOAT_MODULE = nni.LinearReLU

    def forward(self, input: Any) -> Any:
        """Compute with the rounded weight."""
        return F.relu(F.linear(input, self.weight_fake_quant(self.weight), self.bias))

    def to_float(self) -> Any:
        """Return the float modules, fused."""
        return nni.LinearReLU(super().to_float(), nn.ReLU()).train(self.training)
