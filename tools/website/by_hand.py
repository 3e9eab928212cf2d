"""Examples by hand: docs/examples/*.txt. A line with a name, then what is typed and what is told.

The names are public ones without `tangrad.` in front; several on a line share the example.
"""

from __future__ import annotations

import doctest
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.website.contents import ROOT

FOLDER = ROOT / "docs" / "examples"
MOST_USED = FOLDER / "most-used.names"
NAMES = re.compile(r"^[A-Za-z_][\w.]*(?:, [A-Za-z_][\w.]*)*$")


@dataclass(frozen=True)
class Example:
    """An example, the names that it is of, and where it is written."""

    names: tuple[str, ...]
    text: str
    path: Path
    line: int

    @property
    def place(self) -> str:
        """Return the file and the line."""
        return f"{self.path.relative_to(ROOT)}:{self.line}"


def read(path: Path) -> Iterator[Example]:
    """Yield the examples of a file.

    Raises:
        ValueError: text stands before the first name.
    """
    names: tuple[str, ...] = ()
    start, body = 0, []
    for number, line in enumerate([*path.read_text("utf-8").split("\n"), "end"], 1):
        is_last = number > len(path.read_text("utf-8").split("\n"))
        fresh = not body or not body[-1]
        if is_last or (NAMES.match(line) and fresh):
            if names:
                yield Example(names, "\n".join(body).strip(), path, start)
            names, start, body = tuple(f"tangrad.{n}" for n in line.split(", ")), number, []
        elif names:
            body.append(line)
        elif line and not line.startswith("#"):
            raise ValueError(f"{path.name}:{number}: text before the first name")


def read_all() -> list[Example]:
    """Return all examples."""
    return [example for path in sorted(FOLDER.glob("*.txt")) for example in read(path)]


def failures(example: Example) -> str:
    """Run an example and return what is wrong with it, or an empty text."""
    import tangrad

    tangrad.manual_seed(0)
    scope = {"tangrad": tangrad, "nn": tangrad.nn, "F": tangrad.nn.functional}
    name = example.names[0]
    test = doctest.DocTestParser().get_doctest(
        example.text + "\n", scope, name, str(example.path), example.line
    )
    told: list[str] = []
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    doctest.DocTestRunner(optionflags=options, verbose=False).run(test, out=told.append)
    return "" if not told and test.examples else f"{example.place}: {name}\n{''.join(told)}"


def most_used() -> list[str]:
    """Return the names that libraries use most, from `tools/torch_names.py --most`."""
    lines = MOST_USED.read_text("utf-8").split("\n")
    return [f"tangrad.{line.split()[0]}" for line in lines if line and not line.startswith("#")]
