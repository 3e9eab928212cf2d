"""Places in sources, how errors show them, and the errors of scripting."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["FrontendError", "Place", "ScriptError", "Source", "place_of"]

# Lines shown before and after; PyTorch shows as many.
_BEFORE, _AFTER = 2, 3


@dataclass(slots=True)
class Source:
    """The text of a function or class.

    Attributes:
        file: its file, as errors name it.
        first: the number of its first line there.
        lines: its lines, as they are in the file.
        indent: columns that the parser has not seen.
        origins: of the code of an archive, finds where a place of it came from.
    """

    file: str
    first: int
    lines: list[str]
    indent: int = 0
    origins: Callable[[Place], Place | None] | None = field(default=None, compare=False)


@dataclass(slots=True)
class Place:
    """A range of a source: lines from 0 in the source, columns in its lines."""

    source: Source
    line: int
    column: int
    last_line: int
    last_column: int
    function: str = ""

    def original(self) -> Place | None:
        """Return where the code of an archive came from; None where it is not told."""
        return None if self.source.origins is None else self.source.origins(self)

    def heading(self, function: bool = False) -> str:
        """Return the line that names file and line."""
        inside = f", in {self.function}" if function and self.function else ""
        return f'  File "{self.source.file}", line {self.source.first + self.line}{inside}\n'

    def highlighted(self) -> str:
        """Return the lines around, with what the place covers underlined."""
        lines = self.source.lines
        shown = []
        last = min(self.last_line, len(lines) - 1)
        shown.extend(lines[max(0, self.line - _BEFORE) : self.line])
        for k in range(self.line, last + 1):
            text = lines[k]
            begin = self.column if k == self.line else len(text) - len(text.lstrip())
            end = self.last_column if k == self.last_line else len(text.rstrip())
            shown.append(text)
            marks = " " * begin + "~" * max(1, end - begin)
            shown.append(marks + (" <--- HERE" if k == last else ""))
        shown.extend(lines[last + 1 : last + 1 + _AFTER])
        return "\n".join(shown) + "\n"

    def __str__(self) -> str:
        return self.heading() + self.highlighted()


def place_of(node: ast.AST, source: Source, function: str = "") -> Place:
    """Return the place of a node that was parsed from a source."""
    line = getattr(node, "lineno", 1) - 1
    column = getattr(node, "col_offset", 0) + source.indent
    last, last_column = _end(node)
    last_line = (last or line + 1) - 1
    last_column = last_column + source.indent if last_column else column
    return Place(source, line, column, last_line, last_column, function)


_WHOLE = (
    *(ast.Name, ast.Constant, ast.Attribute, ast.JoinedStr, ast.arg),
    *(ast.List, ast.Dict),
)


def _end(node: ast.AST) -> tuple[int, int]:
    """Return where a node ends as PyTorch shows it: without what closes calls and texts."""
    found = (getattr(node, "end_lineno", None) or 0, getattr(node, "end_col_offset", None) or 0)
    if isinstance(node, _WHOLE):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        return found[0], found[1] - is_text
    if isinstance(node, ast.Subscript):
        last, column = _end(node.slice)
        return last, column + 1
    if isinstance(node, ast.Call) and not (node.args or node.keywords):
        return found[0], max(0, found[1] - 1)
    inner = [_end(child) for child in ast.iter_child_nodes(node) if hasattr(child, "end_lineno")]
    return max(inner, default=found)


class ScriptError(RuntimeError):
    """A program that cannot be scripted.

    Args:
        reason: what is wrong, and what to do.
        place: where.
    """

    def __init__(self, reason: str, place: Place | None = None) -> None:
        self.reason, self.place = reason, place
        self.calls: list[str] = []
        super().__init__(reason)

    def __str__(self) -> str:
        where = f":\n{self.place}" if self.place is not None else ""
        return f"{self.reason}{where}{''.join(self.calls)}"


class FrontendError(ScriptError):
    """A form of Python that the script language does not have."""
