"""Conversion from and to element types that come with a codec of their own."""

from __future__ import annotations

from typing import Any


def convert(dst: Any, src: Any) -> None:
    """Write src, converted and broadcast, into dst, where one of them has a foreign dtype."""
    import numpy as np

    from tangrad.tensor import arrays

    arrays.store(dst, np.broadcast_to(arrays.values(src), tuple(dst.shape)))
