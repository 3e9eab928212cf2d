"""Write to tensors whose elements share memory, one place in memory after the other."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import tangrad


def _places(name: str, t: Any) -> tuple[Any, Any]:
    """Return a vector over a tensor's memory, and where in it each element is; warn as PyTorch."""
    warnings.warn(
        f"Use of {name} on expanded tensors is deprecated. Please clone() the tensor before "
        f"performing this operation: elements of shape {list(t.shape)} share memory by strides "
        f"{list(t.stride())}",
        stacklevel=4,
    )
    reach = 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
    memory = t.as_strided((reach,), (1,), t.storage_offset())
    return memory, tangrad.arange(reach, device=t.device).as_strided(tuple(t.shape), t.stride())


def put(self: Any, indices: Sequence[Any], values: Any, accumulate: bool) -> Any:
    """Put values at indices, as `index_put_` does."""
    memory, places = _places("index_put_", self)
    picked = places[tuple(slice(None) if index is None else index for index in indices)]
    memory.index_put_((picked,), values, accumulate)
    return self


def fill_masked(self: Any, mask: Any, value: Any) -> Any:
    """Fill where a mask is true, as `masked_fill_` does."""
    memory, places = _places("masked_fill_", self)
    memory.index_fill_(0, places[mask.expand(tuple(self.shape))], value)
    return self


def fill_indices(self: Any, dim: int, index: Any, value: Any) -> Any:
    """Fill at the indices of a dimension, as `index_fill_` does."""
    memory, places = _places("index_fill_", self)
    memory.index_fill_(0, places.index_select(dim, index).flatten(), value)
    return self
