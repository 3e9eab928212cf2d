"""Build the source distributions, and write each archive anew so that it is the same bytes twice.

setuptools leaves the owner, the dates of the checkout and the hour of the build in them.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

PROGRAM = "import sys, setuptools.build_meta as b; b.build_sdist(sys.argv[1])"


def build(packages: Iterable[Path], python: Path, folder: Path, epoch: int) -> list[Path]:
    """Build the source distribution of each package.

    Args:
        packages: their folders.
        python: an interpreter that has what they are built with, the core too.
        folder: of the release's files.
        epoch: date of all files.

    Raises:
        SystemExit: a build failed.
    """
    made = []
    for package in packages:
        with tempfile.TemporaryDirectory() as place:
            done = subprocess.run(
                [str(python), "-P", "-c", PROGRAM, place],
                cwd=package,
                env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch)},
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise SystemExit(f"no source distribution of {package}:\n{done.stderr[-2000:]}")
            (archive,) = Path(place).glob("*.tar.gz")
            settle(archive, epoch)
            made.append(Path(shutil.move(archive, folder / archive.name)))
    return made


def settle(archive: Path, epoch: int) -> None:
    """Write an archive anew: files in order of name, one date, no owner.

    Args:
        archive: a `.tar.gz`, replaced.
        epoch: date of all files.
    """
    plain = io.BytesIO()
    with (
        tarfile.open(archive) as before,
        tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as after,
    ):
        for entry in sorted(before.getmembers(), key=lambda entry: entry.name):
            kept = tarfile.TarInfo(entry.name)
            kept.type, kept.size, kept.mtime = entry.type, entry.size, epoch
            kept.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
            after.addfile(kept, before.extractfile(entry) if entry.isfile() else None)
    with (
        archive.open("wb") as file,
        gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=epoch) as packed,
    ):
        packed.write(plain.getvalue())
