"""Between pixels and channels."""

from __future__ import annotations

from tangrad import Tensor
from tangrad.nn import functional as F
from tangrad.nn.modules.module import Module

__all__ = ["PixelShuffle", "PixelUnshuffle"]


class PixelShuffle(Module):
    """Turn channels into pixels (Shi et al. 2016, https://arxiv.org/abs/1609.05158).

    Args:
        upscale_factor: r, by which height and width grow.
    """

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        """Map (*, C r r, H, W) to (*, C, H r, W r)."""
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        """Show the factor."""
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """Turn pixels into channels: the inverse of `PixelShuffle`.

    Args:
        downscale_factor: r, by which height and width shrink.
    """

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        """Map (*, C, H r, W r) to (*, C r r, H, W)."""
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        """Show the factor."""
        return f"downscale_factor={self.downscale_factor}"
