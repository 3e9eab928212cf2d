"""What is installed is what was declared: extras resolve, versions match, pycuda stays optional."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from ci.steps import read_packages

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
PROJECT = tomllib.loads((ROOT / "core" / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
SIBLINGS = set(read_packages())


def requirements(extra: str) -> list[Requirement]:
    return [Requirement(line) for line in EXTRAS[extra]]


@pytest.mark.parametrize("extra", ["", *EXTRAS])
def test_an_extra_resolves_from_the_wheelhouse(extra: str) -> None:
    if not list(DIST.glob("tangrad-*.whl")):
        pytest.skip("no wheelhouse: python build_wheelhouse.py makes it")
    wanted = f"tangrad[{extra}]" if extra else "tangrad"
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed"]
    outcome = subprocess.run(
        [*command, "--find-links", str(DIST), wanted], capture_output=True, text=True
    )
    assert outcome.returncode == 0, outcome.stderr
    assert "does not provide the extra" not in outcome.stderr


def test_a_wheel_holds_no_compiled_modules() -> None:
    wheels = list(DIST.glob("tangrad*.whl"))
    if not wheels:
        pytest.skip("no wheelhouse: python build_wheelhouse.py makes it")
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            assert not [name for name in archive.namelist() if name.endswith(".pyc")], wheel.name


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_pins_its_packages_to_the_core_s_minor_version(extra: str) -> None:
    version = PROJECT["version"]
    minor = version.rpartition(".")[0]
    for requirement in requirements(extra):
        assert str(requirement.specifier) == f"~={minor}.0"
        assert requirement.specifier.contains(version)


def test_all_means_every_extra() -> None:
    single = {r.name for extra in EXTRAS if extra != "all" for r in requirements(extra)}
    assert {r.name for r in requirements("all")} == single


def test_every_package_has_an_extra_and_extras_name_no_other() -> None:
    named = {requirement.name for extra in EXTRAS for requirement in requirements(extra)}
    # An emulator stands in for hardware in the tests of its device.
    assert named == {name for name in SIBLINGS - {"tangrad"} if not name.endswith("-emulator")}


def test_what_installs_anywhere_asks_for_no_pycuda() -> None:
    asking = {extra for extra in EXTRAS if any("pycuda" in r.extras for r in requirements(extra))}
    assert asking <= {"cuda"}
