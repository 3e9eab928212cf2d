"""A linear layer and the cross entropy of its scores, as one module."""

from __future__ import annotations

import math
from typing import Any

from tangrad import Tensor
from tangrad.nn import functional as F
from tangrad.nn.linear_cross_entropy import LinearCrossEntropyOptions
from tangrad.nn.modules.linear import Linear
from tangrad.nn.modules.loss import _WeightedLoss

__all__ = ["LinearCrossEntropyLoss", "LinearCrossEntropyOptions"]


class LinearCrossEntropyLoss(_WeightedLoss):
    """Return the cross entropy of a linear layer's scores against classes.

    Args:
        in_features: size of the input.
        num_classes: number of classes.
        out_features: further sizes of the targets, (d1, ...).
        bias: whether the layer has a bias.
        device: device of the layer.
        dtype: dtype of the layer.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        weight: factor for each class.
        ignore_index: class that does not count; default: -100.
        label_smoothing: share of the uniform distribution in the target.
        options: work in chunks to save memory.

    Raises:
        RuntimeError: if the shape of `weight` does not fit, or `label_smoothing` is outside [0, 1].
    """

    linear: Linear

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        device: Any = None,
        dtype: Any = None,
        reduction: str = "mean",
        weight: Any = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: LinearCrossEntropyOptions | None = None,
    ) -> None:
        if weight is not None and tuple(weight.shape) != (num_classes,):
            raise RuntimeError(
                f"expected weight shape to be {(num_classes,)}, got {tuple(weight.shape)}"
            )
        if not 0 <= label_smoothing <= 1:
            raise RuntimeError(
                f"expected label_smoothing to be in range [0, 1], got {label_smoothing}"
            )
        super().__init__(weight, None, None, reduction)
        self.num_classes = num_classes
        self.out_features = out_features
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        count = math.prod(out_features, start=num_classes)
        self.linear = Linear(in_features, count, bias=bias, device=device, dtype=dtype)
        self.options = options

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return a scalar, or with reduction ``"none"`` a tensor of the losses."""
        shape = (self.num_classes, *self.out_features)
        bias = self.linear.bias
        return F.linear_cross_entropy(
            input,
            self.linear.weight.reshape((*shape, self.linear.in_features)),
            target,
            linear_bias=None if bias is None else bias.reshape(shape),
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            options=self.options,
        )

    def extra_repr(self) -> str:
        """Show the sizes and options."""
        return (
            f"in_features={self.linear.in_features}, num_classes={self.num_classes}, "
            f"out_features={self.out_features}, bias={self.linear.bias is not None}, "
            f"reduction={self.reduction}, ignore_index={self.ignore_index}, "
            f"label_smoothing={self.label_smoothing}, options={self.options}"
        )
