"""The packages of this repository, as their tests see them.

A package describes its tests in its own pyproject.toml; nothing is edited here for a new one::

    [tool.tangrad.ci]
    minutes = 0.5                     # its share of the short form, on two idle cores
    requirements = ["onnx>=1.17"]     # what only its tests need; may name packages of ours
    full-requirements = ["ray>=2.40"] # what only the full form of its tests needs
    apart = ["old==1.0"]              # versions that conflict with others: each is installed,
                                      # alone, in apart/old==1.0 of the environment
    tests = ["tests"]                 # files and folders, relative to the package
    arguments = ["--tangrad-device=cpu"]  # for pytest, where it is the first of a combination

Each of these has a default. The minutes are a budget, not a choice of tests: which tests run
depends on the commit alone.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from build_wheelhouse import ROOT, package_folders

#: Minutes that the short form may take on two idle cores.
LIMIT = 15.0
#: Of these: requirements and wheels; checks of combinations; collection of all tests.
WHEELS, COMBINATIONS, COLLECTION = 3.1, 0.4, 1.4

WHOLE, CORE, CPU = "tangrad", "tangrad-core", "tangrad-cpu"
#: Tools of the tests, installed in every combination.
TOOLS = frozenset({"tangrad-testing"})


@dataclass(frozen=True)
class Package:
    """Describe one package of this repository, as its pyproject.toml does.

    Attributes:
        name: name of the distribution.
        folder: where it stands.
        requires: packages of ours that are installed with it.
        siblings: packages of ours that it or its tests need.
        requirements: what others publish that it or its tests need.
        apart: what its tests need in a folder of its own.
        tests: files and folders of tests.
        arguments: further arguments for pytest.
        minutes: its share of the short form.
    """

    name: str
    folder: Path
    requires: tuple[str, ...] = ()
    siblings: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    tests: tuple[Path, ...] = ()
    arguments: tuple[str, ...] = ()
    minutes: float = 0.0

    @property
    def factor(self) -> str:
        """Return the short name by which people and tox ask for the package; `-` parts factors."""
        return self.name.removeprefix("tangrad-").replace("-", "_")


def read_package(folder: Path) -> Package:
    """Read what a package says of itself.

    Raises:
        ValueError: its table has a key that means nothing here.
    """
    document = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))
    project = document["project"]
    row = dict(document.get("tool", {}).get("tangrad", {}).get("ci", {}))
    requires = list(project.get("dependencies", ()))
    needed = requires + row.pop("requirements", [])
    in_full = row.pop("full-requirements", [])
    needed += in_full if os.environ.get("TANGRAD_TESTS") == "full" else []
    tests = [folder / place for place in row.pop("tests", ["tests"])]
    package = Package(
        name=project["name"],
        folder=folder,
        requires=tuple(filter(is_ours, map(_plain_name, requires))),
        siblings=tuple(filter(is_ours, map(_plain_name, needed))),
        requirements=tuple(line for line in needed if not is_ours(_plain_name(line))),
        apart=tuple(row.pop("apart", ())),
        tests=tuple(path.resolve() for path in tests if path.exists()),
        arguments=tuple(row.pop("arguments", ())),
        minutes=float(row.pop("minutes", 0.5)),
    )
    if row:
        raise ValueError(f"{folder.name}: [tool.tangrad.ci] knows no {', '.join(sorted(row))}")
    return package


def _plain_name(requirement: str) -> str:
    """Return the name that a requirement starts with."""
    return re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def is_ours(name: str) -> bool:
    """Say whether a distribution's name is one of this repository's."""
    return name == WHOLE or name.startswith(f"{WHOLE}-")


def read_packages() -> dict[str, Package]:
    """Return all packages of this repository by name, the core first."""
    found = [read_package(folder) for folder in package_folders()]
    return {package.name: package for package in found}


def tests_of(packages: Iterable[Package]) -> list[str]:
    """Return the files and folders of some packages' tests, relative to the repository."""
    paths = dict.fromkeys(path for package in packages for path in package.tests)
    return [str(path.relative_to(ROOT)) for path in paths]


def installed_with(packages: dict[str, Package], name: str) -> tuple[str, ...]:
    """Return a package with what pip installs with it of ours, the core among it."""
    return _closure(packages, {CORE, name}, lambda package: package.requires)


def closure(packages: dict[str, Package], names: Iterable[str]) -> tuple[str, ...]:
    """Return the packages with all of ours that their tests need.

    Tests are programs as people write them: they use what `tangrad` requires.

    Raises:
        ValueError: a package needs one that is not in this repository.
    """
    wanted = {WHOLE, CORE, *TOOLS, *names} & (set(packages) | set(names))
    return _closure(packages, wanted, lambda package: package.siblings)


def _closure(
    packages: dict[str, Package],
    wanted: set[str],
    needs: Callable[[Package], tuple[str, ...]],
) -> tuple[str, ...]:
    """Return the packages, in their order, with what they need, and what that needs.

    Raises:
        ValueError: a package needs one that is not in this repository.
    """
    while more := {other for name in wanted for other in needs(packages[name])} - wanted:
        if unknown := more - set(packages):
            raise ValueError(f"{', '.join(sorted(wanted))} need {', '.join(sorted(unknown))}")
        wanted |= more
    return tuple(name for name in packages if name in wanted)


def combinations(packages: dict[str, Package]) -> list[list[str]]:
    """Return what the full form proves one by one: `tangrad`, each package, each with the CPU's.

    A package that `tangrad` requires is among `tangrad`'s own, and the CPU backend's tests contain
    those of `tangrad` with its device.
    """
    among = {CORE, *TOOLS, *packages[WHOLE].requires, WHOLE} if WHOLE in packages else {CORE}
    others = [name for name, p in packages.items() if p.tests and name not in among]
    with_cpu = [[name, CPU] for name in others if CPU not in closure(packages, [name])]
    first = [sorted(name for name in packages if name in among)] if among else []
    return [*first, *([name] for name in others), *with_cpu]


def minutes(packages: Iterable[Package]) -> float:
    """Return what the short form takes by what the packages say."""
    return WHEELS + COMBINATIONS + COLLECTION + sum(package.minutes for package in packages)
