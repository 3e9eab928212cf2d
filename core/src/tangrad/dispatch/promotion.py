"""The promotion rule of a definition, as text."""

from __future__ import annotations

from typing import Any

from tangrad import _C

_KIND_WORDS = {
    "bool": "bool",
    "uint": "integral",
    "int": "integral",
    "float": "floating",
    "complex": "complex",
}


def describe_promotion(definition: Any, name: str) -> str:
    """Return "computes in X -> results" for inputs of a dtype, or "" where it is not accepted."""
    promoted = _C.dtype_by_name(name)
    if definition.promote == "float" and promoted.kind in ("bool", "uint", "int"):
        promoted = _C.get_default_dtype()
    if definition.promote == "sum" and promoted.kind in ("bool", "uint", "int"):
        promoted = _C.dtype_by_name("int64")
    words = definition.dtypes.split()
    kind = _KIND_WORDS.get(promoted.kind)  # none for elements that are no numbers
    if kind is None or ("all" not in words and kind not in words):
        return ""
    results = []
    for result in definition.results:
        if result == "promoted":
            results.append(promoted.name)
        elif result == "real":
            results.append(promoted.to_real().name)
        elif result == "complex":
            results.append(promoted.to_complex().name)
        elif result == "truth":
            results.append("uint8" if promoted.name == "uint8" else "bool")
        else:
            results.append(result)
    return f"computes in {promoted.compute} -> {', '.join(results)}"
