"""Run the libraries' programs in an environment without PyTorch, by the alias package; compare.

    python libraries/without_pytorch.py --wheels dist --folder alias --oracle python timm peft

makes a virtual environment in the folder (one that is there is used again), installs
`tangrad[standard]` and the alias, then the libraries one by one (all that have a program, if none
is named). pip's report says whether PyTorch came along. Each program is then run there as it is,
and by the other Python, which has PyTorch and sees the same libraries behind its own packages. A
line per library says what came of it.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import venv
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from test_libraries import APART, CLOSE, LOOSER, PROGRAMS, close, outcome

# Where a library's distribution is not called as its package is, but for underscores.
DISTRIBUTIONS = {"open_clip": "open_clip_torch", "pyro": "pyro-ppl"}
# torchvision 0.28 is that of PyTorch 2.13; pip takes it for others by the alias's constraint.
VERSIONS = {
    "torchvision": "torchvision==0.28.0",
    "torchtext": "torchtext==0.18.0 torchdata==0.9.0 portalocker tokenizers sentencepiece",
}
# PyTorch's side: the Python's own packages first, then the libraries of the alias's environment.
BEHIND = """
import os, runpy, sys
sys.path.append(sys.argv[1])
sys.argv = sys.argv[2:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def fetched(report: dict[str, Any]) -> list[str]:
    """Return what pip fetched of PyTorch, and what comes with it, from its report."""
    names = [re.sub("[-_.]+", "-", one["metadata"]["name"]).lower() for one in report["install"]]
    return sorted(n for n in names if n in ("torch", "triton") or n.startswith("nvidia-"))


def environment(folder: Path, wheels: str) -> Path:
    """Return the Python of the environment with tangrad and its alias, made if it is not there."""
    python = folder / "env" / "bin" / "python"
    if not python.exists():
        venv.create(folder / "env", with_pip=True)
        _pip(python, "install", "--find-links", wheels, "tangrad[standard]")
    subprocess.run([str(python), "-m", "tangrad", "alias", "install"], check=True)
    return python


def _pip(python: Path, *words: str) -> None:
    subprocess.run([str(python), "-m", "pip", *words, "--quiet"], check=True)


def install(python: Path, library: str, folder: Path) -> list[str]:
    """Install a library there; return what of PyTorch came along."""
    report = folder / f"{library}.json"
    name = VERSIONS.get(library) or DISTRIBUTIONS.get(library, library)
    _pip(python, "install", "--report", str(report), *name.split())
    return fetched(json.loads(report.read_text()))


def site_of(python: Path | str) -> str:
    """Return where an environment keeps its packages."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return subprocess.check_output([str(python), "-c", code], text=True).strip()


def compared(program: Path, python: Path, oracle: str) -> tuple[int, list[str]]:
    """Run a program there and on PyTorch; return how many values agree, and which do not."""
    with TemporaryDirectory() as folder:
        behind = [oracle, "-c", BEHIND, site_of(python)]
        theirs = outcome(program, Path(folder, "torch"), behind)
        ours = outcome(program, Path(folder, "alias"), [str(python)])
    tolerances = LOOSER.get(program.stem, CLOSE)
    wrong = [
        name
        for name, value in theirs.items()
        if name not in ours or not close(ours[name], value, *tolerances)
    ]
    return len(theirs) - len(wrong), wrong + sorted(set(ours) - set(theirs))


def main(argv: list[str]) -> int:
    """Prove the libraries that are named; return 1 if any of them fetched PyTorch or differs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--wheels", default="dist", help="folder or page with tangrad's wheels")
    parser.add_argument("--folder", type=Path, required=True, help="where the environment is made")
    parser.add_argument("--oracle", help="a Python with PyTorch; without it nothing is compared")
    parser.add_argument("libraries", nargs="*", help="packages; all that have a program, if none")
    chosen = parser.parse_args(argv)
    known = {path.stem.rstrip("_"): path for path in PROGRAMS}
    known = {name: path for name, path in known.items() if name not in APART}
    unknown = [name for name in chosen.libraries if name not in known]
    if unknown:
        parser.error(f"no program for {', '.join(unknown)}; there are {', '.join(known)}")
    python = environment(chosen.folder, chosen.wheels)
    failed = False
    for library in chosen.libraries or known:
        try:
            came = install(python, library, chosen.folder)
            told = f"fetched {', '.join(came)}" if came else "no PyTorch fetched"
            failed |= bool(came)
            if chosen.oracle:
                agree, wrong = compared(known[library], python, chosen.oracle)
                told += f", {agree} values agree" + (f", not {', '.join(wrong)}" if wrong else "")
                failed |= bool(wrong)
        except (AssertionError, subprocess.SubprocessError) as error:
            failed, told = True, f"failed: {str(error)[-1500:]}"
        print(f"{library}: {told}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
