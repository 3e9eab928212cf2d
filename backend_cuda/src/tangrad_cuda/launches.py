"""Remember the last launches of each device, so that a fault of the GPU can be given names.

A fault is reported by whichever call comes next, long after the launch that is to blame. What is
kept of a launch is a kernel's name and where Python stood: a code object and an offset in it,
neither of which holds on to anything that a program would miss.
"""

from __future__ import annotations

import linecache
import sys
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType

import tangrad

_KEPT = 64
_SHOWN = 8
# What is ours is not what a user can change: the line to tell is the first outside.
_OWN = (str(Path(tangrad.__file__).parent), str(Path(__file__).parent))
# {file: whether it is ours}. Not by code objects, whose hash is of all that they hold.
_ours: dict[str, bool] = {}


class Launches:
    """The ring of one device's launches."""

    def __init__(self) -> None:
        self._ring: list[tuple[str, CodeType, int] | None] = [None] * _KEPT
        self._count = 0
        self._done = 0

    def note(self, kernel: str) -> None:
        """Remember a launch, and the nearest line outside of this library."""
        frame: FrameType = sys._getframe(2)
        code = frame.f_code
        while _is_ours(code.co_filename):
            outer = frame.f_back
            if outer is None:
                break
            frame, code = outer, outer.f_code
        self._ring[self._count % _KEPT] = kernel, code, frame.f_lasti
        self._count += 1

    def passed(self) -> None:
        """All launches so far are known to have worked."""
        self._done = self._count

    def trail(self) -> str:
        """Return who may be to blame, the latest first, a line each; empty if nobody."""
        first = max(self._done, self._count - _KEPT)
        entries = (self._ring[k % _KEPT] for k in range(self._count - 1, first - 1, -1))
        lines = [f"  {_told(*entry)}" for entry in islice(filter(None, entries), _SHOWN)]
        more = self._count - first - len(lines)
        if more > 0:
            lines.append(f"  and {more} before them")
        if not lines:
            return ""
        return "\n".join(
            ["launched since the device was last known to work, latest first:", *lines]
        )


def _is_ours(file: str) -> bool:
    found = _ours.get(file)
    if found is None:
        found = _ours[file] = file.startswith(_OWN)
    return found


def _told(kernel: str, code: CodeType, offset: int) -> str:
    line = next(
        (number for start, end, number in code.co_lines() if start <= offset < end),
        code.co_firstlineno,
    )
    text = linecache.getline(code.co_filename, line).strip()
    place = f"{kernel} at {code.co_filename}:{line}, in {code.co_qualname}"
    return f"{place}: {text}" if text else place
