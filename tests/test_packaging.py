"""What is installed is what was declared: extras resolve, versions match, pycuda stays optional."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from ci.packages import read_packages

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
SIBLINGS = set(read_packages())
# Required by packages that bring or compile for such devices, and asked for by nobody else.
FOR_DEVICES = {"tangrad-source-kernels"}


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


# The wheel of a core from before, as far as pip looks at it: file by file.
OLD = {
    "tangrad/__init__.py": "raise ImportError('the old one')",
    "tangrad-0.1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tangrad\nVersion: 0.1.0\n",
    "tangrad-0.1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n",
    "tangrad-0.1.0.dist-info/RECORD": "tangrad/__init__.py,,\n",
}


def test_a_core_from_before_the_packages_is_replaced_in_two_commands(tmp_path: Path) -> None:
    if not list(DIST.glob("tangrad_core-*.whl")):
        pytest.skip("no wheelhouse: python build_wheelhouse.py makes it")
    old = tmp_path / "tangrad-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(old, "w") as archive:
        for name, text in OLD.items():
            archive.writestr(name, text)
    site = tmp_path / "site"
    venv.create(site, with_pip=False, symlinks=True)
    python = site / "bin" / "python"

    def pip(*arguments: str) -> None:
        command = [sys.executable, "-m", "pip", "--quiet", "--python", str(python), *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    pip("install", "--no-deps", "--no-index", str(old))
    pip("uninstall", "--yes", "tangrad")
    wheels = (next(DIST.glob(f"tangrad{name}-0.2*.whl")) for name in ("", "_core", "_optim", "_nn"))
    pip("install", "--no-deps", "--no-index", *map(str, wheels))
    told = subprocess.run(
        [python, "-c", "import tangrad; print(tangrad.__version__)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert told.startswith("2.13.0+tangrad0.2")


def test_a_wheel_holds_no_compiled_modules() -> None:
    wheels = list(DIST.glob("tangrad*.whl"))
    if not wheels:
        pytest.skip("no wheelhouse: python build_wheelhouse.py makes it")
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            assert not [name for name in archive.namelist() if name.endswith(".pyc")], wheel.name


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_pins_its_packages_to_one_minor_version(extra: str) -> None:
    version = PROJECT["version"]
    minor = version.rpartition(".")[0]
    for requirement in requirements(extra):
        assert str(requirement.specifier) == f"~={minor}.0"
        assert requirement.specifier.contains(version)


def test_all_means_every_extra() -> None:
    single = {r.name for extra in EXTRAS if extra != "all" for r in requirements(extra)}
    assert {r.name for r in requirements("all")} == single


def test_every_package_is_required_or_an_extra_and_no_other_is_named() -> None:
    named = {requirement.name for extra in EXTRAS for requirement in requirements(extra)}
    named |= {Requirement(line).name for line in PROJECT["dependencies"]}
    named |= FOR_DEVICES
    # An emulator stands in for hardware in the tests of its device.
    assert named == {name for name in SIBLINGS - {"tangrad"} if not name.endswith("-emulator")}


def test_what_installs_anywhere_asks_for_no_pycuda() -> None:
    asking = {extra for extra in EXTRAS if any("pycuda" in r.extras for r in requirements(extra))}
    assert asking <= {"cuda"}
