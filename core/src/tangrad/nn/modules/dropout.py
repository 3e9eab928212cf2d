"""Dropout (Hinton et al. 2012, https://arxiv.org/abs/1207.0580)."""

from __future__ import annotations

from typing import Any

from tangrad.nn import functional as F
from tangrad.nn.modules.module import Module

__all__ = ["Dropout"]


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

    def forward(self, input: Any) -> Any:
        """Return a tensor of the input's shape."""
        return F.dropout(input, self.p, self.training, self.inplace)
