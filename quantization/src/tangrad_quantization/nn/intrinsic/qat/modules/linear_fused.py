"""A linear layer and its batch norm, trained as one."""

from __future__ import annotations

from typing import Any

from tangrad import nn
from tangrad.nn import functional as F
from tangrad.nn.utils.fusion import fuse_linear_bn_weights
from tangrad_quantization.nn import intrinsic as nni
from tangrad_quantization.nn.intrinsic.modules import _FusedModule
from tangrad_quantization.nn.intrinsic.qat.modules.folding import WithBatchNorm
from tangrad_quantization.nn.qat.modules.swapping import require_float, require_qconfig


class LinearBn1d(WithBatchNorm, nn.Linear, _FusedModule):
    """A linear layer and a batch norm, with fake quantization of the folded weight.

    Args:
        in_features: size of each input vector.
        out_features: size of each output vector.
        bias: whether the linear layer has one.
        eps: of the batch norm.
        momentum: of the batch norm.
        freeze_bn: keep its statistics.
        qconfig: whose `weight` makes the fake quantization.
    """

    _FLOAT_MODULE = nni.LinearBn1d

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        eps: float = 1e-05,
        momentum: float = 0.1,
        freeze_bn: bool = False,
        qconfig: Any = None,
    ) -> None:
        nn.Linear.__init__(self, in_features, out_features, bias)
        require_qconfig(qconfig)
        self._attach(nn.BatchNorm1d(out_features, eps, momentum), freeze_bn, qconfig)

    def forward(self, input: Any) -> Any:
        """Compute with the folded weight rounded."""
        return self.normalized(lambda weight, bias: F.linear(input, weight, bias))

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Return the module for float ones, which it shares its parameters with."""
        require_float(cls, mod)
        linear, bn = mod[0], mod[1]
        made = cls(
            linear.in_features,
            linear.out_features,
            linear.bias is not None,
            bn.eps,
            bn.momentum,
            False,
            mod.qconfig,
        )
        return made._take_over(linear, bn)

    def to_float(self) -> Any:
        """Return the linear layer with the batch norm folded in."""
        made = nn.Linear(self.in_features, self.out_features)
        bn = self.bn
        made.weight, made.bias = fuse_linear_bn_weights(
            self.weight, self.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
        )
        return made
