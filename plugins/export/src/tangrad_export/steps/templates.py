"""Calls of the templates of kernels that devices which compile source share."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from tangrad_export.program.buffers import Buffer, Ref
from tangrad_export.steps.base import Number, Step
from tangrad_export.target.dialect import Template, as_text

__all__ = ["Call", "Source"]


class Source:
    """A source with the functions of some kernels.

    Args:
        template: the kernel that is called.
        text: the source.
    """

    def __init__(self, template: Template, text: str) -> None:
        self.template, self.title = template, template.name
        self.text = text

    def key(self) -> str:
        """Return what equal sources have in common."""
        return f"{self.template.name}\n{self.text}"


class Call(Step):
    """Call the kernel of a template.

    Args:
        template: the kernel.
        source: the text that defines it.
        refs: its buffers.
        numbers: its numbers, arrays flattened.
    """

    def __init__(
        self, template: Template, source: str, refs: Sequence[Ref | None], numbers: Sequence[Any]
    ) -> None:
        super().__init__(refs, tuple(range(len(refs))), numbers)
        self.template, self.source = template, source
        self.work = max((int(n) for n in numbers[:1]), default=0)

    def read_buffers(self) -> set[Buffer]:
        """Return all buffers: which of them a template reads, and which it writes, is not told."""
        return self.buffers()

    def structure(self) -> Hashable:
        """Return the kernel, and which operands it has."""
        present = tuple(None if r is None else r.dtype for r in self.refs)
        return "call", self.template.name, self.source, present

    def functions(self) -> list[Source]:
        """Return the source."""
        return [Source(self.template, self.source)]

    def text(self, names: list[str], at: list[str], n: list[Number]) -> list[str]:
        """Return the call, with its numbers in a structure."""
        args = list(at)
        lines = []
        if self.template.numbers:
            fields, rest = [], list(n)
            for kind, _, count in self.template.numbers:
                given = [_number(rest.pop(0), kind) for _ in range(count or 1)]
                fields.append("{" + ", ".join(given) + "}" if count else given[0])
            qualifier = "" if any(isinstance(v, str) for v in n) else "static "
            lines.append(f"{qualifier}const {names[0]}_numbers g = {{{', '.join(fields)}}};")
            args.append("&g")
        lines.append(f"{names[0]}({', '.join(args)});")
        return ["{", *(f"    {line}" for line in lines), "}"]


def _number(value: Number, kind: str) -> str:
    if isinstance(value, str):
        return value
    if kind == "float64":
        return as_text(float(value))
    if kind == "uint64":
        return f"{int(value)}u" if value < 1 << 32 else f"UINT64_C({int(value)})"
    if value == -(1 << 63):
        return "INT64_MIN"
    return str(value) if abs(value) < 1 << 31 else f"INT64_C({value})"
