"""What loops over tensors have in common: slices of nested values along one dimension."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad import Tensor
from tangrad.utils import _pytree

Nested = Any


def length_along(name: str, leaves: list[Any], dim: int) -> int:
    """Return how many slices all of some tensors have.

    Args:
        name: of the function, for its errors.
        leaves: the tensors.
        dim: the dimension, which may be negative.

    Raises:
        RuntimeError: they are no tensors, lack the dimension, or have other numbers or none.
    """
    if type(dim) is not int:
        raise RuntimeError(f"{name}: dim must be an int, got {type(dim).__name__}")
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise RuntimeError(
                f"{name}: all leaves of xs must be tensors, got {type(leaf).__name__}"
            )
    sizes = [tuple(leaf.shape) for leaf in leaves]
    if any(not -len(size) <= dim < len(size) for size in sizes):
        raise RuntimeError(f"{name}: all leaves of xs need dimension {dim}, got shapes {sizes}")
    lengths = {size[dim] for size in sizes}
    if len(lengths) != 1 or 0 in lengths:
        raise RuntimeError(
            f"{name}: all leaves of xs need the same number of slices, not 0, along dimension "
            f"{dim}; got shapes {sizes}"
        )
    return lengths.pop()


def require_callable(name: str, function: Any) -> None:
    """Raise unless a function can be called.

    Raises:
        RuntimeError: it cannot.
    """
    if not callable(function):
        raise RuntimeError(f"{name}: expected a function, got {type(function).__name__}")


def stacked(name: str, results: list[Nested], dim: int = 0) -> Nested:
    """Return nested results of the single slices as one nested result of all.

    Args:
        name: of the function, for its errors.
        results: one for each slice, all nested alike.
        dim: where the slices are put; 0 for results with fewer dimensions.

    Raises:
        RuntimeError: they are not nested alike.
    """
    leaves, specs = zip(*map(_pytree.tree_flatten, results), strict=True)
    if any(spec != specs[0] for spec in specs):
        raise RuntimeError(f"{name}: the function must nest its results alike for all slices")

    def joined(same: tuple[Any, ...]) -> Any:
        if not isinstance(same[0], Tensor):
            return same[0]
        return tangrad.stack(same, dim=dim if dim <= same[0].dim() else 0)

    return _pytree.tree_unflatten([joined(same) for same in zip(*leaves, strict=True)], specs[0])
