"""`associative_scan`: what a function makes of the first slice, the first two, and so on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tangrad
from tangrad import Tensor
from tangrad.utils import _pytree
from tangrad_fx.higher_order.slices import Nested, length_along, require_callable

__all__ = ["associative_scan"]

Combine = Callable[[list[Tensor], list[Tensor]], list[Tensor]]


def associative_scan(
    combine_fn: Callable[[Nested, Nested], Nested],
    xs: Nested,
    dim: int,
    reverse: bool = False,
    combine_mode: str = "pointwise",
) -> Nested:
    """Return the running results of an associative function along a dimension.

    The function is called 2 log2(n) times for n slices, on many pairs at once (G. E. Blelloch,
    Prefix sums and their applications, 1990).

    Args:
        combine_fn: (a, b) to what they make together, nested like one slice of `xs`.
        xs: nested tensors.
        dim: the dimension.
        reverse: whether to begin with the last slice.
        combine_mode: "pointwise" for a function of elements, called on many slices at once;
            "generic" for one of whole slices, which is mapped over them by `vmap`.

    Raises:
        RuntimeError: arguments are not of these kinds.
        ValueError: `combine_mode` is another.
    """
    require_callable("associative_scan", combine_fn)
    if combine_mode not in ("pointwise", "generic"):
        raise ValueError(
            f"associative_scan: combine_mode must be 'pointwise' or 'generic', got {combine_mode!r}"
        )
    leaves, spec = _pytree.tree_flatten(xs)
    if not leaves:
        raise ValueError("associative_scan: expected at least 1 xs leaf")
    length_along("associative_scan", leaves, dim)
    function: Callable[..., Any] = combine_fn
    if combine_mode == "generic":
        function = tangrad.vmap(combine_fn)

    def combine(a: list[Tensor], b: list[Tensor]) -> list[Tensor]:
        found = function(_pytree.tree_unflatten(a, spec), _pytree.tree_unflatten(b, spec))
        flat, found_spec = _pytree.tree_flatten(found)
        if found_spec != spec:
            raise RuntimeError(
                "associative_scan: combine_fn must nest its result like its arguments"
            )
        return flat

    moved = [leaf.movedim(dim, 0) for leaf in leaves]
    if reverse:
        moved = [leaf.flip(0) for leaf in moved]
    running = _running(combine, moved)
    if reverse:
        running = [leaf.flip(0) for leaf in running]
    return _pytree.tree_unflatten([leaf.movedim(0, dim) for leaf in running], spec)


def _running(combine: Combine, xs: list[Tensor]) -> list[Tensor]:
    """Return the running results along the first dimension: those of pairs, and what is between."""
    length = xs[0].shape[0]
    if length < 2:
        return xs
    odd = _running(combine, combine([x[:-1:2] for x in xs], [x[1::2] for x in xs]))
    if length == 2:
        return [tangrad.cat([x[:1], o]) for x, o in zip(xs, odd, strict=True)]
    between = combine([o[: (length - 1) // 2] for o in odd], [x[2::2] for x in xs])
    even = [tangrad.cat([x[:1], b]) for x, b in zip(xs, between, strict=True)]
    return [_interleaved(e, o) for e, o in zip(even, odd, strict=True)]


def _interleaved(even: Tensor, odd: Tensor) -> Tensor:
    paired = tangrad.stack([even[: len(odd)], odd], dim=1).flatten(0, 1)
    return paired if len(even) == len(odd) else tangrad.cat([paired, even[-1:]])
