"""Training a layer and its batch norm as the one quantized layer that they will become.

The weight is scaled by the running statistics before it is rounded, as it will be when folded,
and the output is unscaled before the batch norm sees it (Krishnamoorthi: "Quantizing deep
convolutional networks for efficient inference", 2018, section 3.2.2).
"""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad import nn
from tangrad.nn import init

_OLDER_NAMES = {
    "weight": "gamma",
    "bias": "beta",
    "running_mean": "running_mean",
    "running_var": "running_var",
    "num_batches_tracked": "num_batches_tracked",
}


class WithBatchNorm:
    """What layers with a batch norm inside share; stands before the layer's class."""

    bn: Any
    weight: Any
    bias: Any
    training: bool

    def _attach(self: Any, bn: Any, freeze_bn: bool, qconfig: Any) -> None:
        self.qconfig = qconfig
        self.freeze_bn = freeze_bn if self.training else True
        self.bn = bn
        self.weight_fake_quant = qconfig.weight()
        self.reset_bn_parameters()
        if self.freeze_bn:
            self.freeze_bn_stats()
        else:
            self.update_bn_stats()

    def reset_running_stats(self) -> None:
        """Forget the batch norm's statistics."""
        self.bn.reset_running_stats()

    def reset_bn_parameters(self) -> None:
        """Give the batch norm new parameters."""
        self.bn.reset_running_stats()
        init.uniform_(self.bn.weight)
        init.zeros_(self.bn.bias)

    def update_bn_stats(self: Any) -> Any:
        """Let the batch norm follow the batches."""
        self.freeze_bn = False
        self.bn.training = True
        return self

    def freeze_bn_stats(self: Any) -> Any:
        """Keep the batch norm's statistics as they are."""
        self.freeze_bn = True
        self.bn.training = False
        return self

    def train(self: Any, mode: bool = True) -> Any:
        """Set the mode; a frozen batch norm stays as it is."""
        self.training = mode
        if not self.freeze_bn:
            for module in self.children():
                module.train(mode)
        return self

    def normalized(self: Any, apply: Any) -> Any:
        """Return the batch norm of the layer's output, computed with the folded weight rounded.

        Args:
            apply: what computes the layer of a weight and a bias.
        """
        factor = self.bn.weight / tangrad.sqrt(self.bn.running_var + self.bn.eps)
        over_rows = (-1,) + (1,) * (self.weight.dim() - 1)
        over_channels = (1, -1) + (1,) * (self.weight.dim() - 2)
        rounded = self.weight_fake_quant(self.weight * factor.reshape(over_rows))
        output = apply(rounded, tangrad.zeros_like(factor)) / factor.reshape(over_channels)
        if self.bias is not None:
            output = output + self.bias.reshape(over_channels)
        return self.bn(output)

    def _take_over(self: Any, layer: Any, bn: Any) -> Any:
        self.weight, self.bias = layer.weight, layer.bias
        self.bn.weight, self.bn.bias = bn.weight, bn.bias
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            setattr(self.bn, name, getattr(bn, name))
        return self

    def _load_from_state_dict(
        self: Any,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        *rest: Any,
    ) -> None:
        if local_metadata.get("version") in (None, 1):  # before the batch norm was a module
            for new, old in _OLDER_NAMES.items():
                if prefix + old in state_dict:
                    state_dict[f"{prefix}bn.{new}"] = state_dict.pop(prefix + old)
                elif strict and f"{prefix}bn.{new}" not in state_dict:
                    missing_keys.append(f"{prefix}bn.{new}")
        super()._load_from_state_dict(  # type: ignore[misc]
            state_dict, prefix, local_metadata, strict, missing_keys, *rest
        )


def update_bn_stats(mod: Any) -> None:
    """Let batch norms inside layers follow the batches; for `model.apply`."""
    if isinstance(mod, WithBatchNorm):
        mod.update_bn_stats()


def freeze_bn_stats(mod: Any) -> None:
    """Keep the statistics of batch norms inside layers; for `model.apply`."""
    if isinstance(mod, WithBatchNorm):
        mod.freeze_bn_stats()


BATCH_NORMS = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
