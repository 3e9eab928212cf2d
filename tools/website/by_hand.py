"""Examples by hand: docs/examples/*.txt. A line with a name, then what is typed and what is told.

The names are public ones without `tangrad.` in front; several on a line share the example. What
needs a package that `tangrad` does not bring says so on that line: `compile (needs tangrad-jit)`.
"""

from __future__ import annotations

import doctest
import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tools.website.contents import ROOT

FOLDER = ROOT / "docs" / "examples"
MOST_USED = FOLDER / "most-used.names"
NAMES = re.compile(r"^([A-Za-z_][\w.]*(?:, [A-Za-z_][\w.]*)*)(?: \(needs ([\w-]+)\))?$")

# What examples may use besides `tangrad`.
IMPORTS = {
    "nn": ">>> from tangrad import nn",
    "F": ">>> from tangrad.nn import functional as F",
}


@dataclass(frozen=True)
class Example:
    """An example, the names that it is of, and where it is written."""

    names: tuple[str, ...]
    text: str
    path: Path
    line: int
    needs: str = ""

    @property
    def can_run(self) -> bool:
        """Tell whether the package that it needs is installed."""
        return not self.needs or find_spec(self.needs.replace("-", "_")) is not None

    @property
    def shown(self) -> str:
        """Return the text as it can be typed: with the imports that it needs."""
        used = [
            line for name, line in IMPORTS.items() if re.search(rf"(?<![\w.]){name}\.", self.text)
        ]
        return "\n".join([*used, self.text])

    @property
    def place(self) -> str:
        """Return the file and the line."""
        return f"{self.path.relative_to(ROOT)}:{self.line}"


def read(path: Path) -> list[Example]:
    """Return the examples of a file.

    Raises:
        ValueError: text stands before the first name.
    """
    heads: list[tuple[int, re.Match[str]]] = []
    lines = path.read_text("utf-8").split("\n")
    for number, line in enumerate(lines):
        follows_nothing = not number or not lines[number - 1].strip()
        if follows_nothing and (found := NAMES.match(line)):
            heads.append((number, found))
        elif line and not heads and not line.startswith("#"):
            raise ValueError(f"{path.name}:{number + 1}: text before the first name")
    ends = [number for number, _ in heads[1:]] + [len(lines)]
    return [
        Example(
            tuple(f"tangrad.{name}" for name in found.group(1).split(", ")),
            "\n".join(lines[number + 1 : end]).strip(),
            path,
            number + 1,
            found.group(2) or "",
        )
        for (number, found), end in zip(heads, ends, strict=True)
    ]


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
