"""The tensors of a sample as views: with gaps between elements, at an offset, axes turned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tangrad
from tangrad.plugin import materialise

GAP = 77


def arguments_on(make: Callable[[np.ndarray, str], Any], sample: Any) -> tuple[Any, Any]:
    """Return a sample's arguments, every tensor being a strided view.

    Args:
        make: makes a contiguous tensor of an array and the name of its dtype.
        sample: the arguments.
    """

    def spread(array: np.ndarray, dtype: str) -> Any:
        if array.ndim == 0 or array.size == 0:
            return make(array, dtype)
        shape = (*(n + 1 for n in array.shape[:-1]), 2 * array.shape[-1] + 1)
        filler = 1 if array.dtype == bool else GAP
        wide = np.full(shape, filler).astype(array.dtype)
        inner = (*(slice(1, None) for _ in array.shape[:-1]), slice(1, None, 2))
        wide[inner] = array
        turned = tuple(range(array.ndim))[::-1]
        stored = make(np.ascontiguousarray(wide.transpose(turned)), dtype)
        return stored.permute(turned)[inner]

    return materialise(sample, spread, lambda name: getattr(tangrad, name))
