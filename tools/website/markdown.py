"""Markdown of generated pages: text that is shown as it is, docstrings, tables."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterable, Sequence

SECTIONS = {
    "Args": "Arguments",
    "Arguments": "Arguments",
    "Returns": "Returns",
    "Yields": "Yields",
    "Raises": "Errors",
    "Attributes": "Attributes",
    "Shape": "Shapes",
    "Shapes": "Shapes",
    "Note": "Note",
    "Notes": "Notes",
    "Example": "Example",
    "Examples": "Examples",
    "References": "References",
}
LISTED = {"Args", "Arguments", "Raises", "Attributes"}
HEAD = re.compile(r"^(\w+):\s*$")
ITEM = re.compile(r"^(\*{0,2}[\w.]+(?:, \*{0,2}[\w.]+)*)(?: \(([^)]*)\))?: ?(.*)$")
SPECIAL = re.compile(r"(``.+?``|`[^`]+`|\\\(.+?\\\)|\\\[.+?\\\])", re.DOTALL)
MEANING = re.compile(r"([\\*_<>\[\]|$#~^{}])")


def plain(text: str) -> str:
    r"""Return text in which nothing but `code` and \(formulas\) means something."""
    parts = SPECIAL.split(text)
    return "".join(_special(p) if n % 2 else MEANING.sub(r"\\\1", p) for n, p in enumerate(parts))


def _special(part: str) -> str:
    return part if part.startswith("`") else formula(part[2:-2], part.startswith("\\["))


def formula(text: str, is_block: bool = False) -> str:
    """Return a formula in LaTeX as MathML, which browsers show without a program from elsewhere."""
    from docutils.utils.math import MathError, latex2mathml

    try:
        return "".join(latex2mathml.tex2mathml(text, is_block).split("\n"))
    except (MathError, SyntaxError):
        return code(text)


def code(text: str) -> str:
    """Return text as code within a line, also where it has backticks, and in tables."""
    fence = "``" if "`" in text else "`"
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def fenced(text: str, language: str = "text") -> list[str]:
    """Return the lines of a block of code."""
    return [f"```{language}", *text.rstrip().split("\n"), "```", ""]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table; cells are Markdown."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for row in rows:
        cells = [cell.replace("\n", " ").replace("|", "\\|") for cell in row]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def summary(docstring: str | None) -> str:
    """Return the first paragraph of a docstring, on one line."""
    first = inspect.cleandoc(docstring or "").split("\n\n")[0]
    return " ".join(first.split())


def docstring(text: str | None, level: str = "##") -> list[str]:
    """Return a docstring in Google's style as Markdown.

    Args:
        text: the docstring.
        level: the marks of headings for its sections.
    """
    return [*opening(text), *remainder(text, level)]


def opening(text: str | None) -> list[str]:
    """Return what a docstring says before its sections."""
    return _paragraphs(sections(inspect.cleandoc(text or ""))[0][1])


def remainder(text: str | None, level: str = "##") -> list[str]:
    """Return the sections of a docstring."""
    lines: list[str] = []
    for title, body in sections(inspect.cleandoc(text or ""))[1:]:
        lines += [f"{level} {SECTIONS[title]}", ""]
        lines += _items(body) if title in LISTED else _paragraphs(body)
    return lines


def sections(text: str) -> list[tuple[str, list[str]]]:
    """Return a docstring's parts: the title, empty for the first, and the lines."""
    parts: list[tuple[str, list[str]]] = [("", [])]
    for line in text.split("\n"):
        found = HEAD.match(line)
        if found and found.group(1) in SECTIONS:
            parts.append((found.group(1), []))
        else:
            parts[-1][1].append(line)
    return [
        (title, textwrap.dedent("\n".join(body)).strip("\n").split("\n")) for title, body in parts
    ]


def _items(body: Sequence[str]) -> list[str]:
    """Return a list of `name: text`, whose further lines are indented."""
    items: list[list[str]] = []
    for line in body:
        if line and not line[0].isspace():
            items.append([line])
        elif items:
            items[-1].append(line.strip())
        elif line.strip():
            items.append([line.strip()])
    lines: list[str] = []
    for item in items:
        text = " ".join(filter(None, item))
        found = ITEM.match(text)
        if found is None:
            lines.append(f"- {plain(text)}")
            continue
        name, kind, rest = found.groups()
        kind = f" ({plain(kind)})" if kind else ""
        lines.append(f"- **{code(name)}**{kind}: {plain(rest)}")
    return [*lines, ""]


def _paragraphs(body: Sequence[str]) -> list[str]:
    """Return paragraphs; what is typed at a prompt, and what is indented below `::`, is code."""
    lines: list[str] = []
    for block in re.split(r"\n\s*\n", "\n".join(body)):
        if not block.strip():
            continue
        if block.lstrip().startswith(">>>"):
            lines += fenced(textwrap.dedent(block), "pycon")
        elif all(line.startswith("    ") for line in block.split("\n")):
            lines += fenced(textwrap.dedent(block), "python")
        elif re.match(r"\s*[-*] ", block):
            lines += [_bullet(line) for line in block.split("\n")] + [""]
        else:
            text = re.sub(r"::$", ":", " ".join(block.split()))
            lines += [plain(text), ""]
    return lines


def _bullet(line: str) -> str:
    found = re.match(r"(\s*)[-*] (.*)", line)
    return f"{found.group(1)}- {plain(found.group(2))}" if found else plain(line)
