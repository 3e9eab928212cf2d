"""Deviations from PyTorch as one table by subject, read from docs/deviations.md."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tools.website.contents import ROOT
from tools.website.documents import FENCE, slug

SOURCE = "docs/deviations.md"
# What narrow pages, where cells stand below each other, write before them.
COLUMNS = ("", ' data-of="tangrad"', ' data-of="PyTorch"', ' data-of="why"')
WRITTEN = re.compile(r"`([A-Za-z_][\w.]*)")


@dataclass(frozen=True)
class Deviation:
    """One difference.

    Attributes:
        subject: the heading that it stands below.
        what: what is concerned, in Markdown.
        here: what tangrad does.
        there: what PyTorch does.
        why: the reason; empty where none is written.
        anchor: of its row.
    """

    subject: str
    what: str
    here: str
    there: str
    why: str
    anchor: str

    @property
    def names(self) -> set[str]:
        """Return the names in `what`, as they are written there."""
        return set(WRITTEN.findall(self.what))


def read() -> list[Deviation]:
    """Return all deviations in the order in which they are written."""
    text = FENCE.sub("", (ROOT / SOURCE).read_text("utf-8"))
    found: list[Deviation] = []
    for part in text.split("\n## ")[1:]:
        subject, _, body = part.partition("\n")
        for number, cells in enumerate(_rows(body.strip().split("\n")), 1):
            found.append(Deviation(subject, *cells, f"{slug(subject)}-{number}"))
    return found


def _rows(lines: Iterable[str]) -> Iterator[tuple[str, str, str, str]]:
    """Yield rows of tables, and items and paragraphs as rows of one text."""
    for line in lines:
        if line.startswith("|"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
            is_head = not cells[0] or set(line) <= set("|-: ")
            if not is_head:
                what, here, there, why, *_ = [*cells, "", "", ""]
                yield what, here, there, why
        elif line.startswith("- "):
            yield _ended(line[2:]), "", "", ""
        elif line.startswith("Why: "):
            continue  # explains the paragraph above it, where it is read
        elif line.strip() and not line.startswith("#"):
            yield _ended(line.strip()), "", "", ""


def _ended(text: str) -> str:
    """Return a text whose colon leads to a program, which the table leaves out."""
    return f"{text[:-1]}." if text.endswith(":") else text


def of_names(names: Iterable[str]) -> dict[str, list[Deviation]]:
    """Return {public name: its deviations}, for those that have any."""
    by_end: dict[str, list[str]] = {}
    for name in names:
        parts = name.split(".")
        for start in range(1, len(parts)):
            by_end.setdefault(".".join(parts[start:]), []).append(name)
    found: dict[str, list[Deviation]] = {}
    for deviation in read():
        for written in deviation.names:
            for name in by_end.get(written.removeprefix("tangrad."), ()):
                found.setdefault(name, []).append(deviation)
    return found


def page() -> list[str]:
    """Return the lines of the page: a table that can be searched."""
    from markdown_it import MarkdownIt

    render = MarkdownIt().renderInline
    deviations = read()
    subjects = list(dict.fromkeys(d.subject for d in deviations))
    lines = ["---", "hide-toc: true", "---", "", "# Deviations as a table", ""]
    lines += [
        f"{len(deviations)} differences on purpose. [The page](deviations.md) has the same with "
        "programs that prove them; where nothing is listed, PyTorch 2.13 is the specification.",
        "",
        '<div class="filter">',
        '<input id="words" type="search" placeholder="Words, such as: adam foreach" '
        'aria-label="Words to look for">',
        '<select id="subject" aria-label="Subject"><option value="">All subjects</option>',
        *(f"<option>{render(subject)}</option>" for subject in subjects),
        '</select> <span id="count"></span>',
        "</div>",
        '<div class="table-wrapper"><table class="docutils" id="deviations"><thead>',
        "<tr><th>subject</th><th>what</th><th>tangrad</th><th>PyTorch</th><th>why</th></tr>",
        "</thead><tbody>",
    ]
    for d in deviations:
        link = f'<a href="deviations.html#{slug(d.subject)}">{render(d.subject)}</a>'
        texts = [_unlinked(text) for text in (d.what, d.here, d.there, d.why)]
        alone = not (d.here or d.there or d.why)
        cells = (
            f'<td colspan="4">{render(texts[0])}</td>'
            if alone
            else "".join(
                f"<td{of}>{render(text)}</td>" for of, text in zip(COLUMNS, texts, strict=True)
            )
        )
        lines.append(f'<tr id="{d.anchor}"><td>{link}</td>{cells}</tr>')
    return [*lines, "</tbody></table></div>", '<script src="_static/filter.js"></script>', ""]


def _unlinked(text: str) -> str:
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("\\|", "|")
