"""Scalar functions of a program: what an op's definition computes for one element."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tangrad.plugin.render import BITS, KINDS, REAL, Dialect, Program, suffix
from tangrad_export.target.dialect import DIALECT, as_text

__all__ = ["Function", "argument", "encode", "fields_of"]


class Function:
    """A scalar function from and to stored elements.

    Args:
        title: what its name says.
        program: what it computes.
        storage: dtypes of the inputs as they are stored.
        results: dtypes of the results as they are stored.
        indexed: whether its first parameter is the element's place.

    Attributes:
        text: its source, with `@` in the place of its name.
        divides: whether its last parameter is an int that becomes 1 where an integer is divided
            by zero.
    """

    def __init__(
        self,
        title: str,
        program: Program,
        storage: Mapping[str, str],
        results: Sequence[str],
        dialect: Dialect = DIALECT,
    ) -> None:
        self.title = re.sub(r"\W", "_", title).strip("_") or "op"
        self.program, self.results = program, tuple(results)
        self.text = program.render_c("tk_at", dict(storage), list(results), dialect)
        head, _, body = self.text.partition(" {\n")
        body = _without_unused(body)
        params = head.partition("tk_at(")[2].removesuffix(")").split(", ")
        self._used = [bool(re.search(rf"\b{p.split()[-1].lstrip('*')}\b", body)) for p in params]
        kept = ", ".join(p for p, used in zip(params, self._used, strict=True) if used)
        self.text = f"static inline void @({kept}) {{\n{body}"
        self.indexed, self.divides = program.indexed, program.divides
        used = {str(s.value): s.type for s in program.instructions if s.op == "param"}
        self.params = [(name, used.get(name, program.compute)) for name in program.params]

    def call(self, name: str, args: Sequence[str]) -> str:
        """Return a call, given all arguments, also those that its body does not need."""
        given = ", ".join(a for a, used in zip(args, self._used, strict=True) if used)
        return f"{name}({given});"

    def key(self) -> str:
        """Return what equal functions have in common."""
        return self.text


def _without_unused(body: str) -> str:
    """Return statements without the values that none of them uses, of which compilers warn.

    What has an address taken may report something, and stays.
    """
    for found in reversed(list(re.finditer(r" *const \w+ (v\d+) = [^;&\n]*;\n", body))):
        if not re.search(rf"\b{found[1]}\b", body[found.end() :]):
            body = body[: found.start()] + body[found.end() :]
    return body


def fields_of(dtype: str) -> int:
    """Return by how many numbers a number of a dtype is given."""
    return 2 if KINDS[dtype] == "c" else 1


def encode(value: Any, dtype: str) -> Sequence[int | float]:
    """Return a Python number as numbers of a step, converted as an element would be."""
    from tangrad.plugin.compiled import numbers

    found: Sequence[int | float] = numbers.encode(value, dtype)
    return found


def argument(numbers: Sequence[Any], dtype: str) -> str:
    """Return the C of a number of a dtype."""
    kind = KINDS[dtype]
    texts = [as_text(n) for n in numbers]
    if kind == "c":
        part = DIALECT.type(REAL[dtype])
        return f"tg_make_{suffix(dtype)}({', '.join(f'({part}){t}' for t in texts)})"
    value = numbers[0]
    if kind == "f":
        if isinstance(value, float) and dtype == "float32" and value - value == 0:
            return _float32(value)
        return texts[0] if dtype == "float64" else f"({DIALECT.type(dtype)}){texts[0]}"
    if isinstance(value, int) and kind in "ui" and abs(value) >= 1 << 31:
        return DIALECT.literal(value, dtype)
    return f"({DIALECT.type(dtype)}){texts[0]}" if BITS[dtype] != 32 else texts[0]


def _float32(value: float) -> str:
    import numpy as np

    with np.errstate(over="ignore"):
        single = np.float32(value)
    if not np.isfinite(single):
        return f"(float){as_text(float(single))}"
    text = repr(float(str(single)))
    return f"{text}f" if "e" in text or "." in text else f"{text}.0f"
