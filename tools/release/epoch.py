"""One date for everything in a release, so that two builds of one commit are the same bytes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def of_commit(root: Path) -> int:
    """Return SOURCE_DATE_EPOCH, or the date of the commit, in seconds since 1970.

    Args:
        root: of the repository.

    Raises:
        SystemExit: this is no clone, and the variable is not set.
    """
    stated = os.environ.get("SOURCE_DATE_EPOCH")
    if stated:
        return int(stated)
    command = ["git", "log", "-1", "--format=%ct"]
    found = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if found.returncode:
        raise SystemExit("this is no clone of the repository: set SOURCE_DATE_EPOCH to a date")
    return int(found.stdout)
