"""Layers that change only the shape."""

from __future__ import annotations

from typing import Any

from tangrad import Tensor
from tangrad.nn.modules.module import Module

__all__ = ["Flatten", "Unflatten"]


class Flatten(Module):
    """Join a range of dimensions into one.

    Args:
        start_dim: first dimension to join.
        end_dim: last dimension to join.
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Tensor) -> Tensor:
        """Return `input.flatten(start_dim, end_dim)`."""
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        """Show the range."""
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Split a dimension into several.

    Args:
        dim: the dimension to split.
        unflattened_size: the sizes it is split into; one may be -1.

    Raises:
        TypeError: if `dim` is no integer or `unflattened_size` no sequence of integers.
    """

    def __init__(self, dim: int, unflattened_size: Any) -> None:
        super().__init__()
        if not isinstance(dim, int):
            raise TypeError(f"Unflatten: dim must be an int, got {type(dim).__name__}")
        if not isinstance(unflattened_size, (tuple, list)):
            raise TypeError(
                "unflattened_size must be a tuple of ints, "
                f"but found type {type(unflattened_size).__name__}"
            )
        for position, size in enumerate(unflattened_size):
            if not isinstance(size, int):
                raise TypeError(
                    "unflattened_size must be tuple of ints, "
                    f"but found element of type {type(size).__name__} at pos {position}"
                )
        self.dim = dim
        self.unflattened_size = unflattened_size

    def forward(self, input: Tensor) -> Tensor:
        """Return `input.unflatten(dim, unflattened_size)`."""
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        """Show the dimension and its new sizes."""
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
