"""Files that saves had begun when their processes were killed: named, locked, removed later.

A file is written under a name that tells its process, and locked while it is written. It is a
leftover if no process of that number lives here and nobody holds the lock: a process of another
container or host has a number that says nothing here, but holds the lock.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Any

_NAME = re.compile(r"\..*\.tangrad-(\d+)-\d+\.part")
# {folder: when it was last changed when it was looked through}
_clean: dict[str, int] = {}


def name_of_begun(target: Path) -> Path:
    """Return the path under which a file is written until it is whole."""
    return target.with_name(f".{target.name}.tangrad-{os.getpid()}-{id(object())}.part")


def lock(file: Any) -> bool:
    """Lock an open file, for as long as it is open; return whether that was possible."""
    if os.name == "nt":  # which removes no file that is open
        return True
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def remove_leftovers(folder: str) -> None:
    """Remove the leftovers of a folder, unless nothing was added to it since the last call.

    What cannot be read or removed is left as it is.
    """
    with contextlib.suppress(OSError):
        changed = os.stat(folder).st_mtime_ns
        if _clean.get(folder) == changed:
            return
        for name in os.listdir(folder):
            if name.endswith(".part") and (begun := _NAME.fullmatch(name)):
                _remove(os.path.join(folder, name), int(begun[1]))
        _clean[folder] = os.stat(folder).st_mtime_ns


def _remove(path: str, process: int) -> None:
    if process == os.getpid() or _lives(process):
        return
    with contextlib.suppress(OSError), open(path, "rb") as file:
        if lock(file):
            os.unlink(path)


def _lives(process: int) -> bool:
    if os.name == "nt":  # where signal 0 would end the process
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
