"""How large the files of a release may be: who installs by a telephone notices a megabyte."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tools.release.index import project_of

# MiB of one wheel or source distribution; the largest file at the time of writing is behind it.
USUAL = 0.5
LIMITS = {
    "tangrad-core": 1.8,
    "tangrad-cpu": 9.0,
    "tangrad-jit": 1.0,
}
# A user's whole installation of `tangrad[all]`, compressed.
TOGETHER = 14.0


def wrong(files: Iterable[Path]) -> list[str]:
    """Return a line for each limit that files of a release are above."""
    lines, totals = [], dict[str, float]()
    for path in files:
        size, project = path.stat().st_size / 2**20, project_of(path.name)
        limit = LIMITS.get(project, USUAL)
        if size > limit:
            lines.append(f"{path.name} has {size:.2f} MiB, more than {limit}")
        if path.suffix == ".whl":
            totals[project] = max(size, totals.get(project, 0.0))
    total = sum(totals.values())
    if total > TOGETHER:
        lines.append(f"all wheels together have {total:.1f} MiB, more than {TOGETHER}")
    return lines
