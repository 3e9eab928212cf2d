"""How far or how like vectors are."""

from __future__ import annotations

from tangrad import Tensor
from tangrad.nn import functional as F
from tangrad.nn.modules.module import Module

__all__ = ["CosineSimilarity", "PairwiseDistance"]


class PairwiseDistance(Module):
    """Return the p-norm of the difference of vectors.

    Args:
        p: exponent of the norm.
        eps: added to each difference.
        keepdim: keep the last dimension, of size 1.
    """

    norm: float

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm = p
        self.eps = eps
        self.keepdim = keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Map (N, D) or (D), and the same, to (N) or ()."""
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


class CosineSimilarity(Module):
    """Return the cosine of the angle between vectors.

    Args:
        dim: dimension of the vectors.
        eps: least product of their norms.
    """

    dim: int
    eps: float

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim = dim
        self.eps = eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Return a tensor without the dimension `dim`."""
        return F.cosine_similarity(x1, x2, self.dim, self.eps)
