"""PyTorch's mark of what of `torch.fx` stays as it is, which other packages put on their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["compatibility"]


def compatibility(is_backward_compatible: bool) -> Callable[[Any], Any]:
    """Return a decorator that says in a docstring whether a function or class may change."""

    def mark(fn: Any) -> Any:
        says = "Backwards-compatibility for this API is guaranteed."
        if not is_backward_compatible:
            says = "This API is experimental and is *NOT* backward-compatible."
        fn.__doc__ = f"{fn.__doc__ or ''}\n\n.. note::\n    {says}\n"
        return fn

    return mark
