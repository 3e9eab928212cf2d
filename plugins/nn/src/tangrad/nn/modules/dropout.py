"""Dropout (Hinton et al. 2012, https://arxiv.org/abs/1207.0580)."""

from __future__ import annotations

from tangrad import Tensor
from tangrad.nn import functional as F
from tangrad.nn.modules.module import Module

__all__ = [
    "AlphaDropout",
    "Dropout",
    "Dropout1d",
    "Dropout2d",
    "Dropout3d",
    "FeatureAlphaDropout",
]


class _DropoutNd(Module):
    """Hold the probability and the flag that all dropout layers have.

    Args:
        p: probability of an element to become zero.
        inplace: write into the input.

    Raises:
        ValueError: if `p` lies outside [0, 1].
    """

    p: float
    inplace: bool

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if p < 0 or p > 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p = p
        self.inplace = inplace

    def extra_repr(self) -> str:
        """Show the probability."""
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_DropoutNd):
    """In training, zero elements with probability `p` and scale the rest by 1 / (1 - p)."""

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        return F.dropout(input, self.p, self.training, self.inplace)


class Dropout1d(_DropoutNd):
    """In training, zero channels with probability `p` and scale the rest by 1 / (1 - p).

    The input is (N, C, L) or (C, L).
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_DropoutNd):
    """In training, zero channels with probability `p` and scale the rest by 1 / (1 - p).

    The input is (N, C, H, W) or (N, C, L).
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        return F.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(_DropoutNd):
    """In training, zero channels with probability `p` and scale the rest by 1 / (1 - p).

    The input is (N, C, D, H, W) or (C, D, H, W).
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        return F.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(_DropoutNd):
    """In training, replace elements with probability `p` by the limit of SELU.

    Scale and shift keep mean 0 and variance 1 (https://arxiv.org/abs/1706.02515).
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        return F.alpha_dropout(input, self.p, self.training, self.inplace)


class FeatureAlphaDropout(_DropoutNd):
    """In training, replace channels of (N, C, ...) with probability `p` by the limit of SELU.

    Scale and shift keep mean 0 and variance 1 (https://arxiv.org/abs/1706.02515).
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        return F.feature_alpha_dropout(input, self.p, self.training, self.inplace)
