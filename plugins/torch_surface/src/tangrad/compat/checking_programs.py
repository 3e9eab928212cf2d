"""What a program written for PyTorch uses, and how much of it is here; the program is not run."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tangrad import plugin
from tangrad.compat.documented_names import LIBRARIES, SECTIONS
from tangrad.compat.program_names import ROOTS, states, uses_in

# Packages of ours that stand for the compiled part of a library, or that a library has use for.
COMPANIONS = {"torchvision": "vision", "tensorboard": "tensorboard"}
SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist"})
LARGEST = 4 * 2**20  # bytes of a source
_WHERE = 3  # places told of each name
_EXTRA = re.compile(r"pip install (tangrad\S*)")


@dataclass
class Report:
    """What was found in some files.

    Attributes:
        files: how many were read.
        unread: {file: why it could not be read}.
        names: {name of PyTorch: places, as "file:line"}.
        state: {name: "works", "placeholder" or "missing"}.
        deviating: {name: headings of docs/deviations.md that speak of it}.
        libraries: {package that builds on PyTorch: its version, or None if it is not installed}.
        places: {package: where it is imported}.
        install: requirements that bring what is missing.
        reasons: {placeholder: what its package is}.
    """

    files: int = 0
    unread: dict[str, str] = field(default_factory=dict)
    names: dict[str, list[str]] = field(default_factory=dict)
    state: dict[str, str] = field(default_factory=dict)
    deviating: dict[str, list[str]] = field(default_factory=dict)
    libraries: dict[str, str | None] = field(default_factory=dict)
    places: dict[str, list[str]] = field(default_factory=dict)
    install: list[str] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)

    def of(self, state: str) -> list[str]:
        """Return the names in a state."""
        return sorted(name for name, found in self.state.items() if found == state)


def check(paths: Iterable[str | os.PathLike[str]]) -> Report:
    """Look through programs, notebooks and folders of them.

    Args:
        paths: files of Python, notebooks (`.ipynb`), or folders, whose hidden and installed
            parts are left out.

    Returns:
        What they use. A file that cannot be read or parsed is told in `unread`.

    Raises:
        FileNotFoundError: there is no such file or folder.
    """
    report = Report()
    files: dict[Path, None] = {}
    for path in map(Path, paths):
        if not path.exists():
            raise FileNotFoundError(f"check-program: there is no file or folder {path}")
        files |= dict.fromkeys(_files(path))
    local = {name for file in files for name in (file.stem, file.resolve().parent.name)}
    for file in files:
        _read(file, report)
    report.state = states(report.names) if report.names else {}
    for name in report.names:
        if report.state[name] == "works" and (sections := sections_of(name)):
            report.deviating[name] = sections
    _look_at_packages(report, local)
    _choose_installs(report)
    return report


def sections_of(name: str) -> list[str]:
    """Return the headings of docs/deviations.md that speak of a name of PyTorch, as anchors."""
    inner = name.partition(".")[2]
    return [anchor for anchor, names in SECTIONS.items() if inner in names.split()]


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    for folder, folders, files in os.walk(path):
        folders[:] = sorted(
            one
            for one in folders
            if not one.startswith(".")
            and one not in SKIPPED
            and not Path(folder, one, "pyvenv.cfg").exists()
        )
        yield from (Path(folder, f) for f in sorted(files) if f.endswith((".py", ".ipynb")))


def _read(file: Path, report: Report) -> None:
    try:
        if file.stat().st_size > LARGEST:
            raise ValueError(f"larger than {LARGEST // 2**20} MB")
        uses = uses_in(_source_of(file))
    except (OSError, SyntaxError, ValueError, RecursionError) as error:
        report.unread[str(file)] = str(error) or type(error).__name__
        return
    report.files += 1
    for found, into in ((uses.names, report.names), (uses.modules, report.places)):
        for name, lines in found.items():
            into.setdefault(name, []).extend(f"{file}:{line}" for line in lines)


# Lines of a notebook that are not Python: `%magic`, `!command`, `found = !command`, `what?`.
_OF_IPYTHON = re.compile(r"^(\s*)(?:[%!?].*|[\w.]+\s*=\s*[%!].*|[\w.*]+\?{1,2}\s*)$")


def _source_of(file: Path) -> str:
    """Return a file's Python; of a notebook its cells, without the lines that are not Python.

    Raises:
        ValueError: a notebook is not one.
    """
    if file.suffix != ".ipynb":
        with tokenize.open(file) as opened:
            return opened.read()
    try:
        cells = json.loads(file.read_text("utf-8"))["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (KeyError, TypeError) as error:
        raise ValueError(f"no notebook of version 4: {error!r}") from None
    lines = "\n".join(one for one in code if not one.startswith("%%")).splitlines()
    return "\n".join(_OF_IPYTHON.sub(r"\1pass", line) for line in lines)


def _look_at_packages(report: Report, local: set[str]) -> None:
    apart = {*ROOTS, *sys.stdlib_module_names, *local, "tangrad"}
    distributions = importlib.metadata.packages_distributions()
    for module in sorted(set(report.places) - apart):
        owner = next(iter(distributions.get(module, ())), None)
        if owner is None:
            report.libraries[module] = None
        elif module in COMPANIONS or _builds_on_pytorch(owner):
            report.libraries[module] = importlib.metadata.version(owner)


def _builds_on_pytorch(distribution: str) -> bool:
    required = importlib.metadata.requires(distribution) or ()
    return any(re.match(r"torch(?![\w.-])", line) for line in required)


def _choose_installs(report: Report) -> None:
    wanted: set[str] = set()
    for name in report.of("placeholder"):
        inner = name.partition(".")[2]
        said = str(plugin.missing(inner))
        while not _EXTRA.search(said) and "." in inner:  # a package's row may be of its parent
            inner = inner.rpartition(".")[0]
            said = str(plugin.missing(inner))
        report.reasons[name] = said
        wanted.update(_EXTRA.findall(said))
    for module, companion in COMPANIONS.items():
        if module in report.places and _is_absent(f"tangrad-{companion}"):
            wanted.add(f"tangrad[{companion}]")
    report.install = sorted(wanted)


def _is_absent(distribution: str) -> bool:
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return True
    return False


# --- text ------------------------------------------------------------------------------------


def rendered(report: Report) -> str:
    """Return a report as text."""
    works = len(report.of("works"))
    files = "1 file uses" if report.files == 1 else f"{report.files} files use"
    names = "1 name" if len(report.names) == 1 else f"{len(report.names)} names"
    lines = [f"{files} {names} of PyTorch; {works} {'is' if works == 1 else 'are'} here"]
    lines += _section(
        "Missing: raise AttributeError or ImportError where the program comes to them",
        [(name, "", report.names[name]) for name in report.of("missing")],
    )
    lines += _section(
        "Placeholders: can be imported, and raise where they are made or called",
        [(name, report.reasons[name], report.names[name]) for name in report.of("placeholder")],
    )
    lines += _section(
        "Deviate from PyTorch in some point, which docs/deviations.md tells",
        [
            (name, ", ".join(f"#{anchor}" for anchor in anchors), report.names[name])
            for name, anchors in sorted(report.deviating.items())
        ],
    )
    lines += _section(
        "Packages that build on PyTorch, or that are not installed here",
        [
            (module, _of_library(module, version), report.places[module])
            for module, version in report.libraries.items()
        ],
    )
    lines += _section("Not read", [(file, why, []) for file, why in report.unread.items()])
    if report.install:
        lines += ["", f"To install: pip install {' '.join(report.install)}"]
    return "\n".join([*lines, "", _verdict(report)])


def _of_library(module: str, version: str | None) -> str:
    tried = ", its program agrees with PyTorch (docs/libraries.md)"
    said = f"version {version}" if version else "not installed"
    return said + (tried if module in LIBRARIES.split() else "")


def _verdict(report: Report) -> str:
    if report.of("missing"):
        return "Verdict: some names are missing; the program runs if it does not come to them."
    if report.install or report.of("placeholder"):
        return "Verdict: the names are here once the packages above are installed."
    if not report.names:
        return "Verdict: no name of PyTorch was found."
    return "Verdict: every name is here. Run it: python -m tangrad run PROGRAM"


def _section(title: str, rows: list[tuple[str, str, list[str]]]) -> list[str]:
    if not rows:
        return []
    lines = ["", f"{title}:"]
    for name, text, places in rows:
        told = ", ".join(places[:_WHERE]) + (" …" if len(places) > _WHERE else "")
        lines.append("  " + "  ".join(part for part in (name, text, told) if part))
    return lines


def as_json(report: Report) -> str:
    """Return a report as JSON, its fields as those of `Report`."""
    facts: dict[str, Any] = dict(vars(report))
    return json.dumps(facts, indent=1, ensure_ascii=False)
