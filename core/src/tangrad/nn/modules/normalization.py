"""Normalization over the last dimensions."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.nn import functional as F
from tangrad.nn import init
from tangrad.nn.modules.module import Module
from tangrad.nn.parameter import Parameter

__all__ = ["LayerNorm", "RMSNorm"]


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

    def forward(self, input: Any) -> Any:
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

    def forward(self, input: Any) -> Any:
        """Return a tensor of the input's shape."""
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        """Show shape and constants."""
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        )
