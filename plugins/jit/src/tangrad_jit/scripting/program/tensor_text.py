"""Tensors as scripts print them: the form of PyTorch's C++ streams, not that of Python's `repr`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

__all__ = ["tensor_text"]

_WIDTH = 80


def tensor_text(value: Any) -> str:
    """Return a tensor as scripts print it."""
    name = value.type().rpartition(".")[2].removesuffix("Tensor")
    sizes = ",".join(map(str, value.shape))
    kind = f"{value.device.type.upper()}{name[0].upper()}{name[1:]}Type"
    plain = value.detach()
    if plain.is_complex():
        plain = plain.real  # as there, where the rest is dropped
    numbers = plain.cpu().tolist()
    body = _body(numbers, value.dim()) if value.numel() else ""
    return f"{body}[ {kind}{{{sizes}}} ]"


def _body(numbers: Any, dim: int) -> str:
    if dim == 0:
        return f"{_shortest(numbers)}\n" if isinstance(numbers, float) else f"{int(numbers)}\n"
    if dim == 1:
        scale, shown = _format(numbers)
        return _scaled(scale) + "".join(f"{shown(number)}\n" for number in numbers)
    if dim == 2:
        return _matrix(numbers, 0)
    parts = []
    shape = []
    level = numbers
    for _ in range(dim - 2):
        shape.append(len(level))
        level = level[0] if level else []
    for reverse in itertools.product(*map(range, reversed(shape))):
        index = reverse[::-1]  # the first dimension runs fastest
        inner = numbers
        for k in index:
            inner = inner[k]
        at = "".join(f"{k + 1}," for k in index)
        parts.append(f"({at}.,.) = \n{_matrix(inner, 1)}")
    return "\n".join(parts)


def _scaled(scale: float) -> str:
    return "" if scale == 1.0 else f"{_shortest(scale)} *\n"


def _shortest(number: float) -> str:
    return repr(number).removesuffix(".0")


def _matrix(rows: list[Any], indent: int) -> str:
    """Return a matrix, in several parts where its rows are wider than a line."""
    width = len(rows[0]) if rows else 0
    if not width:
        return ""
    scale, shown = _format([number for row in rows for number in row])
    some = max(1, (_WIDTH - indent) // (len(shown(0.0)) + 1))
    made = ""
    for first in range(0, width, some):
        last = min(first + some, width)
        if some < width:
            made += "\n" * bool(first) + f"Columns {first + 1} to {last}" + " " * indent
        if scale != 1.0:
            made += _scaled(scale) + " " * indent
        begin = " " * indent + " " * (scale != 1.0)
        made += f"\n{begin}".join(" ".join(map(shown, row[first:last])) for row in rows) + "\n"
    return made


def _exponent(number: float) -> int:
    return math.floor(math.log10(number)) + 1 if number else 1


def _format(numbers: list[Any]) -> tuple[float, Callable[[Any], str]]:
    """Return what numbers are divided by, and what writes each of them in the same width."""
    finite = [abs(float(number)) for number in numbers if math.isfinite(number)]
    low = _exponent(min(finite)) if finite else 1
    high = _exponent(max(finite)) if finite else 1
    if all(number == math.ceil(number) for number in finite):
        if high > 9:
            return 1.0, lambda number: f"{float(number):11.4e}"
        return 1.0, lambda number: f"{_whole(number):>{high + 1}}"
    if high - low > 4:
        size = 12 if max(abs(high), abs(low)) > 99 else 11
        return 1.0, lambda number: f"{number:{size}.4e}"
    if high > 5 or high < 0:
        scale = 10.0 ** (high - 1)
        return scale, lambda number: f"{number / scale:7.4f}"
    return 1.0, lambda number: f"{number:{high + 6 if high else 7}.4f}"


def _whole(number: Any) -> str:
    return str(int(number)) if math.isfinite(number) else str(float(number))
