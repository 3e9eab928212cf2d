"""`map`: a function of the slices of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tangrad.utils import _pytree
from tangrad_fx.higher_order.slices import Nested, length_along, require_callable, stacked

__all__ = ["map"]


def map(f: Callable[..., Nested], xs: Nested, *args: Any) -> Nested:
    """Call a function on each slice along the first dimension and stack the results.

    Args:
        f: of a slice of `xs` and `args`.
        xs: nested tensors.
        args: handed over as they are.

    Raises:
        RuntimeError: arguments are not of these kinds.
    """
    require_callable("map", f)
    leaves, spec = _pytree.tree_flatten(xs)
    if not leaves:
        raise RuntimeError("map: xs must hold tensors, got none")
    length = length_along("map", leaves, 0)
    slices = (_pytree.tree_unflatten([leaf[i] for leaf in leaves], spec) for i in range(length))
    return stacked("map", [f(some, *args) for some in slices])
