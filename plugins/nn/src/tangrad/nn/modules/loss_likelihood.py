"""Losses that are likelihoods, and losses of regression that are gentle to outliers."""

from __future__ import annotations

from typing import Any

from tangrad import Tensor
from tangrad.nn import functional as F
from tangrad.nn.modules.loss import NLLLoss, _Loss, _WeightedLoss

__all__ = [
    "BCELoss",
    "CTCLoss",
    "GaussianNLLLoss",
    "HuberLoss",
    "KLDivLoss",
    "NLLLoss2d",
    "PoissonNLLLoss",
    "SmoothL1Loss",
]


class BCELoss(_WeightedLoss):
    """Return the cross entropy of probabilities against probabilities."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return a scalar, or with reduction ``"none"`` a tensor of the losses."""
        return F.binary_cross_entropy(
            input,
            target,
            weight=self.weight,
            reduction=self.reduction,
        )


class KLDivLoss(_Loss):
    """Return the divergence of Kullback and Leibler of log-probabilities from a distribution.

    Args:
        size_average: deprecated.
        reduce: deprecated.
        reduction: ``"batchmean"``, ``"mean"``, ``"sum"`` or ``"none"``.
        log_target: whether the target is given as log-probabilities.
    """

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        log_target: bool = False,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_target = log_target

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return a scalar, or with reduction ``"none"`` a tensor of the losses."""
        return F.kl_div(
            input,
            target,
            log_target=self.log_target,
            reduction=self.reduction,
        )


class PoissonNLLLoss(_Loss):
    """Return the negative log-likelihood of counts that are Poisson distributed.

    Args:
        log_input: whether the input is the logarithm of the expected count.
        full: add the logarithm of the count's factorial.
        size_average: deprecated.
        eps: added to an expected count before its logarithm is taken.
        reduce: deprecated.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
    """

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        size_average: bool | None = None,
        eps: float = 1e-8,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_input = log_input
        self.full = full
        self.eps = eps

    def forward(self, log_input: Any, target: Tensor) -> Tensor:
        """Return a scalar, or with reduction ``"none"`` a tensor of the losses."""
        return F.poisson_nll_loss(
            log_input,
            target,
            log_input=self.log_input,
            full=self.full,
            eps=self.eps,
            reduction=self.reduction,
        )


class GaussianNLLLoss(_Loss):
    """Return the negative log-likelihood of normally distributed numbers.

    Args:
        full: add the constant log(2 pi) / 2.
        eps: least variance.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
    """

    def __init__(
        self,
        *,
        full: bool = False,
        eps: float = 1e-6,
        reduction: str = "mean",
    ) -> None:
        super().__init__(None, None, reduction)
        self.full = full
        self.eps = eps

    def forward(self, input: Tensor, target: Tensor, var: Tensor) -> Tensor:
        """Return a scalar, or with reduction ``"none"`` a tensor of the losses."""
        return F.gaussian_nll_loss(
            input,
            target,
            var,
            full=self.full,
            eps=self.eps,
            reduction=self.reduction,
        )


class CTCLoss(_Loss):
    """Return the negative log-likelihood of label sequences under all their alignments.

    Args:
        blank: the label that stands for none.
        reduction: ``"mean"`` (of the losses divided by the targets' lengths), ``"sum"`` or
            ``"none"``.
        zero_infinity: count targets that are too long for the input as 0, not as infinite.
    """

    def __init__(
        self,
        blank: int = 0,
        reduction: str = "mean",
        zero_infinity: bool = False,
    ) -> None:
        super().__init__(reduction=reduction)
        self.blank = blank
        self.zero_infinity = zero_infinity

    def forward(
        self, log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any
    ) -> Tensor:
        """Return a scalar, or with reduction ``"none"`` a tensor of the losses."""
        return F.ctc_loss(
            log_probs,
            targets,
            input_lengths,
            target_lengths,
            blank=self.blank,
            zero_infinity=self.zero_infinity,
            reduction=self.reduction,
        )


class SmoothL1Loss(_Loss):
    """Return a squared difference up to `beta`, an absolute one beyond (arXiv:1504.08083).

    Args:
        size_average: deprecated.
        reduce: deprecated.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        beta: where the one becomes the other; 0 for `L1Loss`.
    """

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        beta: float = 1.0,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.beta = beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return a scalar, or with reduction ``"none"`` a tensor of the losses."""
        return F.smooth_l1_loss(
            input,
            target,
            beta=self.beta,
            reduction=self.reduction,
        )


class HuberLoss(_Loss):
    """Return a squared difference up to `delta`, an absolute one of slope `delta` beyond.

    Args:
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        delta: where the one becomes the other, positive.

    Raises:
        TypeError: `delta` is no float or int.
    """

    def __init__(
        self,
        reduction: str = "mean",
        delta: float = 1.0,
    ) -> None:
        if not isinstance(delta, (float, int)):
            raise TypeError(f"HuberLoss: delta must be a float or int, got: {type(delta)}")
        super().__init__(reduction=reduction)
        self.delta = delta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return a scalar, or with reduction ``"none"`` a tensor of the losses."""
        return F.huber_loss(
            input,
            target,
            delta=self.delta,
            reduction=self.reduction,
        )


class NLLLoss2d(NLLLoss):
    """`NLLLoss` by an old name."""

    def __init__(
        self,
        weight: Any = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        import warnings

        warnings.warn(
            "NLLLoss2d has been deprecated. Please use NLLLoss instead as a drop-in replacement.",
            FutureWarning,
            stacklevel=2,
        )
        super().__init__(weight, size_average, ignore_index, reduce, reduction)
