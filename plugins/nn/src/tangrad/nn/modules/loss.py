"""Losses."""

from __future__ import annotations

from typing import Any

from tangrad import Tensor
from tangrad.nn import functional as F
from tangrad.nn.modules.module import Module

__all__ = ["BCEWithLogitsLoss", "CrossEntropyLoss", "L1Loss", "MSELoss", "NLLLoss"]


def _legacy_reduction(size_average: bool | None, reduce: bool | None) -> str:
    """Return the reduction that two deprecated flags mean."""
    import warnings

    reduction = "mean" if size_average is None or size_average else "sum"
    if reduce is not None and not reduce:
        reduction = "none"
    warnings.warn(
        f"size_average and reduce args will be deprecated, please use reduction='{reduction}' "
        "instead.",
        stacklevel=4,
    )
    return reduction


class _Loss(Module):
    """Hold the reduction of a loss.

    Args:
        size_average: deprecated.
        reduce: deprecated.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
    """

    reduction: str

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        if size_average is not None or reduce is not None:
            reduction = _legacy_reduction(size_average, reduce)
        self.reduction = reduction


class _WeightedLoss(_Loss):
    """Hold the reduction of a loss and its factors, `weight`.

    Args:
        weight: factor for each class, or element.
        size_average: deprecated.
        reduce: deprecated.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
    """

    weight: Any

    def __init__(
        self,
        weight: Any = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


class L1Loss(_Loss):
    """Return the mean absolute difference."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return a scalar, or with reduction ``"none"`` a tensor of the input's shape."""
        return F.l1_loss(input, target, reduction=self.reduction)


class MSELoss(_Loss):
    """Return the mean squared difference."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return a scalar, or with reduction ``"none"`` a tensor of the input's shape."""
        return F.mse_loss(input, target, reduction=self.reduction)


class BCEWithLogitsLoss(_Loss):
    """Return the cross entropy of sigmoid(input) against probabilities.

    Args:
        weight: factor for each element.
        size_average: deprecated.
        reduce: deprecated.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        pos_weight: factor for the positive part.
    """

    def __init__(
        self,
        weight: Any = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        pos_weight: Any = None,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return a scalar, or with reduction ``"none"`` a tensor of the input's shape."""
        return F.binary_cross_entropy_with_logits(
            input, target, self.weight, pos_weight=self.pos_weight, reduction=self.reduction
        )


class NLLLoss(_WeightedLoss):
    """Return the negative log likelihood of the target classes.

    Args:
        weight: factor for each class.
        size_average: deprecated.
        ignore_index: class that does not count.
        reduce: deprecated.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
    """

    def __init__(
        self,
        weight: Any = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return a scalar, or with reduction ``"none"`` a tensor of the target's shape."""
        return F.nll_loss(
            input,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
        )


class CrossEntropyLoss(_WeightedLoss):
    """Return the cross entropy of softmax(input) against classes.

    Args:
        weight: factor for each class.
        size_average: deprecated.
        ignore_index: class that does not count.
        reduce: deprecated.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        label_smoothing: share of the uniform distribution in the target.
    """

    def __init__(
        self,
        weight: Any = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return a scalar, or with reduction ``"none"`` a tensor of shape (N, *)."""
        return F.cross_entropy(
            input,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )
