"""Install exactly one combination of our wheels, and before that what all tests need of others."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from build_wheelhouse import DIST, ROOT
from ci.steps import Package, is_ours

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


class StepError(RuntimeError):
    """Tell why a step could not even start."""


def install_requirements(packages: Iterable[Package]) -> subprocess.Popen[bytes]:
    """Start to install what tests and packages need of others, with the one PyTorch."""
    others = sorted({line for package in packages for line in package.requirements})
    listed = ["-r", str(ROOT / "tests" / "requirements.txt")]
    return subprocess.Popen([*PIP, "install", "--quiet", *listed, *others])


def install_apart(packages: Iterable[Package]) -> None:
    """Install what stands beside no other version of it, each in a folder of its own.

    Raises:
        StepError: pip failed; the message is what it said.
    """
    for line in sorted({line for package in packages for line in package.apart}):
        folder = Path(sys.prefix, "apart", line)
        if not folder.exists():
            _pip("install", "--quiet", "--no-deps", "--target", str(folder), line)


def build_wheels(names: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    """Start to build the wheels that users would get; or some with what they need, for here."""
    wanted = [*names] or ["--portable"]
    return subprocess.Popen([sys.executable, str(ROOT / "build_wheelhouse.py"), *wanted])


def install(names: Sequence[str]) -> None:
    """Leave the wheels of these packages installed, and no other one of ours.

    Raises:
        StepError: pip failed; the message is what it said.
    """
    uninstall()
    wheels = [str(wheel_of(name)) for name in names]
    _pip("install", "--quiet", "--no-deps", "--no-index", *wheels)
    if (now := installed()) != sorted(names):
        raise StepError(f"wanted {', '.join(sorted(names))}; installed are {', '.join(now)}")


def uninstall() -> None:
    """Remove every package of ours from this environment."""
    if old := installed():
        _pip("uninstall", "--quiet", "--yes", *old)


def installed() -> list[str]:
    """Return the sorted names of our packages that are installed in this environment."""
    # Not importlib.metadata's cache of this process: pip ran in another one.
    code = "import importlib.metadata as m; print(*{d.metadata['Name'] for d in m.distributions()})"
    names = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    return sorted(name for name in names if is_ours(name.lower()))


def weight(packages: Iterable[Package]) -> int:
    """Return the bytes of what a run leaves on disk: this environment, the wheels, the builds."""
    folders = [Path(sys.prefix), DIST, *(package.folder / "build" for package in packages)]
    files = (path for folder in folders for path in folder.rglob("*"))
    return sum(path.lstat().st_size for path in files if path.is_file() and not path.is_symlink())


def wheel_of(name: str) -> Path:
    """Return the wheel that the wheelhouse built last for this interpreter.

    Raises:
        StepError: there is none.
    """
    record = DIST / f".{name}-{sys.implementation.cache_tag}.json"
    if not record.exists():
        raise StepError(f"the wheelhouse holds no {name}: python build_wheelhouse.py builds it")
    return DIST / json.loads(record.read_text("utf-8"))["wheel"]


def _pip(*arguments: str) -> None:
    done = subprocess.run(
        [*PIP, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        raise StepError(f"pip {' '.join(arguments)}\n{done.stdout}")
