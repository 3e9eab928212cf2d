"""Padding layers."""

from __future__ import annotations

from typing import Any

from tangrad import Tensor
from tangrad.nn import functional as F
from tangrad.nn.modules.module import Module
from tangrad.nn.modules.utils import _ntuple

__all__ = [
    "CircularPad1d",
    "CircularPad2d",
    "CircularPad3d",
    "ConstantPad1d",
    "ConstantPad2d",
    "ConstantPad3d",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReflectionPad3d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "ReplicationPad3d",
    "ZeroPad1d",
    "ZeroPad2d",
    "ZeroPad3d",
]


class _PadNd(Module):
    """Surround the last dimensions by what lies inside; negative amounts cut off.

    Args:
        padding: one number for all sides, or (before, after) of the last dimension, then of the
            one before it, and so on.
    """

    _dimensions: int
    _mode: str

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = _ntuple(2 * self._dimensions)(padding)

    def forward(self, input: Tensor) -> Tensor:
        """Return a larger tensor; the leading dimensions stay."""
        self._check_input_dim(input)
        return F.pad(input, self.padding, self._mode)

    def _check_input_dim(self, input: Any) -> None:
        """Raise where the mode allows other numbers of dimensions than the layer."""

    def extra_repr(self) -> str:
        """Show the padding."""
        return f"{self.padding}"


class _CircularPadNd(_PadNd):
    _mode = "circular"

    def _check_input_dim(self, input: Any) -> None:
        wanted = (self._dimensions + 1, self._dimensions + 2)
        if input.dim() not in wanted:
            raise ValueError(
                f"expected {wanted[0]}D or {wanted[1]}D input (got {input.dim()}D input)"
            )


class _ConstantPadNd(Module):
    """Surround the last dimensions by a number; negative amounts cut off.

    Args:
        padding: one number for all sides, or (before, after) of the last dimension, then of the
            one before it, and so on.
        value: the number.
    """

    _dimensions: int

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__()
        self.padding = _ntuple(2 * self._dimensions)(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        """Return a larger tensor; the leading dimensions stay."""
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        """Show the padding."""
        return f"padding={self.padding}, value={self.value}"


class CircularPad1d(_CircularPadNd):
    """Surround the last dimension by the other end.

    Args:
        padding: one number for all sides, or (before, after) of each dimension, last first.
    """

    _dimensions = 1


class CircularPad2d(_CircularPadNd):
    """Surround the last two dimensions by the other end.

    Args:
        padding: one number for all sides, or (before, after) of each dimension, last first.
    """

    _dimensions = 2


class CircularPad3d(_CircularPadNd):
    """Surround the last three dimensions by the other end.

    Args:
        padding: one number for all sides, or (before, after) of each dimension, last first.
    """

    _dimensions = 3


class ReflectionPad1d(_PadNd):
    """Surround the last dimension by the mirror image, without its border.

    Args:
        padding: one number for all sides, or (before, after) of each dimension, last first.
    """

    _dimensions = 1
    _mode = "reflect"


class ReflectionPad2d(_PadNd):
    """Surround the last two dimensions by the mirror image, without its border.

    Args:
        padding: one number for all sides, or (before, after) of each dimension, last first.
    """

    _dimensions = 2
    _mode = "reflect"


class ReflectionPad3d(_PadNd):
    """Surround the last three dimensions by the mirror image, without its border.

    Args:
        padding: one number for all sides, or (before, after) of each dimension, last first.
    """

    _dimensions = 3
    _mode = "reflect"


class ReplicationPad1d(_PadNd):
    """Surround the last dimension by copies of the border.

    Args:
        padding: one number for all sides, or (before, after) of each dimension, last first.
    """

    _dimensions = 1
    _mode = "replicate"


class ReplicationPad2d(_PadNd):
    """Surround the last two dimensions by copies of the border.

    Args:
        padding: one number for all sides, or (before, after) of each dimension, last first.
    """

    _dimensions = 2
    _mode = "replicate"


class ReplicationPad3d(_PadNd):
    """Surround the last three dimensions by copies of the border.

    Args:
        padding: one number for all sides, or (before, after) of each dimension, last first.
    """

    _dimensions = 3
    _mode = "replicate"


class ConstantPad1d(_ConstantPadNd):
    """Surround the last dimension by a number.

    Args:
        padding: one number for all sides, or (before, after) of each dimension, last first.
        value: the number.
    """

    _dimensions = 1


class ConstantPad2d(_ConstantPadNd):
    """Surround the last two dimensions by a number.

    Args:
        padding: one number for all sides, or (before, after) of each dimension, last first.
        value: the number.
    """

    _dimensions = 2


class ConstantPad3d(_ConstantPadNd):
    """Surround the last three dimensions by a number.

    Args:
        padding: one number for all sides, or (before, after) of each dimension, last first.
        value: the number.
    """

    _dimensions = 3


class ZeroPad1d(ConstantPad1d):
    """Surround the last dimension by zeros.

    Args:
        padding: one number for all sides, or (before, after) of each dimension, last first.
    """

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        """Show the padding."""
        return f"{self.padding}"


class ZeroPad2d(ConstantPad2d):
    """Surround the last two dimensions by zeros.

    Args:
        padding: one number for all sides, or (before, after) of each dimension, last first.
    """

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        """Show the padding."""
        return f"{self.padding}"


class ZeroPad3d(ConstantPad3d):
    """Surround the last three dimensions by zeros.

    Args:
        padding: one number for all sides, or (before, after) of each dimension, last first.
    """

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        """Show the padding."""
        return f"{self.padding}"
