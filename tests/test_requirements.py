"""A package requires the packages of ours that its modules import, and no circle of them exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from ci.packages import CORE, WHOLE, Package, read_packages

PACKAGES = {name: package for name, package in read_packages().items() if name != WHOLE}


def sources(package: Package) -> list[Path]:
    return sorted((package.folder / "src").rglob("*.py"))


@cache
def owners() -> dict[str, str]:
    """Return {module: package} of all modules of ours."""
    found = {}
    for name, package in PACKAGES.items():
        root = package.folder / "src"
        for path in sources(package):
            module = ".".join(path.relative_to(root).with_suffix("").parts)
            found[module.removesuffix(".__init__")] = name
    return found


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the modules that a file imports, and what it reaches from `tangrad` by dots."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield from (f"{module}.{alias.name}" for alias in names)
            case ast.Attribute() if re.fullmatch(r"tangrad(\.\w+)+", ast.unparse(node)):
                yield ast.unparse(node)


def owner_of(name: str) -> str | None:
    """Return the package of the longest module that a dotted name begins with."""
    parts = name.split(".")
    longest_first = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((owners()[module] for module in longest_first if module in owners()), None)


def required(name: str) -> set[str]:
    """Return the packages that are installed with one, itself and what it asks for among them."""
    found, ahead = {name, CORE}, [name]
    while ahead:
        for sibling in PACKAGES[ahead.pop()].requires:
            if sibling not in found:
                found.add(sibling)
                ahead.append(sibling)
    return found


def used_by(package: Package) -> dict[str, str]:
    """Return {package: a file} of what the modules of a package import when they are loaded."""
    found: dict[str, str] = {}
    for path in sources(package):
        tree = ast.parse(path.read_text("utf-8"))
        for name in imported(tree):
            owner = owner_of(name)
            if owner is not None:
                found.setdefault(owner, str(path.relative_to(package.folder)))
    return found


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_requires_what_it_imports(name: str) -> None:
    assert {k: v for k, v in used_by(PACKAGES[name]).items() if k not in required(name)} == {}


@pytest.mark.parametrize("name", PACKAGES)
def test_packages_do_not_require_each_other_in_circles(name: str) -> None:
    siblings = PACKAGES[name].requires
    assert not [other for other in siblings if other != name and name in required(other)]


def test_every_module_of_the_public_namespace_has_one_owner() -> None:
    claimed: dict[Path, list[str]] = {}
    for name, package in PACKAGES.items():
        root = package.folder / "src"
        for path in sources(package):
            claimed.setdefault(path.relative_to(root), []).append(name)
    assert not {str(path): names for path, names in claimed.items() if len(names) > 1}
