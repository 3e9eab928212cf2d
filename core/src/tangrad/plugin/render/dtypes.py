"""Which dtypes an op is called with, and the dtypes of its results."""

from __future__ import annotations

from tangrad.expr.dtypes import COMPLEX, KINDS, REAL
from tangrad.expr.syntax import DTYPES

_WORDS = {"bool": "b", "integral": "ui", "floating": "f", "complex": "c", "all": "buifc"}


def accepted(words: str) -> tuple[str, ...]:
    """Return the dtypes that a definition's `dtypes` accept, such as "floating complex"."""
    kinds = {kind for word in words.split() for kind in _WORDS[word]}
    return tuple(dtype for dtype in DTYPES if KINDS[dtype] in kinds)


def result_dtype(result: str, dtype: str) -> str:
    """Return the dtype of a result of a definition for a promoted dtype."""
    if result == "promoted":
        return dtype
    if result == "real":
        return REAL.get(dtype, dtype)
    if result == "complex":
        return COMPLEX.get(dtype, dtype)
    if result == "truth":
        return "uint8" if dtype == "uint8" else "bool"
    return result
