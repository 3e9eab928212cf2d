"""The source distribution of a compiled package holds all that its wheel is built from."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import tangrad

ROOT = Path(__file__).resolve().parents[1]
COMPILED = sorted(
    path.parent
    for place in ("core", "backend_*", "backend_*/*", "quantization", "plugins/*")
    for path in ROOT.glob(f"{place}/setup.py")
)
# Not of the build: tests, and what people read in the repository.
APART = ("tests/", "build/")
NOT_BUILT = {"fit_special_functions.py", "VERIFIED.md", "compiled_objects.json"}


def builder() -> str:
    """Return a Python that has what packages are built with: the wheelhouse's, if it is there."""
    made = ROOT / "dist" / f".tools-{sys.implementation.cache_tag}" / "bin" / "python"
    if made.exists():
        return str(made)
    if importlib.util.find_spec("Cython") is None or importlib.util.find_spec("setuptools") is None:
        pytest.skip("neither build_wheelhouse.py's tools nor Cython are here")
    return sys.executable


def tracked(folder: Path) -> set[str]:
    """Return the files of a package that are no results of a build, without nested packages'."""
    found = subprocess.run(
        ["git", "ls-files"], cwd=folder, capture_output=True, text=True, check=False
    )
    if found.returncode:
        pytest.skip("this is no clone of the repository")
    nested = [str(path.parent.relative_to(folder)) for path in folder.glob("*/pyproject.toml")]
    return {
        name
        for name in found.stdout.splitlines()
        if not name.startswith((*APART, *(f"{place}/" for place in nested)))
    }


@pytest.mark.parametrize("folder", COMPILED, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_source_distribution_holds_what_is_compiled(folder, tmp_path) -> None:
    wanted = tracked(folder)
    copy = tmp_path / "copy"
    for name in wanted:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / name, copy / name)
    program = "import sys, setuptools.build_meta as b; b.build_sdist(sys.argv[1])"
    done = subprocess.run(
        [builder(), "-P", "-c", program, str(tmp_path)],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(Path(tangrad.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        held = {name.partition("/")[2] for name in opened.getnames()}
    assert {name for name in wanted - held if Path(name).name not in NOT_BUILT} == set()
    made = {f"{name[: -len('.pyx')]}.c" for name in wanted if name.endswith(".pyx")}
    assert not made & held, "what Cython makes is made again where it is installed"
