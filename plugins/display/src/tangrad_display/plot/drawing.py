"""What the pictures share: matplotlib, and numbers of tensors for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tangrad import Tensor
from tangrad_display.figures import numbers_of


def pyplot() -> Any:
    """Return matplotlib's `pyplot`.

    Raises:
        RuntimeError: matplotlib is not installed.
    """
    try:
        import matplotlib.pyplot as found
    except ImportError:
        raise RuntimeError(
            "tangrad.plot draws by matplotlib, which is not installed; "
            "run: pip install tangrad-display[plot]"
        ) from None
    return found


def axes_of(ax: Any, size: tuple[float, float] | None = None) -> Any:
    """Return the axes that were given, or those of a new figure of a size in inches."""
    if ax is not None:
        return ax
    return pyplot().figure(figsize=size, layout="constrained").add_subplot()


def array_of(value: Any, name: str, dims: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return a tensor, an array or a nested list as float64.

    Args:
        value: what was given.
        name: function and argument, for errors.
        dims: numbers of dimensions that it may have.

    Raises:
        ValueError: it has another number of dimensions.
    """
    tensor = isinstance(value, Tensor)
    found = numbers_of(value.detach()) if tensor else np.asarray(value, dtype=np.float64)
    if found.ndim not in dims:
        wanted = " or ".join(map(str, dims))
        raise ValueError(f"{name} must have {wanted} dimensions, got shape {list(found.shape)}")
    return found
