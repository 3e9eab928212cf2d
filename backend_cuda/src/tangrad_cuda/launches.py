"""Remember the last launches of each device, so that a fault of the GPU can be given names.

A fault is reported by whichever call comes next, long after the launch that is to blame. What is
kept of a launch is a kernel's name and where Python stood: a code object and an offset in it,
neither of which holds on to anything that a program would miss.
"""

from __future__ import annotations

import sys
from itertools import islice
from types import CodeType, FrameType

_KEPT = 64
_SHOWN = 8
_LEVELS = 12
_OWN = ("tangrad", "tangrad_cuda")


class Launches:
    """The ring of one device's launches."""

    def __init__(self) -> None:
        self._ring: list[tuple[str, CodeType, int] | None] = [None] * _KEPT
        self._count = 0
        self._done = 0

    def note(self, kernel: str, depth: int) -> None:
        """Remember a launch.

        Args:
            kernel: what to call it.
            depth: how many frames stand between the caller and what called the op.
        """
        frame = sys._getframe(depth)
        self._ring[self._count % _KEPT] = kernel, frame.f_code, frame.f_lasti
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
        return "\n".join(["launched since the device was last known to work, latest first:", *lines])


def _told(kernel: str, code: CodeType, offset: int) -> str:
    line = next(
        (number for start, end, number in code.co_lines() if start <= offset < end),
        code.co_firstlineno,
    )
    return f"{kernel} at {code.co_filename}:{line}, in {code.co_qualname}"
