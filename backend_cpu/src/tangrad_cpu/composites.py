"""Calls that are one op here while they are small, where composites make them of several."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from tangrad.plugin import find_op

# Elements up to which one call is faster than vectorised sums along each dimension.
_FEW = 2048
_WIDE = frozenset(("float32", "float64"))

_op = cache(find_op)


def _window_average(input: Any, *window: Any) -> Any:
    """Average windows of a few elements in one call, with the bits of sums along each dimension."""
    if input.numel() > _FEW or input.dtype.name not in _WIDE:
        return None
    return _op("window_average")(input, *window)


COMPOSITES: Mapping[str, Callable[..., Any]] = MappingProxyType({"window_average": _window_average})
