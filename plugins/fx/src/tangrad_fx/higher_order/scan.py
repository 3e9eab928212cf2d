"""`scan`: a loop that carries values along and keeps what each step gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tangrad import Tensor
from tangrad.utils import _pytree
from tangrad_fx.higher_order.slices import Nested, length_along, require_callable, stacked

__all__ = ["scan"]


def scan(
    combine_fn: Callable[[Nested, Nested], tuple[Nested, Nested]],
    init: Nested,
    xs: Nested,
    *,
    dim: int = 0,
    reverse: bool = False,
) -> tuple[Nested, Nested]:
    """Call a function on what it carried so far and one slice after the other.

    Args:
        combine_fn: (carried, slice) to (carried, result), the carried like `init`.
        init: nested tensors that are carried into the first step.
        xs: nested tensors, sliced along `dim`.
        dim: the dimension; results are stacked along it, along 0 if they have fewer dimensions.
        reverse: whether to begin with the last slice. Results stand where their slices do.

    Returns:
        What was carried out of the last step, and the stacked results.

    Raises:
        RuntimeError: arguments are not of these kinds; the carried values change in kind.
    """
    require_callable("scan", combine_fn)
    if type(reverse) is not bool:
        raise RuntimeError(f"scan: reverse must be a bool, got {type(reverse).__name__}")
    leaves, spec = _pytree.tree_flatten(xs)
    if not leaves:
        return init, []
    carried, kind = init, _kind(init)
    if not kind[0]:
        raise RuntimeError("scan: init must hold tensors, got none")
    length = length_along("scan", leaves, dim)
    results = []
    for i in reversed(range(length)) if reverse else range(length):
        some = _pytree.tree_unflatten([leaf.select(dim, i) for leaf in leaves], spec)
        carried, result = combine_fn(carried, some)
        if _kind(carried) != kind:
            raise RuntimeError(
                f"scan: combine_fn must carry on what it is given, took {kind[0]} and returned "
                f"{_kind(carried)[0]}"
            )
        results.append(result)
    if reverse:
        results.reverse()
    return carried, stacked("scan", results, dim % leaves[0].dim())


def _kind(nested: Nested) -> tuple[list[str], Any]:
    leaves, spec = _pytree.tree_flatten(nested)
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise RuntimeError(
                f"scan: all that is carried must be tensors, got {type(leaf).__name__}"
            )
    return [f"{leaf.dtype}{list(leaf.shape)}" for leaf in leaves], spec
