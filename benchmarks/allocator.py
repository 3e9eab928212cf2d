"""Print what the caching allocator's cached path costs: `python benchmarks/allocator.py`."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

from measuring.paired import OURS, Figure

HERE = Path(__file__).resolve().parent
SOURCES = HERE.parent / "core" / "src" / "tangrad"
C_FILES = ("allocator.c", "allocator_host.c", "allocator_report.c")
LINE = re.compile(r"(allocate .*?) *: +([\d.]+) (ns|ms)")
MICROSECONDS = {"ns": 1e-3, "ms": 1e3}
GOAL = 0.1


def report() -> str:
    """Compile the timing program as the wheel is compiled, run it and return what it printed."""
    sources = [
        str(HERE / "allocator.c"),
        *(str(SOURCES / "native" / "memory" / name) for name in C_FILES),
    ]
    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(folder) / "allocator")
        flags = ["-std=c11", "-O2", "-pthread", f"-I{SOURCES}"]
        subprocess.run(["gcc", *flags, *sources, "-o", program], check=True)
        return subprocess.run([program], check=True, capture_output=True, text=True).stdout


def figures(only: str = "") -> list[Figure]:
    """Return the program's figures, if `only` asks for them."""
    if only.lower() not in "allocator allocate + release, cached path":
        return []
    found = []
    for name, value, unit in LINE.findall(report()):
        cached_path = "release, " in name and "write" not in name
        found.append(
            Figure(
                re.sub(" +", " ", name),
                "allocator",
                "us",
                {OURS: float(value) * MICROSECONDS[unit]},
                goal=GOAL if cached_path else None,
            )
        )
    return found


if __name__ == "__main__":
    print(report(), end="")
