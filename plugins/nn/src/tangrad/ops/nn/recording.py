"""Tell whether a backward may pass a tensor, seen through the transforms that it is within."""

from __future__ import annotations

from typing import Any

from tangrad.plugin import level_of


def is_recorded(x: Any) -> bool:
    """Return whether a tensor, or one that it is the batch or the dual form of, needs a gradient.

    Within `vmap` a batched tensor says no where what it stands for is recorded outside.
    """
    while not x.requires_grad:
        level = level_of(x)
        if level is None:
            return False
        x = level.inner
    return True
