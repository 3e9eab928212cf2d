"""Building backends as their authors do, and running programs that use them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import tangrad

HERE = Path(__file__).parent
CORE = HERE.parents[1]
INSTALLED = Path(tangrad.__file__).parents[1]


class Workshop:
    """Builds wheels of backends and runs programs with them on a chosen core.

    Attributes:
        folder: where everything is made.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def environment(self, *paths: Path, **variables: str) -> dict[str, str]:
        search = os.pathsep.join(map(str, (*paths, INSTALLED)))
        return {**os.environ, "PYTHONPATH": search, **variables}

    def backend(self, name: str, **variables: str) -> Path:
        """Build the wheel of a backend and unpack it; returns the folder to import it from."""
        source = Path(shutil.copytree(HERE / name, self.folder / f"source-{name}"))
        command = [sys.executable, "setup.py", "-q", "bdist_wheel", "--dist-dir", "wheels"]
        built = subprocess.run(
            command, cwd=source, env=self.environment(**variables), capture_output=True, text=True
        )
        assert built.returncode == 0, built.stderr
        (wheel,) = (source / "wheels").glob("*.whl")
        zipfile.ZipFile(wheel).extractall(self.folder / name)
        return self.folder / name

    def run(self, program: str, *paths: Path) -> subprocess.CompletedProcess[str]:
        """Run a program that finds `paths` before the core under test."""
        return subprocess.run(
            [sys.executable, "-c", program],
            cwd=self.folder,
            env=self.environment(*paths),
            capture_output=True,
            text=True,
            timeout=120,
        )


@pytest.fixture
def workshop(tmp_path):
    pytest.importorskip("setuptools", reason="backends are built with setuptools")
    return Workshop(tmp_path)


@pytest.fixture(scope="session")
def noop_folder(tmp_path_factory):
    """The folder of the do-nothing backend, built once against the core under test."""
    pytest.importorskip("setuptools", reason="backends are built with setuptools")
    return Workshop(tmp_path_factory.mktemp("noop")).backend("noop_backend")


@pytest.fixture(scope="session")
def noop(noop_folder):
    """The do-nothing backend, loaded into this process."""
    sys.path.insert(0, str(noop_folder))
    try:
        import noop_backend
    finally:
        sys.path.remove(str(noop_folder))
    return noop_backend
