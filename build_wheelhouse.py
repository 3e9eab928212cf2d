"""Build a wheel of every package in this repository into dist/.

The packages pin each other and are on no index while they are being built, so they are installed
from this folder: ``pip install --find-links dist "tangrad[cpu]"``.  The core comes first, because
the others compile against it.  A wheel is kept while the sources it was made from are unchanged.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent
DIST = ROOT / "dist"
CORE = ROOT / "core"
PLACES = ("backend_*", "quantization", "plugins/*")
# What a build leaves behind in a package's folder, and what has no influence on the wheel.
NOT_SOURCES = {"build", "tests", "__pycache__"}
GENERATED = {"_index.py"}
SOURCE_SUFFIXES = frozenset(".py .pyi .pyx .pxi .pxd .h .cl .cu .toml .json .in .typed .md".split())


def main() -> None:
    """Build what is missing or out of date and list the wheelhouse."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="builds at once")
    parser.add_argument("--force", action="store_true", help="rebuild even what is up to date")
    arguments = parser.parse_args()
    if arguments.force:
        shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir(exist_ok=True)
    core_digest = build(CORE, arguments.jobs)
    siblings = [path.parent for place in PLACES for path in ROOT.glob(f"{place}/pyproject.toml")]
    # One after the other: the CPU backend compiles with all jobs, and the others compile nothing.
    for package in sorted(siblings):
        build(package, arguments.jobs, core_digest)
    for wheel in sorted(DIST.glob("*.whl")):
        print(f"{wheel.relative_to(ROOT)}  {wheel.stat().st_size / 2**20:.2f} MiB")


def build(package: Path, jobs: int, depends: str = "") -> str:
    """Build the wheel of `package` unless it is up to date, and return its sources' digest.

    Args:
        package: folder of the package.
        jobs: extensions to compile at once.
        depends: digest of what the package compiles against.
    """
    digest = _digest(package, depends)
    name = tomllib.loads((package / "pyproject.toml").read_text("utf-8"))["project"]["name"]
    # Wheels for several interpreters stand side by side.
    record = DIST / f".{name}-{sys.implementation.cache_tag}.json"
    known = json.loads(record.read_text("utf-8")) if record.exists() else {}
    if known.get("digest") == digest and (DIST / known["wheel"]).exists():
        return digest
    print(f"building {name}", flush=True)
    wheel = _build_wheel(package, jobs)
    if known:
        (DIST / known["wheel"]).unlink(missing_ok=True)
    shutil.move(wheel, DIST / wheel.name)
    shutil.rmtree(wheel.parent)
    record.write_text(json.dumps({"digest": digest, "wheel": wheel.name}), "utf-8")
    return digest


def _build_wheel(package: Path, jobs: int) -> Path:
    """Build `package` in an environment of its own and return the wheel in a new folder."""
    # setuptools packs whatever it finds there, modules deleted since the last build included.
    for collected in package.glob("build/lib*"):
        shutil.rmtree(collected)
    target = Path(tempfile.mkdtemp(prefix=".building-", dir=DIST))
    links = " ".join(filter(None, [os.environ.get("PIP_FIND_LINKS"), str(DIST)]))
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", str(target)]
    outcome = subprocess.run(
        [*command, str(package)],
        env={**os.environ, "PIP_FIND_LINKS": links, "TANGRAD_JOBS": str(jobs)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if outcome.returncode:
        shutil.rmtree(target)
        raise SystemExit(f"{outcome.stdout}\ncould not build {package.relative_to(ROOT)}")
    (wheel,) = target.glob("*.whl")
    return wheel


def _digest(package: Path, depends: str) -> str:
    """Hash the sources of `package` with everything else that its wheel depends on."""
    variables = ("TANGRAD_COVERAGE", "TANGRAD_SANITIZE")
    settings = [depends, sys.version, *(os.environ.get(name, "") for name in variables)]
    total = hashlib.sha256("\0".join(settings).encode())
    for path in _sources(package):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{path.relative_to(package)} {content}\n".encode())
    return total.hexdigest()


def _sources(package: Path) -> Iterator[Path]:
    for path in sorted(package.rglob("*")):
        inside = path.relative_to(package)
        if NOT_SOURCES.intersection(inside.parts) or path.name in GENERATED:
            continue
        # A C file beside a Cython file of the same name is what Cython made of it.
        is_handwritten_c = path.suffix == ".c" and not path.with_suffix(".pyx").exists()
        if path.is_file() and (path.suffix in SOURCE_SUFFIXES or is_handwritten_c):
            yield path


if __name__ == "__main__":
    main()
