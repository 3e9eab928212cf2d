"""What a function returns: which results a graph can make, and which hold what is the program's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tangrad
from tangrad.utils import _pytree
from tangrad_jit._guards import attributes
from tangrad_jit.capture.errors import CaptureError

__all__ = ["check_result", "containers", "mapped"]


def mapped(function: Callable[[Any], Any], item: Any) -> Any:
    """Return what a function makes of the leaves of an item; the item, if it makes nothing else."""
    leaves, spec = _pytree.tree_flatten(item)
    made = [function(leaf) for leaf in leaves]
    same = all(a is b for a, b in zip(leaves, made, strict=True))
    return item if same else _pytree.tree_unflatten(made, spec)


def check_result(tensor: Any) -> None:
    """Refuse a result that is more than what a graph makes."""
    if type(tensor) is not tangrad.Tensor:
        raise CaptureError(
            f"a result is a {type(tensor).__name__}, and a graph makes plain tensors"
        )
    if attributes(tensor) is not None:
        raise CaptureError(f"a result has attributes ({', '.join(attributes(tensor))})")
    if tensor.requires_grad and tensor.retains_grad:
        raise CaptureError("a result keeps its gradient (retain_grad): ask for that outside")


def containers(item: Any) -> Iterator[Any]:
    """Yield the lists and dicts in nested ones and in tuples."""
    if isinstance(item, (list, dict)):
        yield item
    if isinstance(item, (tuple, list, dict)):
        for member in item.values() if isinstance(item, dict) else item:
            yield from containers(member)
