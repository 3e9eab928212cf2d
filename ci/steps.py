"""What is proved, and in how many minutes: a step is a combination of packages and its tests.

A package describes itself in its own pyproject.toml; nothing is edited here for a new one::

    [tool.tangrad.ci]
    minutes = 1.5                     # its tests, without the CPU backend; 0: among others' alone
    minutes-with-cpu = 1.0            # the same tests once more, with tangrad-cpu; 0: not at all
    least-minutes = 1.5               # what suffices when all packages together want too much
    requirements = ["onnx>=1.17"]     # what only its tests need; may name packages of ours
    full-requirements = ["ray>=2.40"] # what only the full form of its tests needs
    apart = ["old==1.0"]              # versions that do not stand beside the others: each is
                                      # installed, alone, in apart/old==1.0 of the environment
    tests = ["tests"]                 # files and folders, relative to the package
    arguments = ["--tangrad-device=opencl"]  # for pytest

Each of these has a default. Minutes are meant on two cores of the slowest machine known, which
takes twice as long as that of the durations; of tests that take longer a part is chosen
(`sampling`). The choice depends on the tests, their recorded durations and these minutes, never on
the machine.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from build_wheelhouse import ROOT, package_folders

#: What all steps may take together, on two cores of the slowest machine.
LIMIT = 38.0
#: Bytes that a whole run may leave on disk.
DISK = 6e9
#: The requirements of all tests and the wheels; every package installed together; one pair.
SETUP, TOGETHER, PAIR = 6.0, 3.4, 0.75
#: The core without anything else of ours.
ALONE = 0.6
#: Seconds of a step in which wheels are installed and tests are collected; so of all tests.
OVERHEAD, OVERHEAD_OF_ALL = 15.0, 90.0
#: What people get who ask for one combination: all its tests.
UNLIMITED = 24 * 60.0

WHOLE, CORE, CPU = "tangrad", "tangrad-core", "tangrad-cpu"
#: Tools of the tests, installed in every step.
TOOLS = frozenset({"tangrad-testing"})


@dataclass(frozen=True)
class Package:
    """Describe one package of this repository, as its pyproject.toml does.

    Attributes:
        name: name of the distribution.
        folder: where it stands.
        siblings: packages of ours that it or its tests need.
        runtime_siblings: packages of ours that are installed with it.
        apart: what its tests need in a folder of its own.
        requirements: what others publish that it or its tests need.
        tests: files and folders of tests.
        arguments: further arguments for pytest.
        minutes: what its tests may take in a step of their own; 0 means that there is none.
        minutes_with_cpu: what they may take again with the CPU backend.
        least_minutes: what suffices where minutes are short.
    """

    name: str
    folder: Path
    siblings: tuple[str, ...]
    requirements: tuple[str, ...]
    tests: tuple[Path, ...]
    arguments: tuple[str, ...]
    minutes: float
    minutes_with_cpu: float
    least_minutes: float
    runtime_siblings: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()

    @property
    def factor(self) -> str:
        """Return the short name by which people and tox ask for the package; `-` parts factors."""
        return self.name.removeprefix("tangrad-").replace("-", "_")


@dataclass(frozen=True)
class Step:
    """Name one combination of packages, the tests that it has to pass, and its minutes.

    Of these, `overhead` seconds pass while no test runs.
    """

    name: str
    packages: tuple[str, ...]
    tests: tuple[Path, ...]
    arguments: tuple[str, ...]
    minutes: float
    least_minutes: float
    overhead: float = OVERHEAD


def read_package(folder: Path) -> Package:
    """Read what a package says of itself.

    Raises:
        ValueError: its table has a key that means nothing here.
    """
    document = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))
    project = document["project"]
    row = dict(document.get("tool", {}).get("tangrad", {}).get("ci", {}))
    needed = [*project.get("dependencies", ()), *row.pop("requirements", ())]
    apart = tuple(row.pop("apart", ()))
    in_full = row.pop("full-requirements", ())
    needed += in_full if os.environ.get("TANGRAD_TESTS") == "full" else ()
    tests = [folder / place for place in row.pop("tests", ["tests"])]
    minutes = float(row.pop("minutes", 1.0))
    package = Package(
        name=project["name"],
        folder=folder,
        siblings=tuple(name for name in map(_plain_name, needed) if is_ours(name)),
        requirements=tuple(line for line in needed if not is_ours(_plain_name(line))),
        tests=tuple(path.resolve() for path in tests if path.exists()),
        arguments=tuple(row.pop("arguments", ())),
        minutes=minutes,
        minutes_with_cpu=float(row.pop("minutes-with-cpu", 0.6)),
        least_minutes=float(row.pop("least-minutes", minutes)),
        runtime_siblings=tuple(filter(is_ours, map(_plain_name, project.get("dependencies", ())))),
        apart=apart,
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


def plan(packages: dict[str, Package], commit: str) -> list[Step]:
    """Return all steps: each package alone, each with the CPU backend, all, and one pair.

    Args:
        packages: by name.
        commit: what decides which pair is proved this time.
    """
    tested = [package for package in packages.values() if package.tests]
    steps = [by_itself(packages[CORE])] if CORE in packages else []
    steps += [combine(packages, [package.name]) for package in tested if package.minutes]
    steps += [
        combine(packages, [package.name, CPU], package.minutes_with_cpu)
        for package in _leaves(tested)
        if CPU in packages and CPU not in closure(packages, [package.name])
        if package.minutes_with_cpu
    ]
    steps += [_of_all(packages, tested)] if len(tested) > 1 else []
    apart = [package.name for package in _leaves(tested) if package.minutes]
    pairs = list(itertools.combinations(apart, 2))
    if pairs:
        steps.append(combine(packages, pairs[hashed(commit) % len(pairs)], PAIR))
    return shortened(steps)


def by_itself(core: Package) -> Step:
    """Return the step in which nothing of ours is installed but the core."""
    tests = (core.folder / "tests" / "alone",)
    return Step("core by itself", (core.name,), tests, (), ALONE, ALONE)


def shortened(steps: Sequence[Step]) -> list[Step]:
    """Return the steps with what is too much taken from those that say that less suffices.

    Of a large suite a part can be chosen, so it gives way to packages that come later.
    """
    excess = max(0.0, total_minutes(steps) - LIMIT)
    spare = sum(step.minutes - step.least_minutes for step in steps)
    part = min(1.0, excess / spare) if spare else 0.0
    return [
        replace(step, minutes=step.minutes - part * (step.minutes - step.least_minutes))
        for step in steps
    ]


def _leaves(packages: Iterable[Package]) -> list[Package]:
    """Return the packages that may stand beside any other: not the core, the tools, the CPU's."""
    return [p for p in packages if p.name not in {WHOLE, CORE, CPU, *TOOLS}]


