"""Make a release: `python -m tools.release`, or `tox run -e release`.

Builds wheels for each interpreter and all source distributions, checks them, and writes
OUT/files, OUT/simple (an index that `pip install --index-url` takes), OUT/tangrad.cdx.json (what
is in it) and OUT/SHA256SUMS. docs/releasing.md tells the rest.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

from tools.release import bill, cross, index, sdists, sizes, wheels
from tools.release.epoch import of_commit
from tools.release.version import of_release, stale
from tools.release.wheels import ROOT

SUPPORTED = ("python3.11", "python3.12", "python3.13", "python3.14")


def main(arguments: list[str] | None = None) -> int:
    """Make a release and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "release", help="the folder")
    parser.add_argument(
        "--python", nargs="+", help="interpreters, each with pip (default: 3.11 to 3.14, if there)"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="builds at once")
    parser.add_argument(
        "--add", action="store_true", help="keep the files of other interpreters that are there"
    )
    parser.add_argument(
        "--machine", nargs="+", choices=cross.MACHINES, default=[], help="other machines, too"
    )
    chosen = parser.parse_args(arguments)
    if differing := [str(path.relative_to(ROOT)) for path in stale(of_release())]:
        raise SystemExit(f"of another version: {', '.join(differing)}; tools/release/version.py")
    pythons = chosen.python or [name for name in SUPPORTED if shutil.which(name)]
    if not pythons:
        raise SystemExit(f"none of {', '.join(SUPPORTED)} is here; --python names others")
    out = chosen.out.resolve()
    files = out / "files"
    for part in ("simple", *(() if chosen.add else ("files",))):
        shutil.rmtree(out / part, ignore_errors=True)
    files.mkdir(parents=True, exist_ok=True)
    epoch = of_commit(ROOT)
    for python in pythons:
        found = wheels.build(python, out / "built", epoch, chosen.jobs)
        for wheel in found:
            _tell(wheels.take(wheel, files, epoch))
        for machine in chosen.machine:
            work = out / f"built-{machine}"
            work.mkdir(exist_ok=True)
            tools = _builder(python, out)
            for wheel, package in cross.compiled(found, _packages()):
                made = cross.wheel_for(machine, wheel, package, tools, work, epoch)
                _tell(wheels.take(made, files, epoch, machine))
    for archive in sdists.build(_packages(), _builder(pythons[0], out), files, epoch):
        _tell(archive)
    index.write(out)
    bill.write(out, epoch, _tools(pythons))
    made = sorted([*files.iterdir(), out / bill.NAME])
    lines = [f"{index.digest(path)}  {path.relative_to(out)}\n" for path in made]
    (out / "SHA256SUMS").write_text("".join(lines), "utf-8")
    wrong = sizes.wrong(path for path in files.iterdir() if path.suffix in (".whl", ".gz"))
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"{len(lines)} files, {time.process_time():.0f} s of this process; {out}")
    return 1 if wrong else 0


def _packages() -> list[Path]:
    from build_wheelhouse import package_folders

    return package_folders()


def _builder(python: str, out: Path) -> Path:
    """Return the Python of the tools that packages were built with, for one interpreter."""
    program = "import sys; print(sys.implementation.cache_tag)"
    told = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True)
    return out / "built" / f".tools-{told.stdout.strip()}" / "bin" / "python"


def _tools(pythons: list[str]) -> dict[str, str]:
    """Return {name: version} of what a release is made with."""
    found = {name: version(name) for name in ("auditwheel", "ziglang")}
    compiler = os.environ.get("CC", "cc")
    told = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True)
    found["C compiler"] = told.stdout.splitlines()[0]
    for python in pythons:
        asked = [python, "-c", "import platform as p; print(p.python_version())"]
        told = subprocess.run(asked, capture_output=True, text=True, check=True)
        number = told.stdout.strip()
        found[f"CPython {number.rpartition('.')[0]}"] = number
    return found


def _tell(path: Path) -> None:
    print(f"{path.stat().st_size / 2**20:6.2f} MiB  {path.name}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
