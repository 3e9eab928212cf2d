"""Values of tensors as C, and as the bytes of a file."""

from __future__ import annotations

from typing import Any

import numpy as np

from tangrad_export.steps.base import ctype

__all__ = ["array_lines", "bytes_of", "literals"]

_COLUMNS = 112


def bytes_of(value: Any) -> bytes:
    """Return the elements of a tensor, or bytes, as they lie in memory."""
    if isinstance(value, bytes):
        return value
    value = value.detach().contiguous()
    if value.is_conj() or value.is_neg():
        value = value.resolve_conj().resolve_neg()
    return bytes(value.untyped_storage().tolist()) if _is_strange(value) else _plain(value)


def _is_strange(value: Any) -> bool:
    return value.dtype.name in ("bfloat16",)


def _plain(value: Any) -> bytes:
    return np.ascontiguousarray(value.numpy()).tobytes()


def literals(content: bytes, dtype: str) -> list[str]:
    """Return the elements as C."""
    if dtype in ("complex64", "complex128"):
        real = "float32" if dtype == "complex64" else "float64"
        parts = literals(content, real)
        return [f"{{{a}, {b}}}" for a, b in zip(parts[::2], parts[1::2], strict=True)]
    if dtype in ("float16", "bfloat16"):
        dtype = "uint16"
    values = np.frombuffer(content, np.dtype("uint8" if dtype == "bool" else dtype))
    if dtype == "float32":
        texts = [f"{v!r}f" for v in map(_shortest, values)]
        return [_special(t) for t in texts]
    if dtype == "float64":
        return [_special(repr(float(v))) for v in values]
    if dtype == "int64":
        return [
            str(v) if abs(v) < 1 << 31 else "INT64_MIN" if v == -(1 << 63) else f"INT64_C({v})"
            for v in values.tolist()
        ]
    mark = {"uint32": "u", "uint64": "u"}.get(dtype, "")
    if dtype == "uint64":
        return [f"UINT64_C({v})" for v in values.tolist()]
    return ["INT32_MIN" if v == -(1 << 31) else f"{v}{mark}" for v in values.tolist()]


def _shortest(value: Any) -> float:
    return float(str(value))


def _special(text: str) -> str:
    plain = text.removesuffix("f") if not text.endswith("inf") else text
    if plain == "nan":
        return "NAN"
    if plain in ("inf", "inff") or text == "inff":
        return "INFINITY"
    if plain in ("-inf", "-inff"):
        return "-INFINITY"
    return text


def array_lines(head: str, content: bytes, dtype: str) -> list[str]:
    """Return the definition of an array.

    Args:
        head: its qualifiers and name, such as "static const float weight".
        content: its elements.
        dtype: of them.
    """
    texts = literals(content, dtype)
    if dtype.startswith("complex"):
        head = head.replace("float ", f"{ctype(dtype)} ")
    lines, line = [f"{head}[{max(1, len(texts))}] = {{"], "   "
    for text in texts or ["0"]:
        if len(line) + len(text) + 2 > _COLUMNS:
            lines.append(line)
            line = "   "
        line += f" {text},"
    return [*lines, line, "};"]
