"""Check the links of built pages: every file, and every anchor in it, exists."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote

TARGET = re.compile(r"""\s(?:href|src)="([^"]+)\"""")
ANCHOR = re.compile(r"""\s(?:id|name)="([^"]+)\"""")
ELSEWHERE = re.compile(r"^(?:[a-z]+:|//)")
# What the theme writes into each page, and what leads to pages that are made while one reads.
MADE_LATER = {"#", "#__toc", "#__navigation"}


def broken(folder: Path) -> list[str]:
    """Return a line for each link of a page that leads nowhere."""
    found: list[str] = []
    seen: set[tuple[str, str]] = set()
    for page in sorted(folder.rglob("*.html")):
        for target in sorted(set(TARGET.findall(page.read_text("utf-8")))):
            if target in MADE_LATER or ELSEWHERE.match(target):
                continue
            path, _, anchor = unquote(target).partition("#")
            path = path.partition("?")[0]
            place = (page.parent / path).resolve() if path else page.resolve()
            key = (str(place), anchor)
            if key in seen:
                continue
            seen.add(key)
            if not place.exists() or (anchor and anchor not in anchors(place)):
                found.append(f"{page.relative_to(folder)}: {target}")
    return found


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors of a page."""
    return frozenset(ANCHOR.findall(page.read_text("utf-8")))
