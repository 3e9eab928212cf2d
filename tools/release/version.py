"""Write the version into every file that has it: `python -m tools.release.version 0.3.0`.

It stands once, in the root's pyproject.toml. Everything else is written from it: the versions of
all packages, what they pin each other to, what the core tells, and CITATION.cff. Without a
version, files that differ are listed, and the command fails.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FORM = re.compile(r"\d+\.\d+\.\d+")
# Where a version stands: the file, what is before it, the version, what is behind it.
OF_PACKAGE = re.compile(r'(?m)(^version = ")([^"]+)(")')
OF_CORE = re.compile(r'(?m)(^VERSION = ")([^"]+)(")')
OF_CITATION = re.compile(r"(?m)(^version: )(\S+)()")
PIN = re.compile(r"(\btangrad(?:-[a-z-]+)?(?:\[[a-z,-]+\])?~=)(\d+\.\d+\.\d+)(\b)")


def main(arguments: list[str] | None = None) -> int:
    """Write or compare and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.release.version", description=__doc__)
    parser.add_argument("version", nargs="?", help="such as 0.3.0")
    chosen = parser.parse_args(arguments).version
    if chosen is None:
        differing = list(stale(of_release()))
        for path in differing:
            print(f"{path.relative_to(ROOT)} has another version", file=sys.stderr)
        return 1 if differing else 0
    if not FORM.fullmatch(chosen):
        parser.error(f"{chosen} is no version of three numbers")
    for path in stale(chosen):
        path.write_text(written(path, chosen), "utf-8")
        print(path.relative_to(ROOT))
    return 0


def of_release() -> str:
    """Return the version that the root's pyproject.toml states."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    return str(tomllib.loads(text)["project"]["version"])


def stale(version: str) -> Iterator[Path]:
    """Yield the files that would change if they were written for a version."""
    for path in places():
        if written(path, version) != path.read_text("utf-8"):
            yield path


def places() -> list[Path]:
    """Return the files in which the version stands."""
    from build_wheelhouse import package_folders

    packages = [folder / "pyproject.toml" for folder in package_folders()]
    examples = sorted(ROOT.glob("examples/*/pyproject.toml"))
    return [*packages, *examples, ROOT / "core/src/tangrad/discovery/__init__.py", ROOT / CITATION]


CITATION = "CITATION.cff"


def written(path: Path, version: str) -> str:
    """Return the text of a file with a version in the place of its own."""
    text = path.read_text("utf-8")
    if path.name == CITATION:
        return OF_CITATION.sub(rf"\g<1>{version}\g<3>", text, count=1)
    if path.suffix == ".py":
        return OF_CORE.sub(rf"\g<1>{version}\g<3>", text, count=1)
    if "examples" not in path.parts:  # those are third parties', with versions of their own
        text = OF_PACKAGE.sub(rf"\g<1>{version}\g<3>", text, count=1)
    minor = ".".join(version.split(".")[:2])
    return PIN.sub(rf"\g<1>{minor}.0\g<3>", text)


if __name__ == "__main__":
    sys.exit(main())
