"""Normalization over the last dimensions, groups of channels, neighbouring channels."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad import Tensor
from tangrad.nn import functional as F
from tangrad.nn import init
from tangrad.nn.modules.module import Module
from tangrad.nn.parameter import Parameter

__all__ = ["CrossMapLRN2d", "GroupNorm", "LayerNorm", "LocalResponseNorm", "RMSNorm"]


class LayerNorm(Module):
    r"""Normalize over the last dimensions (Ba et al. 2016, https://arxiv.org/abs/1607.06450).

    Computes \((x - E[x]) / \sqrt{\mathrm{Var}[x] + \epsilon} \cdot \gamma + \beta\), with the
    biased variance.

    Args:
        normalized_shape: sizes of the last dimensions, or the size of the last one.
        eps: added to the variance.
        elementwise_affine: whether to learn \(\gamma\) (`weight`, ones at first) and \(\beta\).
        bias: whether to learn \(\beta\) (`bias`, zeros at first).
        device: device of the parameters.
        dtype: dtype of the parameters.
    """

    normalized_shape: tuple[int, ...]
    eps: float
    elementwise_affine: bool

    def __init__(
        self,
        normalized_shape: Any,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if hasattr(normalized_shape, "__index__"):
            normalized_shape = (normalized_shape,)
        self.normalized_shape = tuple(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        for name, wanted in (
            ("weight", elementwise_affine),
            ("bias", elementwise_affine and bias),
        ):
            empty = (
                Parameter(tangrad.empty(self.normalized_shape, device=device, dtype=dtype))
                if wanted
                else None
            )
            self.register_parameter(name, empty)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the weight to ones and the bias to zeros."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Show shape and constants."""
        return (
            f"{self.normalized_shape}, eps={self.eps}, "
            f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        )


class RMSNorm(Module):
    r"""Divide the last dimensions by their root mean square (Zhang, Sennrich, arXiv:1910.07467).

    Computes \(x / \sqrt{E[x^2] + \epsilon} \cdot \gamma\).

    Args:
        normalized_shape: sizes of the last dimensions, or the size of the last one.
        eps: added to the mean square; default: the machine epsilon of the input's dtype.
        elementwise_affine: whether to learn \(\gamma\) (`weight`, ones at first).
        device: device of the weight.
        dtype: dtype of the weight.
    """

    normalized_shape: tuple[int, ...]
    eps: float | None
    elementwise_affine: bool

    def __init__(
        self,
        normalized_shape: Any,
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if hasattr(normalized_shape, "__index__"):
            normalized_shape = (normalized_shape,)
        self.normalized_shape = tuple(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        weight = None
        if elementwise_affine:
            weight = Parameter(tangrad.empty(self.normalized_shape, device=device, dtype=dtype))
        self.register_parameter("weight", weight)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the weight to ones."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        """Show shape and constants."""
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        )


class GroupNorm(Module):
    """Normalize groups of channels of each sample (Wu, He 2018, https://arxiv.org/abs/1803.08494).

    Args:
        num_groups: number of groups.
        num_channels: number of channels.
        eps: added to the variance.
        affine: whether to learn a factor (`weight`) and a summand (`bias`) per channel.
        device: device of the parameters.
        dtype: dtype of the parameters.
        bias: whether to learn the summand, when `affine`.

    Raises:
        ValueError: if `num_channels` is not divisible by `num_groups`.
    """

    weight: Tensor
    bias: Tensor

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_channels % num_groups != 0:
            raise ValueError(
                f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})"
            )
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            empty = tangrad.empty(num_channels, device=device, dtype=dtype) if wanted else None
            self.register_parameter(name, None if empty is None else Parameter(empty))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the weight to ones and the bias to zeros."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape, (N, num_channels, *)."""
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Show the sizes and constants."""
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


class LocalResponseNorm(Module):
    """Divide by a power of the mean square of neighbouring channels (Krizhevsky et al. 2012).

    Args:
        size: number of channels in the mean.
        alpha: factor of the mean.
        beta: exponent.
        k: summand.
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape, (N, C, *)."""
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        """Show the constants."""
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(Module):
    """Divide images by a power of the sum of squares of neighbouring channels.

    Like `LocalResponseNorm`, with windows of an odd number of channels: those of an even `size`
    are one smaller, while `alpha` is divided by `size`.

    Args:
        size: number of channels.
        alpha: factor of the sum, times `size`.
        beta: exponent.
        k: summand.
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape, (N, C, H, W).

        Raises:
            ValueError: the input is not of four dimensions.
        """
        if input.dim() != 4:
            raise ValueError(f"CrossMapLRN2d: Expected input to be 4D, got {input.dim()}D instead.")
        reach = (self.size - 1) // 2
        squares = F.pad((input * input).flatten(2).unsqueeze(1), (0, 0, reach, reach))
        sums = F.avg_pool2d(squares, (2 * reach + 1, 1), 1, divisor_override=1)
        scale = sums.reshape(tuple(input.shape)) * (self.alpha / self.size) + self.k
        return input * scale.pow(-self.beta)

    def extra_repr(self) -> str:
        """Show the constants."""
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
