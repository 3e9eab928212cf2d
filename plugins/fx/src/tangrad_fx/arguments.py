"""Arguments of a call that is recorded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tangrad import Tensor

__all__ = ["told_apart"]


def told_apart(leaves: Iterable[Any], taken: Iterable[Any] = ()) -> list[Any]:
    """Return leaves in which no tensor stands twice, nor is one of those that are taken.

    A graph has an input for each place, and a recorder knows tensors by identity: a tensor that
    was given before is replaced by another of the same memory.

    Args:
        leaves: of the arguments.
        taken: tensors that the graph has inputs for already.
    """
    seen = {id(t) for t in taken}
    made = []
    for leaf in leaves:
        if isinstance(leaf, Tensor):
            if id(leaf) in seen:
                leaf = leaf.detach().requires_grad_(leaf.requires_grad)
            seen.add(id(leaf))
        made.append(leaf)
    return made
