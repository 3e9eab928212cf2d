"""Losses that ask for a margin: between scores of classes, or of pairs and triplets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tangrad import Tensor
from tangrad.nn import functional as F
from tangrad.nn.modules.distance import PairwiseDistance
from tangrad.nn.modules.loss import _Loss, _WeightedLoss

__all__ = [
    "CosineEmbeddingLoss",
    "HingeEmbeddingLoss",
    "MarginRankingLoss",
    "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss",
    "MultiMarginLoss",
    "SoftMarginLoss",
    "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
]


class CosineEmbeddingLoss(_Loss):
    """Return 1 - cos of two vectors where the target is 1, max(0, cos - margin) where it is -1.

    Args:
        margin: cosine up to which unlike vectors cost nothing.
        size_average: deprecated.
        reduce: deprecated.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
    """

    def __init__(
        self,
        margin: float = 0.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        """Return a scalar, or with reduction ``"none"`` a tensor of the losses."""
        return F.cosine_embedding_loss(
            input1,
            input2,
            target,
            margin=self.margin,
            reduction=self.reduction,
        )


class HingeEmbeddingLoss(_Loss):
    """Return a distance where the target is 1, and where it is -1 what it lacks to a margin.

    Args:
        margin: distance from which on unlike pairs cost nothing.
        size_average: deprecated.
        reduce: deprecated.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
    """

    def __init__(
        self,
        margin: float = 1.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return a scalar, or with reduction ``"none"`` a tensor of the losses."""
        return F.hinge_embedding_loss(
            input,
            target,
            margin=self.margin,
            reduction=self.reduction,
        )


class MarginRankingLoss(_Loss):
    """Ask the first score to exceed the second by a margin, or where the target is -1 vice versa.

    Args:
        margin: what one score should be greater by.
        size_average: deprecated.
        reduce: deprecated.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
    """

    def __init__(
        self,
        margin: float = 0.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        """Return a scalar, or with reduction ``"none"`` a tensor of the losses."""
        return F.margin_ranking_loss(
            input1,
            input2,
            target,
            margin=self.margin,
            reduction=self.reduction,
        )


class MultiLabelMarginLoss(_Loss):
    """Ask the scores of several target classes to exceed all others by 1."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return a scalar, or with reduction ``"none"`` a tensor of the losses."""
        return F.multilabel_margin_loss(
            input,
            target,
            reduction=self.reduction,
        )


class MultiLabelSoftMarginLoss(_WeightedLoss):
    """Average over the classes the cross entropy of the sigmoid of scores."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return a scalar, or with reduction ``"none"`` a tensor of the losses."""
        return F.multilabel_soft_margin_loss(
            input,
            target,
            weight=self.weight,
            reduction=self.reduction,
        )


class MultiMarginLoss(_WeightedLoss):
    """Ask the score of the target class to exceed all others by a margin.

    Args:
        p: exponent, 1 or 2.
        margin: what the target's score should be greater by.
        weight: factor for each class.
        size_average: deprecated.
        reduce: deprecated.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        ValueError: if `p` is neither 1 nor 2, or `weight` has not one dimension.
    """

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: Any = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        if p not in (1, 2):
            raise ValueError(f"only p == 1 and p == 2 supported, got {p}")
        if weight is not None and weight.dim() != 1:
            raise ValueError(f"weight must be one-dimensional, got shape {list(weight.shape)}")
        self.p = p
        self.margin = margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return a scalar, or with reduction ``"none"`` a tensor of the losses."""
        return F.multi_margin_loss(
            input,
            target,
            p=self.p,
            margin=self.margin,
            weight=self.weight,
            reduction=self.reduction,
        )


class SoftMarginLoss(_Loss):
    """Return log(1 + exp(-target input)) for targets 1 and -1."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return a scalar, or with reduction ``"none"`` a tensor of the losses."""
        return F.soft_margin_loss(
            input,
            target,
            reduction=self.reduction,
        )


class TripletMarginLoss(_Loss):
    """Ask a negative to be farther from the anchor than the positive is, by a margin.

    Args:
        margin: greater than 0.
        p: exponent of the norm that measures distance.
        eps: added to each difference.
        swap: take the distance of positive and negative where that is less.
        size_average: deprecated.
        reduce: deprecated.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        ValueError: if `margin` is not positive.
    """

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        if margin <= 0:
            raise ValueError(f"margin must be greater than 0, got {margin}")
        self.margin = margin
        self.p = p
        self.eps = eps
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """Return a scalar, or with reduction ``"none"`` a tensor of the losses."""
        return F.triplet_margin_loss(
            anchor,
            positive,
            negative,
            margin=self.margin,
            p=self.p,
            eps=self.eps,
            swap=self.swap,
            reduction=self.reduction,
        )


class TripletMarginWithDistanceLoss(_Loss):
    """Ask a negative to be farther from the anchor than the positive is, by a margin.

    Args:
        distance_function: of two tensors; default: `PairwiseDistance()`.
        margin: greater than 0.
        swap: take the distance of positive and negative where that is less.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        ValueError: if `margin` is not positive.
    """

    def __init__(
        self,
        *,
        distance_function: Callable[[Any, Any], Any] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction=reduction)
        self.distance_function = distance_function or PairwiseDistance()
        if margin <= 0:
            raise ValueError(f"margin must be greater than 0, got {margin}")
        self.margin = margin
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """Return a scalar, or with reduction ``"none"`` a tensor of the losses."""
        return F.triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=self.distance_function,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
        )
