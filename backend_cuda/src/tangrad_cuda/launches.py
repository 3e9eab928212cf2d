"""Tell what was launched lately, so that a fault of the GPU can be given names.

A fault is reported by whichever call comes next, long after the launch that is to blame. What is
kept of a launch, by `native/ring.pxi`, is a kernel's name and where Python stood: a code object
and an offset in it, neither of which holds on to anything that a program would miss.
"""

from __future__ import annotations

import linecache
from pathlib import Path
from types import CodeType

import tangrad
from tangrad_cuda import _launch

_SHOWN = 8
# What is ours is not what a user can change: the line to tell is the first outside.
_launch.own_folders((str(Path(tangrad.__file__).parent), str(Path(__file__).parent)))


def trail(index: int) -> str:
    """Return who may be to blame on a device, the latest first; empty if nobody."""
    entries, count = _launch.launched_lately(index)
    if not entries:
        return ""
    lines = [f"  {_told(*entry)}" for entry in entries[:_SHOWN]]
    if count > len(lines):
        lines.append(f"  and {count - len(lines)} before them")
    return "\n".join(["launched since the device was last known to work, latest first:", *lines])


def _told(kernel: str, code: CodeType, offset: int) -> str:
    line = next(
        (number for start, end, number in code.co_lines() if start <= offset < end),
        code.co_firstlineno,
    )
    text = linecache.getline(code.co_filename, line).strip()
    place = f"{kernel} at {code.co_filename}:{line}, in {code.co_qualname}"
    return f"{place}: {text}" if text else place
