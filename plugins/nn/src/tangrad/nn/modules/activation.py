"""Elementwise nonlinearities, and softmax."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad import Tensor
from tangrad.nn import functional as F
from tangrad.nn import init as initialize
from tangrad.nn.modules.module import Module
from tangrad.nn.parameter import Parameter

__all__ = [
    "ELU",
    "GELU",
    "Hardtanh",
    "LeakyReLU",
    "LogSoftmax",
    "PReLU",
    "ReLU",
    "ReLU6",
    "Sigmoid",
    "SiLU",
    "Softmax",
    "Softmin",
    "Tanh",
]


class ReLU(Module):
    """Return max(0, x), elementwise.

    Args:
        inplace: write into the input.
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        return F.relu(input, inplace=self.inplace)

    def extra_repr(self) -> str:
        """Show whether it works in place."""
        return "inplace=True" if self.inplace else ""


def _renamed(old: str, new: str, value: float) -> float:
    import warnings

    warnings.warn(
        f"keyword argument `{old}` is deprecated and rename to `{new}`",
        FutureWarning,
        stacklevel=3,
    )
    return value


class Hardtanh(Module):
    """Return the elements clamped to [min_val, max_val].

    Args:
        min_val: lower bound.
        max_val: upper bound.
        inplace: write into the input.
        min_value: deprecated name of `min_val`.
        max_value: deprecated name of `max_val`.

    Raises:
        AssertionError: unless `min_val` is less than `max_val`.
    """

    def __init__(
        self,
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
        min_value: float | None = None,
        max_value: float | None = None,
    ) -> None:
        super().__init__()
        if min_value is not None:
            min_val = _renamed("min_value", "min_val", min_value)
        if max_value is not None:
            max_val = _renamed("max_value", "max_val", max_value)
        if max_val <= min_val:
            raise AssertionError(f"max_val must be larger than min_val: {max_val}, {min_val}")
        self.min_val = min_val
        self.max_val = max_val
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        """Show the bounds."""
        inplace = ", inplace=True" if self.inplace else ""
        return f"min_val={self.min_val}, max_val={self.max_val}{inplace}"


class ReLU6(Hardtanh):
    """Return min(max(0, x), 6), elementwise.

    Args:
        inplace: write into the input.
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self) -> str:
        """Show whether it works in place."""
        return "inplace=True" if self.inplace else ""


class Sigmoid(Module):
    """Return 1 / (1 + exp(-x)), elementwise."""

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        return F.sigmoid(input)


class Tanh(Module):
    """Return the hyperbolic tangent, elementwise."""

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        return F.tanh(input)


class SiLU(Module):
    """Return x sigmoid(x), elementwise (Hendrycks, Gimpel 2016, arXiv:1606.08415).

    Args:
        inplace: write into the input.
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        return F.silu(input, inplace=self.inplace)

    def extra_repr(self) -> str:
        """Show whether it works in place."""
        return "inplace=True" if self.inplace else ""


class GELU(Module):
    """Return x times the normal distribution function of x (arXiv:1606.08415).

    Args:
        approximate: ``"none"``, or ``"tanh"`` for an approximation by tanh.
    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        return F.gelu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        """Show the kind of approximation."""
        return f"approximate={self.approximate!r}"


class LeakyReLU(Module):
    """Return x where it is positive, `negative_slope` times x elsewhere.

    Args:
        negative_slope: slope for negative numbers.
        inplace: write into the input.
    """

    def __init__(self, negative_slope: float = 1e-2, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope = negative_slope
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        return F.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self) -> str:
        """Show the slope."""
        inplace = ", inplace=True" if self.inplace else ""
        return f"negative_slope={self.negative_slope}{inplace}"


class PReLU(Module):
    """Return x where it is positive, a learned slope times x elsewhere (arXiv:1502.01852).

    Args:
        num_parameters: 1, or a slope for each channel.
        init: the slope at first.
        device: device of the slopes.
        dtype: dtype of the slopes.

    Attributes:
        weight: the slopes (num_parameters).
    """

    num_parameters: int

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(tangrad.empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the slopes to what they were at first."""
        initialize.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        """Show the number of slopes."""
        return f"num_parameters={self.num_parameters}"


class ELU(Module):
    """Return x where it is positive, `alpha` (exp(x) - 1) elsewhere (arXiv:1511.07289).

    Args:
        alpha: the limit for very negative numbers is minus `alpha`.
        inplace: write into the input.
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        return F.elu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        """Show alpha."""
        inplace = ", inplace=True" if self.inplace else ""
        return f"alpha={self.alpha}{inplace}"


class _AlongDim(Module):
    """Hold the dimension along which probabilities sum to 1.

    Args:
        dim: the dimension.
    """

    dim: int | None

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("dim", None)


class Softmax(_AlongDim):
    """Return exp(x) divided by its sum along `dim`."""

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        return F.softmax(input, self.dim)

    def extra_repr(self) -> str:
        """Show the dimension."""
        return f"dim={self.dim}"


class Softmin(_AlongDim):
    """Return `Softmax` of the negated input."""

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        return F.softmin(input, self.dim)

    def extra_repr(self) -> str:
        """Show the dimension."""
        return f"dim={self.dim}"


class LogSoftmax(_AlongDim):
    """Return the logarithm of `Softmax`, computed without overflow."""

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        return F.log_softmax(input, self.dim)

    def extra_repr(self) -> str:
        """Show the dimension."""
        return f"dim={self.dim}"
