"""Elementwise nonlinearities without parameters to learn: exponential units, gates, shrinkage."""

from __future__ import annotations

from tangrad import Tensor
from tangrad.nn import functional as F
from tangrad.nn.modules.module import Module

__all__ = [
    "CELU",
    "GLU",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "LogSigmoid",
    "Mish",
    "RReLU",
    "SELU",
    "Softmax2d",
    "Softplus",
    "Softshrink",
    "Softsign",
    "Tanhshrink",
    "Threshold",
]


class CELU(Module):
    """Return x where it is positive, `alpha` (exp(x / alpha) - 1) elsewhere (arXiv:1704.07483).

    Args:
        alpha: minus the limit for negative numbers.
        inplace: write into the input.
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        return F.celu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        """Show the limit."""
        return f"alpha={self.alpha}" + (", inplace=True" if self.inplace else "")


class SELU(Module):
    """Return `elu` scaled so that it keeps mean 0 and variance 1 (arXiv:1706.02515).

    Args:
        inplace: write into the input.
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        return F.selu(input, self.inplace)

    def extra_repr(self) -> str:
        """Show whether it works in place."""
        return "inplace=True" if self.inplace else ""


class Mish(Module):
    """Return x tanh(softplus(x)), elementwise (arXiv:1908.08681).

    Args:
        inplace: write into the input.
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        return F.mish(input, inplace=self.inplace)

    def extra_repr(self) -> str:
        """Show whether it works in place."""
        return "inplace=True" if self.inplace else ""


class Hardsigmoid(Module):
    """Return x / 6 + 1 / 2 clamped to [0, 1], elementwise (arXiv:1905.02244).

    Args:
        inplace: write into the input.
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        return F.hardsigmoid(input, self.inplace)


class Hardswish(Module):
    """Return x hardsigmoid(x), elementwise (arXiv:1905.02244).

    Args:
        inplace: write into the input.
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        return F.hardswish(input, self.inplace)


class LogSigmoid(Module):
    """Return log(1 / (1 + exp(-x))), elementwise, without overflow."""

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        return F.logsigmoid(input)


class Softplus(Module):
    """Return log(1 + exp(beta x)) / beta, elementwise.

    Args:
        beta: steepness.
        threshold: where beta x is greater, the result is x.
    """

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        """Show steepness and threshold."""
        return f"beta={self.beta}, threshold={self.threshold}"


class Softshrink(Module):
    """Move elements towards zero by `lambd`, and those nearer to zero.

    Args:
        lambd: how far, not negative.
    """

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        return F.softshrink(input, self.lambd)

    def extra_repr(self) -> str:
        """Show how far elements are moved."""
        return str(self.lambd)


class Hardshrink(Module):
    """Replace elements between -`lambd` and `lambd` by zero.

    Args:
        lambd: the bound.
    """

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        return F.hardshrink(input, self.lambd)

    def extra_repr(self) -> str:
        """Show the bound."""
        return str(self.lambd)


class Tanhshrink(Module):
    """Return x - tanh(x), elementwise."""

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        return F.tanhshrink(input)


class Softsign(Module):
    """Return x / (1 + |x|), elementwise."""

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        return F.softsign(input)


class Threshold(Module):
    """Return x where it is greater than `threshold`, `value` elsewhere.

    Args:
        threshold: the bound.
        value: what replaces the other elements.
        inplace: write into the input.
    """

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold = threshold
        self.value = value
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        return F.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self) -> str:
        """Show bound and value."""
        inplace = ", inplace=True" if self.inplace else ""
        return f"threshold={self.threshold}, value={self.value}{inplace}"


class RReLU(Module):
    """Return x where it is positive, a slope times x elsewhere (arXiv:1505.00853).

    In training each element's slope is drawn from [lower, upper]; otherwise it is the middle.

    Args:
        lower: least slope.
        upper: greatest slope.
        inplace: write into the input.
    """

    def __init__(
        self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False
    ) -> None:
        super().__init__()
        self.lower = lower
        self.upper = upper
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        """Show the range of slopes."""
        inplace = ", inplace=True" if self.inplace else ""
        return f"lower={self.lower}, upper={self.upper}{inplace}"


class GLU(Module):
    """Multiply the first half along `dim` by the sigmoid of the second half (arXiv:1612.08083).

    Args:
        dim: dimension that is halved.
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of half the size along `dim`."""
        return F.glu(input, self.dim)

    def extra_repr(self) -> str:
        """Show the dimension."""
        return f"dim={self.dim}"


class Softmax2d(Module):
    """Apply softmax over the channels at each place of an image."""

    def forward(self, input: Tensor) -> Tensor:
        """Map (N, C, H, W) or (C, H, W) to the same shape.

        Raises:
            ValueError: if the input has another number of dimensions.
        """
        if input.dim() not in (3, 4):
            raise ValueError(
                f"Softmax2d: expected input to be 3D or 4D, got {input.dim()}D instead"
            )
        return F.softmax(input, -3)
