"""Documents of the repository as pages: their links lead to pages, also those to files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from tools.website.contents import ROOT, documents

LINK = re.compile(r"(!?\[[^\]]*\]\()((?!https?:|mailto:|#)[^)#\s]+)(#[^)\s]*)?(\))")
FENCE = re.compile(r"^(```.*?^```[ \t]*$)", re.MULTILINE | re.DOTALL)
LANGUAGES = {".py": "python", ".toml": "toml", ".c": "c", ".h": "c", ".ini": "ini", ".md": "md"}


class BrokenReferenceError(Exception):
    """A document refers to something that does not exist."""


class Documents:
    """Write the repository's documents, and the files that they link to, as pages.

    Attributes:
        broken: what could not be resolved: the document and the link.
        files: files that are linked, with their pages.
        pictures: pictures that are shown, from the root.
    """

    def __init__(self) -> None:
        self.pages = documents()
        self.broken: list[str] = []
        self.files: dict[str, str] = {}
        self.pictures: set[str] = set()

    def read(self, path: str) -> str:
        """Return a document, its links rewritten for its page."""
        text = (ROOT / path).read_text("utf-8")
        return outside_code(text, lambda part: LINK.sub(lambda m: self._link(path, m), part))

    def _link(self, document: str, found: re.Match[str]) -> str:
        before, target, anchor, after = found.groups()
        place = os.path.normpath(os.path.join(os.path.dirname(document), target))
        page = self._page(place)
        if page is None:
            self.broken.append(f"{document}: {target}")
            return found.group()
        here = os.path.dirname(self.pages[document])
        return f"{before}{os.path.relpath(page, here or '.')}{anchor or ''}{after}"

    def _page(self, place: str) -> str | None:
        """Return the file of the site that stands for a file of the repository."""
        if place in self.pages:
            return f"{self.pages[place]}.md"
        path = ROOT / place
        if path.is_dir():
            readme = f"{place}/README.md"
            return f"{self.pages[readme]}.md" if readme in self.pages else self._listing(place)
        if not path.is_file():
            return None
        if path.suffix == ".png":
            self.pictures.add(place)
            return place.removeprefix("docs/")
        self.files[place] = f"files/{place}"
        return f"files/{place}.md"

    def _listing(self, place: str) -> str:
        self.files[place] = f"files/{place}/index"
        return f"files/{place}/index.md"


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """Return a text with what is outside of blocks of code changed."""
    parts = FENCE.split(text)
    return "".join(part if number % 2 else change(part) for number, part in enumerate(parts))


def file_page(path: str) -> list[str]:
    """Return the lines of a page that shows a file of the repository, or what is in a folder."""
    lines = ["---", "orphan: true", "---", "", f"# `{path}`", ""]
    place = ROOT / path
    if place.is_dir():
        names = sorted(p.name for p in place.iterdir() if not p.name.startswith((".", "__")))
        return [*lines, *(f"- `{name}`" for name in names), ""]
    text = place.read_text("utf-8")
    fence = "````" if "```" in text else "```"
    language = LANGUAGES.get(Path(path).suffix, "text")
    return [*lines, f"{fence}{language}", *text.rstrip().split("\n"), fence, ""]


def slug(heading: str) -> str:
    """Return the anchor of a heading, as it is on GitHub and on the site."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


def anchors(text: str) -> set[str]:
    """Return the anchors of a document: of its headings."""
    headings = re.findall(r"^#{1,6} (.*)$", FENCE.sub("", text), re.MULTILINE)
    return {slug(heading) for heading in headings}


def broken_links(path: str) -> list[str]:
    """Return the links of a document that lead nowhere, anchors included."""
    text = FENCE.sub("", (ROOT / path).read_text("utf-8"))
    found = re.findall(r"\]\(((?!https?:|mailto:)[^)#\s]*)(#[^)\s]*)?\)", text)
    broken = []
    for target, anchor in found:
        place = (ROOT / path).parent / target if target else ROOT / path
        if not place.exists():
            broken.append(target)
        elif (
            anchor and place.suffix == ".md" and anchor[1:] not in anchors(place.read_text("utf-8"))
        ):
            broken.append(target + anchor)
    return broken
