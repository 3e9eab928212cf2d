"""Calls of functions that are written by hand."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from typing import Any

from tangrad_export.program.buffers import Ref
from tangrad_export.steps.base import Number, Step, ctype
from tangrad_export.target.dialect import as_text

__all__ = ["Routine", "Text"]


class Text:
    """A function that is written by hand.

    Args:
        title: what its name says.
        text: its source, with `@` in the place of its name, `T` in that of a type.
        dtype: that `T` is.
        needs: sources of functions that it calls, by the names that it calls them.
    """

    def __init__(self, title: str, text: str, dtype: str = "float32", **more: str) -> None:
        self.title, self.text = title, re.sub(r"\bT\b", ctype(dtype), text)
        for name, value in more.items():
            self.text = re.sub(rf"\b{name}\b", value, self.text)

    def key(self) -> str:
        """Return what equal functions have in common."""
        return f"{self.title}\n{self.text}"


class Routine(Step):
    """Call a function.

    Args:
        function: the function: pointers, then numbers.
        refs: the pointers.
        writes: which it writes.
        numbers: in order.
        work: multiplications with additions.
    """

    def __init__(
        self,
        function: Text,
        refs: Sequence[Ref | None],
        writes: Sequence[int],
        numbers: Sequence[Any],
        work: int = 0,
    ) -> None:
        super().__init__(refs, writes, numbers)
        self.function, self.work = function, work

    def structure(self) -> Hashable:
        """Return which function it is, and which operands it has."""
        present = tuple(None if r is None else r.dtype for r in self.refs)
        return "routine", self.function.key(), present

    def functions(self) -> list[Any]:
        """Return the function."""
        return [self.function]

    def text(self, names: list[str], at: list[str], n: list[Number]) -> list[str]:
        """Return the call."""
        numbers = [v if isinstance(v, str) else as_text(v) for v in n]
        return [f"{names[0]}({', '.join([*at, *numbers])});"]
