"""What this process, its children and the device hold: memory and open files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

PROC = Path("/proc")


def usage(driver: Any) -> dict[str, tuple[int, str]]:
    """Return {what: (amount, unit)}, as far as this system and the driver tell."""
    found = {}
    free = dict(driver.properties(0)).get("free_memory")
    if isinstance(free, int):
        found["the device's memory"] = (-free, "bytes")
    if (PROC / "self" / "statm").exists():
        processes = family(os.getpid())
        found["memory of the host"] = (sum(map(resident, processes)), "bytes")
        found["open files"] = (sum(map(open_files, processes)), "files")
    return found


def grown(
    before: dict[str, tuple[int, str]], after: dict[str, tuple[int, str]]
) -> dict[str, tuple[int, str]]:
    """Return by how much each amount grew."""
    return {what: (after[what][0] - amount, unit) for what, (amount, unit) in before.items()}


def family(process: int) -> list[int]:
    """Return a process and all that descend from it."""
    parents: dict[int, int] = {}
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = parent_of(folder)
            except OSError:  # it has ended
                continue
    found = [process]
    for member in found:
        found += [child for child, parent in parents.items() if parent == member]
    return found


def parent_of(folder: Path) -> int:
    """Return the parent of a process, from its folder in /proc."""
    text = (folder / "stat").read_text()
    return int(text.rpartition(")")[2].split()[1])  # a program's name may have blanks


def resident(process: int) -> int:
    """Return how many bytes of a process are in memory."""
    try:
        pages = int((PROC / str(process) / "statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def open_files(process: int) -> int:
    """Return how many files a process has open."""
    try:
        return len(os.listdir(PROC / str(process) / "fd"))
    except OSError:
        return 0
