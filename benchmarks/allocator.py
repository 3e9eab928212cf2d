"""Print what the caching allocator's cached path costs: `python benchmarks/allocator.py`."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE.parent / "core" / "src" / "tangrad"
C_FILES = ("allocator.c", "allocator_host.c", "allocator_report.c")


def main() -> None:
    """Compile the timing program as the wheel is compiled, and run it."""
    sources = [str(HERE / "allocator.c"), *(str(SOURCES / "native" / name) for name in C_FILES)]
    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(folder) / "allocator")
        flags = ["-std=c11", "-O2", "-pthread", f"-I{SOURCES}"]
        subprocess.run(["gcc", *flags, *sources, "-o", program], check=True)
        subprocess.run([program], check=True)


if __name__ == "__main__":
    main()
