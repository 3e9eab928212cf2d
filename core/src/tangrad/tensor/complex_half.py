"""The dtype `complex32`: two halves; computed in complex64 and rounded once."""

from __future__ import annotations

from typing import Any

from tangrad import _C

NAMES = ("complex32", "chalf")


def register() -> Any:
    """Make the dtype known, and return it."""
    import numpy as np

    def decode(raw: Any) -> Any:
        parts = np.ascontiguousarray(raw).view(np.float16).astype(np.float32)
        return parts.view(np.complex64).reshape(np.shape(raw))

    def encode(numbers: Any) -> Any:
        single = np.ascontiguousarray(numbers, np.complex64)
        halves = single.view(np.float32).astype(np.float16)
        return halves.view(np.uint32).reshape(np.shape(numbers))

    return _C.register_dtype(
        "complex32",
        4,
        "complex",
        "I",
        aliases=("chalf",),
        compute="complex64",
        codec=(decode, encode),
    )
