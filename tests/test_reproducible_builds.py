"""A wheel is the same bytes twice: from another folder, at another hour, by other hashes of Python.

The full form builds what is compiled, too; the fast form, one package of Python alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from test_source_distributions import ROOT, builder, tracked

import tangrad

EPOCH = "1800000000"
PROGRAM = "import sys, setuptools.build_meta as b; b.build_wheel(sys.argv[1])"
COMPILED = ("core", "plugins/distributed", "plugins/nn", "plugins/vision", "backend_cpu")


def build(package: Path, place: Path, seed: str) -> Path:
    """Return the wheel of what is tracked of a package, built in a copy of it."""
    for name in tracked(package):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(package / name, place / name)
    done = subprocess.run(
        [builder(), "-P", "-c", PROGRAM, str(place.parent)],
        cwd=place,
        env={
            **os.environ,
            "PYTHONPATH": str(Path(tangrad.__file__).parents[1]),
            "SOURCE_DATE_EPOCH": EPOCH,
            "PYTHONHASHSEED": seed,
            "TANGRAD_LEVELS": "baseline",  # a third of the kernels; the others are made alike
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (wheel,) = place.parent.glob("*.whl")
    return wheel


def contents(wheel: Path) -> dict[str, tuple[object, ...]]:
    with zipfile.ZipFile(wheel) as opened:
        return {
            entry.filename: (entry.CRC, entry.date_time, entry.external_attr)
            for entry in opened.infolist()
        }


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "folder",
    [
        "plugins/quasirandom",
        *(pytest.param(folder, marks=pytest.mark.slow) for folder in COMPILED),
    ],
)
def test_a_wheel_is_the_same_bytes_twice(folder: str, tmp_path: Path) -> None:
    first = build(ROOT / folder, tmp_path / "a" / "sources", "1")
    again = build(ROOT / folder, tmp_path / "elsewhere" / "and" / "deeper", "2")
    assert contents(first) == contents(again)
    assert first.read_bytes() == again.read_bytes()
