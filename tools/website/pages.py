"""Write all pages, as the sources that the generator reads, and say what is missing."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.website import api_pages, benchmarks, by_hand, deviations, op_pages, surface
from tools.website import markdown as md
from tools.website.contents import ROOT, package_readmes, toctrees
from tools.website.documents import Documents, file_page, slug
from tools.website.surface import Entry

# What the first page leads to besides, which is on the site alone.
GENERATED = (
    "Or look up a name: [all names, by module](names/index.md), [all ops](ops/index.md), "
    "[deviations from PyTorch, with a filter](deviations-table.md)."
)
DOCUMENT = re.compile(r"\]\(([\w-]+\.md)")  # a link of docs/deviations.md to a page beside it


@dataclass
class Site:
    """What is written, and what is wrong with it.

    Attributes:
        folder: of the sources.
        names: {public name: page, below the root}.
        wrong: a line for each fault: a broken reference, a failing example, a missing page.
        written: the files of this run, relative to the folder.
    """

    folder: Path
    names: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    written: set[str] = field(default_factory=set)

    def write(self, page: str, lines: Iterable[str]) -> None:
        """Write a page; one that is as it was stays untouched, and is not built again."""
        path = self.folder / f"{page}.md"
        text = "\n".join(lines)
        self.written.add(f"{page}.md")
        if path.exists() and path.read_text("utf-8") == text:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def write(folder: Path) -> Site:
    """Write the sources of all pages below a folder."""
    site = Site(folder)
    folder.mkdir(parents=True, exist_ok=True)
    entries = surface.collect()
    examples = _examples(site, entries)
    differing = deviations.of_names(name for entry in entries for name in entry.names)
    _write_names(site, entries, examples, differing)
    _write_ops(site, entries, examples, differing)
    _write_indexes(site, entries)
    _write_documents(site)
    site.write("deviations-table", deviations.page())
    for name in (name for entry in entries for name in entry.names):
        if name not in site.names:
            site.wrong.append(f"{name}: a public name without a page")
    (folder / "names.json").write_text(json.dumps(site.names, indent=0, sort_keys=True), "utf-8")
    for path in folder.rglob("*.md"):
        if str(path.relative_to(folder)) not in site.written:
            path.unlink()
    return site


def _examples(site: Site, entries: list[Entry]) -> dict[str, str]:
    """Return {public name: example by hand}; what fails is wrong."""
    public = {name for entry in entries for name in entry.names}
    found: dict[str, str] = {}
    for example in by_hand.read_all():
        if failure := by_hand.failures(example):
            site.wrong.append(f"an example fails: {failure}")
        for name in example.names:
            if name not in public:
                site.wrong.append(f"{example.place}: {name} is no public name")
            found[name] = example.shown
    site.wrong += [
        f"{name}: among the names that libraries use most, and without an example by hand"
        for name in by_hand.most_used()
        if name not in found
    ]
    return found


def _first(names: Iterable[str], table: dict[str, Any]) -> Any:
    return next((table[name] for name in names if name in table), None)


def _write_names(
    site: Site, entries: list[Entry], examples: dict[str, str], differing: dict[str, Any]
) -> None:
    classes = {id(entry.value): entry for entry in entries if entry.kind == "class"}
    for entry in entries:
        if entry.op:
            continue
        page = api_pages.page_of(entry)
        lines = api_pages.page(entry, _first(entry.names, examples), classes)
        site.write(page, [*_up(lines, entry), *_differences(_first(entry.names, differing))])
        site.names |= dict.fromkeys(entry.names, f"{page}.html")


def _up(lines: list[str], entry: Entry) -> list[str]:
    """Return a page with a way to its list of names, below its heading."""
    return [*lines[:6], f"[{entry.space}](../names/{entry.space}.md)", "", *lines[6:]]


def _write_ops(
    site: Site, entries: list[Entry], examples: dict[str, str], differing: dict[str, Any]
) -> None:
    from tangrad.ops.definition.catalogue import all_ops

    by_op = {entry.op: entry for entry in entries if entry.op}
    ops = {(op.functional or op).name: op.functional or op for op in all_ops().values()}
    rows = []
    for name, op in sorted(ops.items()):
        entry = by_op.get(name)
        names = entry.names if entry else []
        page = op_pages.page_of(name)
        lines = op_pages.page(op, entry, _first(names, examples), op_pages.onnx_form(op))
        up = f"[All ops](index.md), [{entry.space}](../names/{entry.space}.md)" if entry else ""
        lines[6:6] = [up or "[All ops](index.md)", ""]
        site.write(page, [*lines, *_differences(_first(names, differing))])
        site.names |= dict.fromkeys(names, f"{page}.html")
        told = next((m.definition.doc for m in (op, *op_pages.members(op)) if m.definition.doc), "")
        cells = (f"[{md.code(name)}]({page.removeprefix('ops/')}.md)", op.kind)
        rows.append((*cells, md.plain(md.summary(told))))
    head = ["# Ops", "", f"{len(rows)} definitions; each page is made from one of them.", ""]
    site.write("ops/index", [*head, *md.table(("op", "kind", "what it does"), rows)])


def _differences(found: list[deviations.Deviation] | None) -> list[str]:
    if not found:
        return []
    rows = [
        (
            f"[{md.plain(d.subject)}](deviations.md#{slug(d.subject)})",
            d.what,
            d.here,
            d.there,
            d.why,
        )
        for d in found
    ]
    lines = md.table(("subject", "what", "tangrad", "PyTorch", "why"), rows)
    if not any(any(row[2:]) for row in rows):  # nothing but texts
        lines = md.table(("subject", "what"), [row[:2] for row in rows])
    return ["## Differs from PyTorch", "", *(DOCUMENT.sub(r"](../\1", line) for line in lines)]


def _write_indexes(site: Site, entries: list[Entry]) -> None:
    """Write the list of public modules, and for each of them its names."""
    by_space: dict[str, list[tuple[str, Entry]]] = {}
    for entry in entries:
        for name in entry.names:
            by_space.setdefault(name.rpartition(".")[0], []).append((name, entry))
    rows = []
    for space, what in surface.SPACES.items():
        named = sorted(by_space.get(space, ()), key=lambda pair: pair[0])
        if not named:
            continue
        rows.append((f"[{md.code(space)}]({space}.md)", str(len(named)), what))
        listed = [
            (f"[{md.code(name.removeprefix(space + '.'))}](../{_page(entry)}.md)", _says(entry))
            for name, entry in named
        ]
        head = ["---", "orphan: true", "---", "", f"# `{space}`", "", f"{what}.", ""]
        site.write(f"names/{space}", [*head, *md.table(("name", "what it is"), listed)])
    total = len({name for entry in entries for name in entry.names})
    head = ["# Names", "", f"{total:,} public names, by module; each has a page.", ""]
    site.write("names/index", [*head, *md.table(("module", "names", "what it has"), rows)])


def _page(entry: Entry) -> str:
    return op_pages.page_of(entry.op) if entry.op else api_pages.page_of(entry)


def _says(entry: Entry) -> str:
    if entry.kind == "value":
        return md.plain(api_pages.told_of_value(entry))
    return md.plain(md.summary(api_pages.own_docstring(entry.value)))


def _write_documents(site: Site) -> None:
    """Write the documents of the repository, and pages for the files that they link to."""
    documents = Documents()
    for path, page in documents.pages.items():
        text = documents.read(path)
        if path == "docs/index.md":
            site.write("index", [text, GENERATED, "", *toctrees()])
        elif path == "docs/benchmarks.md":
            site.write(page, [text, "", *benchmarks.sections()])
        else:
            is_placed = path.startswith("docs/") or path in package_readmes()
            is_placed |= page in {"contributing", "changelog"}
            site.write(page, [text] if is_placed else ["---", "orphan: true", "---", "", text])
    for path, page in documents.files.items():
        site.write(page, file_page(path))
    for path in documents.pictures:
        target = site.folder / path.removeprefix("docs/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, target)
    site.wrong += [f"broken reference: {broken}" for broken in documents.broken]
