"""The flight recorder: the last collectives of each group, always on.

Entries stand in a ring that is written in place. They are shown when a collective fails, and by
`python -m tangrad.distributed inspect`.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

from tangrad_distributed._signal import Ring

KEPT = 2000
WHERE = "TANGRAD_DISTRIBUTED_DUMP"
FIELDS = ("sequence", "collective", "line", "started", "ended", "error")


ASKED = "asked"
PATIENCE = 1.5  # seconds: ranks look twice a second whether somebody asked


def ask(folder: str) -> None:
    """Have the ranks that run on this machine write their recorders, within `PATIENCE`.

    Raises:
        OSError: the folder cannot be written to.
    """
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, ASKED), "ab"):
        os.utime(os.path.join(folder, ASKED))


def time_asked() -> float:
    """Return when somebody last asked for the recorders of running ranks; 0 if nobody did."""
    folder = os.environ.get(WHERE)
    try:
        return os.stat(os.path.join(folder, ASKED)).st_mtime if folder else 0.0
    except OSError:
        return 0.0


class Recorder(Ring):
    """Keep the last collectives of a group.

    Args:
        group: its name.
        rank: this process's rank in the world.
    """

    def __new__(cls, group: str, rank: int) -> Recorder:
        """Make room for the entries."""
        return super().__new__(cls, KEPT)

    def __init__(self, group: str, rank: int) -> None:
        self.group, self.rank = group, rank

    def dump(self) -> dict[str, Any]:
        """Return all entries as they are written to files."""
        return {
            "version": 1,
            "group": self.group,
            "rank": self.rank,
            "pid": os.getpid(),
            "entries": [dict(zip(FIELDS, entry, strict=True)) for entry in self.entries],
        }

    def write(self, folder: str) -> str:
        """Write the entries into a folder and return the file's path."""
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, f"collectives-{self.group or 'world'}-{self.rank}.json")
        with open(f"{path}.part", "w", encoding="utf-8") as file:
            json.dump(self.dump(), file, indent=1)
        os.replace(f"{path}.part", path)
        return path

    def write_where_asked(self) -> str:
        """Write into the folder that the environment names; return the path or ""."""
        folder = os.environ.get(WHERE, "")
        return self.write(folder) if folder else ""


def table(dumps: list[dict[str, Any]]) -> str:
    """Return the last collective of each rank as text, with who is behind."""
    rows = ["rank  last  collective                        since     line"]
    now = time.time()
    for dump in sorted(dumps, key=lambda dump: dump["rank"]):
        if not dump["entries"]:
            rows.append(f"{dump['rank']:>4}  none")
            continue
        last = dump["entries"][-1]
        state = "failed" if last["error"] else "done" if last["ended"] else "running"
        since = now - (last["ended"] or last["started"])
        rows.append(
            f"{dump['rank']:>4}  {last['sequence']:>4}  {last['collective'][:24]:<24} {state:<8} "
            f"{since:6.1f} s  {last['line']}"
        )
    behind = {dump["entries"][-1]["sequence"] for dump in dumps if dump["entries"]}
    if len(behind) > 1:
        rows.append(f"ranks are at different collectives: {sorted(behind)}")
    return "\n".join(rows)
