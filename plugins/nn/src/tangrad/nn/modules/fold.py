"""Between images and their patches."""

from __future__ import annotations

from typing import Any

from tangrad import Tensor
from tangrad.nn import functional as F
from tangrad.nn.modules.module import Module

__all__ = ["Fold", "Unfold"]


class Fold(Module):
    """Add columns up to images: the adjoint of `Unfold`.

    Args:
        output_size: size of the images.
        kernel_size: size of the windows.
        dilation: step between the elements of a window.
        padding: zeros that surrounded the images.
        stride: step between windows.
    """

    def __init__(
        self,
        output_size: Any,
        kernel_size: Any,
        dilation: Any = 1,
        padding: Any = 0,
        stride: Any = 1,
    ) -> None:
        super().__init__()
        self.output_size = output_size
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        """Map (N, C prod(kernel_size), windows) to (N, C, *output_size); N may be missing."""
        return F.fold(
            input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride
        )

    def extra_repr(self) -> str:
        """Show the sizes."""
        return (
            f"output_size={self.output_size}, kernel_size={self.kernel_size}, "
            f"dilation={self.dilation}, padding={self.padding}, stride={self.stride}"
        )


class Unfold(Module):
    """Copy the sliding windows of images into columns.

    Args:
        kernel_size: size of the windows.
        dilation: step between the elements of a window.
        padding: zeros on all sides.
        stride: step between windows.
    """

    def __init__(
        self, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        """Map (N, C, H, W) to (N, C prod(kernel_size), windows); N may be missing."""
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        """Show the sizes."""
        return (
            f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, "
            f"stride={self.stride}"
        )
