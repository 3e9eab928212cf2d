"""Pooling layers."""

from __future__ import annotations

from typing import Any

from tangrad.nn import functional as F
from tangrad.nn.modules.module import Module

__all__ = ["AvgPool2d", "MaxPool2d"]


class MaxPool2d(Module):
    """Return the largest element of each window.

    Args:
        kernel_size: size of the window.
        stride: step between windows; `kernel_size` by default.
        padding: elements of minus infinity on both sides.
        dilation: step between the elements of a window.
        return_indices: return where the largest elements are, too.
        ceil_mode: round the output's size up.
    """

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride if stride is not None else kernel_size
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def forward(self, input: Any) -> Any:
        """Map (N, C, H, W) to (N, C, H', W'); N may be missing."""
        return F.max_pool2d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            ceil_mode=self.ceil_mode,
            return_indices=self.return_indices,
        )

    def extra_repr(self) -> str:
        """Show the window."""
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class AvgPool2d(Module):
    """Return the mean of each window.

    Args:
        kernel_size: size of the window.
        stride: step between windows; `kernel_size` by default.
        padding: zeros on both sides.
        ceil_mode: round the output's size up.
        count_include_pad: whether the zeros of the padding count in the mean.
        divisor_override: number to divide by instead of the window's size.
    """

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride if stride is not None else kernel_size
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: Any) -> Any:
        """Map (N, C, H, W) to (N, C, H', W'); N may be missing."""
        return F.avg_pool2d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )

    def extra_repr(self) -> str:
        """Show the window."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"
