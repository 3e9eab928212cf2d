"""What is installed is what was declared: extras resolve, versions match, pycuda stays optional."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename

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


# All at once: an extra resolves if it does so beside the others, and pip names what does not.
# What the GPU's needs is large, and pip looks into it.
TOGETHER = ",".join(extra for extra in EXTRAS if extra != "cuda")


@pytest.mark.parametrize(
    "extra",
    ["", pytest.param(TOGETHER, id="all"), pytest.param("cuda", marks=pytest.mark.slow)],
)
def test_extras_resolve_from_the_wheelhouse(extra: str) -> None:
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
    minor = PROJECT["version"].rpartition(".")[0]
    fitting = wheels_for_this_python()
    wheels = [
        next(path for path in fitting if path.name.startswith(f"tangrad{name}-{minor}"))
        for name in ("", "_core", "_optim", "_nn")
    ]
    pip("install", "--no-deps", "--no-index", *map(str, wheels))
    told = subprocess.run(
        [python, "-c", "import tangrad; print(tangrad.__version__)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert told.startswith(f"2.13.0+tangrad{minor}")


def test_a_wheel_holds_no_compiled_modules() -> None:
    wheels = list(DIST.glob("tangrad*.whl"))
    if not wheels:
        pytest.skip("no wheelhouse: python build_wheelhouse.py makes it")
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            assert not [name for name in archive.namelist() if name.endswith(".pyc")], wheel.name


def wheels_for_this_python() -> list[Path]:
    """Return the wheels in the wheelhouse that this interpreter can install."""
    fitting = set(sys_tags())
    found = sorted(DIST.glob("tangrad*.whl"))
    return [path for path in found if parse_wheel_filename(path.name)[3] & fitting]


def test_what_is_uninstalled_leaves_nothing(tmp_path: Path) -> None:
    wheels = wheels_for_this_python()
    if not any(wheel.name.startswith("tangrad_nn-") for wheel in wheels):
        pytest.skip("no wheelhouse: python build_wheelhouse.py makes it")
    site = tmp_path / "site"
    venv.create(site, with_pip=False, symlinks=True)
    python = site / "bin" / "python"
    before = {path for path in site.rglob("*") if "__pycache__" not in path.parts}

    def pip(*arguments: str) -> None:
        command = [sys.executable, "-m", "pip", "--quiet", "--python", str(python), *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    pip("install", "--no-deps", "--no-index", *map(str, wheels))
    # What is imported is compiled beside its source; NumPy and others are this Python's.
    program = "import tangrad, tangrad.nn, tangrad.optim; tangrad.nn.Linear(2, 2)(tangrad.ones(2))"
    paths = os.pathsep.join(path for path in sys.path if path.endswith("site-packages"))
    start = f"import sys; sys.path += {paths.split(os.pathsep)!r}; {program}"
    done = subprocess.run([python, "-c", start], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pip("uninstall", "--yes", *(parse_wheel_filename(wheel.name)[0] for wheel in wheels))
    assert set(site.rglob("*")) == before


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
