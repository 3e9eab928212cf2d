"""The dtypes of typed programs: their kinds and sizes, what meets in what."""

from __future__ import annotations

from tangrad.expr.errors import ExpressionTypeError
from tangrad.expr.syntax import DTYPES

KINDS: dict[str, str] = {
    dtype: {"bo": "b", "ui": "u", "in": "i", "fl": "f", "bf": "f", "co": "c"}[dtype[:2]]
    for dtype in DTYPES
}
BITS: dict[str, int] = {
    dtype: int(dtype.lstrip("abcdefghijklmnopqrstuvwxyz") or 8) for dtype in DTYPES
}
ORDER = "buifc"
# What definitions call them.
WORDS = {"bool": "b", "integral": "ui", "floating": "f", "complex": "c", "all": ORDER}
REAL = {"complex64": "float32", "complex128": "float64"}
COMPLEX = {"float32": "complex64", "float64": "complex128"}
HALVES = ("float16", "bfloat16")


def compute_type(dtype: str) -> str:
    """Return the dtype to compute in for operands of ``dtype``: float32 for the half types."""
    if dtype not in KINDS:
        raise ExpressionTypeError(f"unknown dtype {dtype!r}; known: {', '.join(DTYPES)}")
    return "float32" if dtype in HALVES else dtype


def promote(a: str, b: str) -> str:
    """Return the type in which values of types ``a`` and ``b`` meet."""
    if a == b:
        return a
    low, high = sorted((a, b), key=lambda dtype: (ORDER.index(KINDS[dtype]), BITS[dtype]))
    if KINDS[high] == "c":
        parts = promote(REAL.get(low, low), REAL[high]) if KINDS[low] in "fc" else REAL[high]
        return COMPLEX[parts]
    if KINDS[low] == "u" and KINDS[high] == "i" and BITS[low] >= BITS[high]:
        return f"int{min(64, 2 * BITS[low])}"
    return high


def kinds_of(words: str) -> set[str]:
    """Return the kinds of dtypes that words of a definition name, such as "floating complex"."""
    return {kind for word in words.split() for kind in WORDS.get(word, "")}


def accepted(words: str) -> tuple[str, ...]:
    """Return the dtypes of these kinds."""
    kinds = kinds_of(words)
    return tuple(dtype for dtype in DTYPES if KINDS[dtype] in kinds)


def result_dtype(result: str, dtype: str) -> str:
    """Return the dtype of a result that a definition names, such as "real", for a promoted one."""
    if result == "promoted":
        return dtype
    if result == "real":
        return REAL.get(dtype, dtype)
    if result == "complex":
        return dtype if dtype in REAL else COMPLEX.get(dtype, "complex64")
    if result == "truth":
        return "uint8" if dtype == "uint8" else "bool"
    return result
