"""Pooling layers."""

from __future__ import annotations

from typing import Any

from tangrad import Tensor
from tangrad.nn import functional as F
from tangrad.nn.modules.module import Module
from tangrad.nn.modules.utils import _ntuple

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "FractionalMaxPool2d",
    "FractionalMaxPool3d",
    "LPPool1d",
    "LPPool2d",
    "LPPool3d",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
]


class _MaxPoolNd(Module):
    """Return the largest element of each window.

    Args:
        kernel_size: size of the window.
        stride: step between windows; `kernel_size` by default.
        padding: elements of minus infinity on both sides.
        dilation: step between the elements of a window.
        return_indices: return where the largest elements are, too.
        ceil_mode: round the output's size up.
    """

    _function: str

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

    def forward(self, input: Tensor) -> Any:
        """Map (N, C, *) to (N, C, *); N may be missing."""
        return getattr(F, self._function)(
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


class _AvgPoolNd(Module):
    """Hold what averages over windows of any number of dimensions share; see `AvgPool2d`."""

    def extra_repr(self) -> str:
        """Show the window."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPoolNd):
    """Return the mean of each window of sequences.

    Arguments are those of `AvgPool2d`, without `divisor_override`.
    """

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        spread = _ntuple(1)
        self.kernel_size = spread(kernel_size)
        self.stride = spread(stride if stride is not None else kernel_size)
        self.padding = spread(padding)
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        """Map (N, C, L) to (N, C, L'); N may be missing."""
        return F.avg_pool1d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
        )


class _AvgPoolOverNumber(_AvgPoolNd):
    """Hold what averages that may divide by a given number share; see `AvgPool2d`."""

    _function: str

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

    def forward(self, input: Tensor) -> Tensor:
        """Map (N, C, *) to (N, C, *); N may be missing."""
        return getattr(F, self._function)(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )


class AvgPool2d(_AvgPoolOverNumber):
    """Return the mean of each window of images (N, C, H, W).

    Args:
        kernel_size: size of the window.
        stride: step between windows; `kernel_size` by default.
        padding: zeros on both sides.
        ceil_mode: round the output's size up.
        count_include_pad: whether the zeros of the padding count in the mean.
        divisor_override: number to divide by instead of the window's size.
    """

    _function = "avg_pool2d"


class AvgPool3d(_AvgPoolOverNumber):
    """Return the mean of each window of volumes (N, C, D, H, W).

    Args:
        kernel_size: size of the window.
        stride: step between windows; `kernel_size` by default.
        padding: zeros on both sides.
        ceil_mode: round the output's size up.
        count_include_pad: whether the zeros of the padding count in the mean.
        divisor_override: number to divide by instead of the window's size.
    """

    _function = "avg_pool3d"


class _AdaptiveAvgPoolNd(Module):
    """Return the means of windows that divide the input as evenly as possible.

    Args:
        output_size: how many windows: one number, or one for each dimension, None for as many as
            elements.
    """

    _function: str

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        """Map (N, C, *) to (N, C, *output_size); N may be missing."""
        return getattr(F, self._function)(input, self.output_size)

    def extra_repr(self) -> str:
        """Show the output's size."""
        return f"output_size={self.output_size}"


class _AdaptiveMaxPoolNd(Module):
    """Return the largest element of windows that divide the input as evenly as possible.

    Args:
        output_size: how many windows: one number, or one for each dimension, None for as many as
            elements.
        return_indices: return where the largest elements are, too.
    """

    _function: str

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size = output_size
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Any:
        """Map (N, C, *) to (N, C, *output_size); N may be missing."""
        return getattr(F, self._function)(input, self.output_size, self.return_indices)

    def extra_repr(self) -> str:
        """Show the output's size."""
        return f"output_size={self.output_size}"


class _FractionalMaxPoolNd(Module):
    """Return the largest element of windows at random distances (Graham 2014, arXiv:1412.6071).

    Args:
        kernel_size: size of the windows.
        output_size: how many there are; or
        output_ratio: their number by the size of the input, between 0 and 1.
        return_indices: return where the largest elements are, too.
        _random_samples: random numbers to place the windows by, of shape (N, C, dimensions);
            drawn by default.

    Raises:
        ValueError: unless exactly one of `output_size` and `output_ratio` is given, and ratios
            lie between 0 and 1.
    """

    _dimensions: int
    _function: str

    def __init__(
        self,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Any = None,
    ) -> None:
        super().__init__()
        spread = _ntuple(self._dimensions)
        self.kernel_size = spread(kernel_size)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = spread(output_size) if output_size is not None else None
        self.output_ratio = spread(output_ratio) if output_ratio is not None else None
        name = type(self).__name__
        if output_size is None and output_ratio is None:
            raise ValueError(
                f"{name} requires specifying either an output size, or a pooling ratio"
            )
        if output_size is not None and output_ratio is not None:
            raise ValueError("only one of output_size and output_ratio may be specified")
        if self.output_ratio is not None and not all(0 < r < 1 for r in self.output_ratio):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")

    def forward(self, input: Tensor) -> Any:
        """Map (N, C, *) to (N, C, *); N may be missing."""
        return getattr(F, self._function)(
            input,
            self.kernel_size,
            self.output_size,
            self.output_ratio,
            self.return_indices,
            _random_samples=self._random_samples,
        )


class _LPPoolNd(Module):
    """Return the p-norm of each window.

    Args:
        norm_type: p.
        kernel_size: size of the window.
        stride: step between windows; `kernel_size` by default.
        ceil_mode: round the output's size up.
    """

    _function: str

    def __init__(
        self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        """Map (N, C, *) to (N, C, *); N may be missing."""
        return getattr(F, self._function)(
            input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode
        )

    def extra_repr(self) -> str:
        """Show the norm and the window."""
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class _MaxUnpoolNd(Module):
    """Put the elements that max pooling found back, and zeros elsewhere.

    Args:
        kernel_size: size of the window of the pooling.
        stride: its step; `kernel_size` by default.
        padding: its padding.
    """

    _dimensions: int
    _function: str

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        spread = _ntuple(self._dimensions)
        self.kernel_size = spread(kernel_size)
        self.stride = spread(stride if stride is not None else kernel_size)
        self.padding = spread(padding)

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        """Map (N, C, *) and where its elements were to (N, C, *); N may be missing."""
        return getattr(F, self._function)(
            input, indices, self.kernel_size, self.stride, self.padding, output_size
        )

    def extra_repr(self) -> str:
        """Show the window."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxPool1d(_MaxPoolNd):
    """Return the largest element of each window of sequences (N, C, L).

    Args:
        kernel_size: size of the window.
        stride: step between windows; `kernel_size` by default.
        padding: elements of minus infinity on both sides.
        dilation: step between the elements of a window.
        return_indices: return where the largest elements are, too.
        ceil_mode: round the output's size up.
    """

    _function = "max_pool1d"


class MaxPool2d(_MaxPoolNd):
    """Return the largest element of each window of images (N, C, H, W).

    Args:
        kernel_size: size of the window.
        stride: step between windows; `kernel_size` by default.
        padding: elements of minus infinity on both sides.
        dilation: step between the elements of a window.
        return_indices: return where the largest elements are, too.
        ceil_mode: round the output's size up.
    """

    _function = "max_pool2d"


class MaxPool3d(_MaxPoolNd):
    """Return the largest element of each window of volumes (N, C, D, H, W).

    Args:
        kernel_size: size of the window.
        stride: step between windows; `kernel_size` by default.
        padding: elements of minus infinity on both sides.
        dilation: step between the elements of a window.
        return_indices: return where the largest elements are, too.
        ceil_mode: round the output's size up.
    """

    _function = "max_pool3d"


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """Return means of windows of sequences (N, C, L), as many as wanted.

    Args:
        output_size: how many windows: one number, or one for each dimension, None for as many as
            elements.
    """

    _function = "adaptive_avg_pool1d"


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """Return means of windows of images (N, C, H, W), as many as wanted.

    Args:
        output_size: how many windows: one number, or one for each dimension, None for as many as
            elements.
    """

    _function = "adaptive_avg_pool2d"


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """Return means of windows of volumes (N, C, D, H, W), as many as wanted.

    Args:
        output_size: how many windows: one number, or one for each dimension, None for as many as
            elements.
    """

    _function = "adaptive_avg_pool3d"


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """Return the largest elements of windows of sequences (N, C, L), as many as wanted.

    Args:
        output_size: how many windows: one number, or one for each dimension, None for as many as
            elements.
        return_indices: return where the largest elements are, too.
    """

    _function = "adaptive_max_pool1d"


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """Return the largest elements of windows of images (N, C, H, W), as many as wanted.

    Args:
        output_size: how many windows: one number, or one for each dimension, None for as many as
            elements.
        return_indices: return where the largest elements are, too.
    """

    _function = "adaptive_max_pool2d"


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """Return the largest elements of windows of volumes (N, C, D, H, W), as many as wanted.

    Args:
        output_size: how many windows: one number, or one for each dimension, None for as many as
            elements.
        return_indices: return where the largest elements are, too.
    """

    _function = "adaptive_max_pool3d"


class FractionalMaxPool2d(_FractionalMaxPoolNd):
    """Return the largest elements of random windows of images (N, C, H, W).

    Args:
        kernel_size: size of the windows.
        output_size: how many there are; or
        output_ratio: their number by the size of the input, between 0 and 1.
        return_indices: return where the largest elements are, too.
    """

    _dimensions = 2
    _function = "fractional_max_pool2d"


class FractionalMaxPool3d(_FractionalMaxPoolNd):
    """Return the largest elements of random windows of volumes (N, C, D, H, W).

    Args:
        kernel_size: size of the windows.
        output_size: how many there are; or
        output_ratio: their number by the size of the input, between 0 and 1.
        return_indices: return where the largest elements are, too.
    """

    _dimensions = 3
    _function = "fractional_max_pool3d"


class LPPool1d(_LPPoolNd):
    """Return the p-norm of each window of sequences (N, C, L).

    Args:
        norm_type: p.
        kernel_size: size of the window.
        stride: step between windows; `kernel_size` by default.
        ceil_mode: round the output's size up.
    """

    _function = "lp_pool1d"


class LPPool2d(_LPPoolNd):
    """Return the p-norm of each window of images (N, C, H, W).

    Args:
        norm_type: p.
        kernel_size: size of the window.
        stride: step between windows; `kernel_size` by default.
        ceil_mode: round the output's size up.
    """

    _function = "lp_pool2d"


class LPPool3d(_LPPoolNd):
    """Return the p-norm of each window of volumes (N, C, D, H, W).

    Args:
        norm_type: p.
        kernel_size: size of the window.
        stride: step between windows; `kernel_size` by default.
        ceil_mode: round the output's size up.
    """

    _function = "lp_pool3d"


class MaxUnpool1d(_MaxUnpoolNd):
    """Put what max pooling found in sequences (N, C, L) back.

    Args:
        kernel_size: size of the window of the pooling.
        stride: its step; `kernel_size` by default.
        padding: its padding.
    """

    _dimensions = 1
    _function = "max_unpool1d"


class MaxUnpool2d(_MaxUnpoolNd):
    """Put what max pooling found in images (N, C, H, W) back.

    Args:
        kernel_size: size of the window of the pooling.
        stride: its step; `kernel_size` by default.
        padding: its padding.
    """

    _dimensions = 2
    _function = "max_unpool2d"


class MaxUnpool3d(_MaxUnpoolNd):
    """Put what max pooling found in volumes (N, C, D, H, W) back.

    Args:
        kernel_size: size of the window of the pooling.
        stride: its step; `kernel_size` by default.
        padding: its padding.
    """

    _dimensions = 3
    _function = "max_unpool3d"