def combine(
    packages: dict[str, Package], names: Sequence[str], minutes: float | None = None
) -> Step:
    """Return the step that installs some packages with what they need.

    The CPU backend beside another package is a condition: the other one's tests are run. The
    arguments of the first package hold for all.

    Args:
        packages: all of this repository, by name.
        names: the combination.
        minutes: what it may take; by default what the first package says.
    """
    chosen = [packages[name] for name in names]
    tested = [p for p in chosen if p.name != CPU or len(names) == 1]
    alone = chosen[0]
    return Step(
        name=" + ".join(package.factor for package in chosen),
        packages=closure(packages, names),
        tests=tuple(dict.fromkeys(path for package in tested for path in package.tests)),
        arguments=alone.arguments,
        minutes=alone.minutes if minutes is None else minutes,
        least_minutes=alone.least_minutes if minutes is None else minutes,
    )


def _of_all(packages: dict[str, Package], tested: Sequence[Package]) -> Step:
    tests = tuple(dict.fromkeys(path for package in tested for path in package.tests))
    return Step("all together", tuple(packages), tests, (), TOGETHER, TOGETHER, OVERHEAD_OF_ALL)


def closure(packages: dict[str, Package], names: Iterable[str]) -> tuple[str, ...]:
    """Return the packages with all of ours that they need, and those that every step has.

    Tests are programs as people write them: they use what `tangrad` requires.

    Raises:
        ValueError: a package needs one that is not in this repository.
    """
    wanted = {WHOLE, CORE, *TOOLS, *names} & (set(packages) | set(names))
    while more := {sibling for name in wanted for sibling in packages[name].siblings} - wanted:
        if unknown := more - set(packages):
            raise ValueError(f"{', '.join(sorted(wanted))} need {', '.join(sorted(unknown))}")
        wanted |= more
    return tuple(name for name in packages if name in wanted)


def hashed(text: str) -> int:
    """Return a number that is the same for a text on every machine."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def total_minutes(steps: Iterable[Step]) -> float:
    """Return what the whole run may take."""
    return SETUP + sum(step.minutes for step in steps)


def relative(path: Path) -> str:
    """Return a path as it is told to people."""
    return str(path.relative_to(ROOT))
