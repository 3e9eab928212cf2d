"""Read what installed distributions say of themselves.

`importlib.metadata` does this, too, and loads the modules for e-mail to do so, a third of what a
program's first tensor took. It is asked for what is no folder: archives on `sys.path`, and finders
that others have registered.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

# Finders that need not be asked: Python's own sees the folders that are read here, and what stands
# in for PyTorch brings no plugin.
_KNOWN = ("_frozen_importlib_external", "tangrad.compat.stand_in")


class Folder:
    """The metadata of one distribution, in a folder of its own."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def read_text(self, name: str) -> str | None:
        """Return the text of a file, or None if there is none.

        Raises:
            OSError: it cannot be read. UnicodeDecodeError: it is no text.
        """
        try:
            with open(os.path.join(self._path, name), encoding="utf-8") as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None


class EntryPoint:
    """One line of `entry_points.txt`, with the attributes of `importlib.metadata`'s."""

    __slots__ = ("group", "name", "value")

    def __init__(self, name: str, value: str, group: str) -> None:
        self.name, self.value, self.group = name, value, group


def distributions() -> Iterator[Any]:
    """Yield the metadata of what is installed, in the order of `sys.path`."""
    for entry in sys.path:
        try:
            names = os.listdir(entry or ".")
        except OSError:
            yield from _in_archive(entry)
            continue
        for name in names:
            if name.endswith((".dist-info", ".egg-info")):
                yield Folder(os.path.join(entry, name))
    for finder in sys.meta_path:
        if hasattr(finder, "find_distributions") and finder.__module__ not in _KNOWN:
            from importlib.metadata import DistributionFinder

            yield from finder.find_distributions(DistributionFinder.Context())


def _in_archive(entry: str) -> Iterator[Any]:
    if os.path.isfile(entry):
        from importlib.metadata import distributions

        yield from distributions(path=[entry])


def identify(distribution: Any) -> tuple[str, str, list[str] | None]:
    """Return what a distribution says of itself.

    Returns:
        Its name and version, from the folder's name where METADATA is missing; the version of the
        core that it is pinned to by `~=`, without its last part, or None.
    """
    try:
        text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
    except (OSError, UnicodeDecodeError):
        text = ""
    # These lines alone: parsing the message with its long text takes a millisecond.
    head = text.partition("\n\n")[0]
    said = {
        key: value.strip() for key, _, value in (line.partition(":") for line in head.splitlines())
    }
    name, version = said.get("Name", ""), said.get("Version", "")
    pin = head.partition("\nRequires-Dist: tangrad-core~=")[2].partition("\n")[0]
    core = pin.strip().split(".")[:-1] if pin and ";" not in pin else None
    if not name:
        folder = os.path.basename(str(getattr(distribution, "_path", "unknown distribution")))
        name, _, version = folder.removesuffix(".dist-info").partition("-")
    return name, version or "unknown version", core


def entry_points(text: str) -> list[EntryPoint]:
    """Return the entry points of the text of `entry_points.txt`.

    Raises:
        ValueError: a line is neither a group nor a name with a value.
    """
    found, group = [], ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            group = line[1:-1].strip()
        elif line and line[0] not in "#;":
            name, equals, value = map(str.strip, line.partition("="))
            if not (group and equals):
                raise ValueError(f"'{line}' is neither a group nor a name with a value")
            # Behind the value may stand extras, `module:name [extra]`: what an installer asks for.
            found.append(EntryPoint(name, value.partition("[")[0].rstrip(), group))
    return found
