"""Find the line of a program from which tangrad was called."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

_OURS = ("tangrad", "importlib")
warns_always = False
_told: set[str] = set()


def warn_once(message: str) -> None:
    """Warn, at the line of the program, once in a process; each time after `set_warn_always`."""
    if warns_always or message not in _told:
        warnings.warn(message, UserWarning, stacklevel=stacklevel_of_caller())
        _told.add(message)


def stacklevel_of_caller() -> int:
    """Return what `warnings.warn`, called by the caller, takes to point outside of tangrad.

    Packages that are called tangrad_something count as tangrad.
    """
    frame: FrameType | None = sys._getframe(1)
    level = 1
    while frame is not None and _is_ours(frame):
        frame, level = frame.f_back, level + 1
    return level


def _is_ours(frame: FrameType) -> bool:
    top = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return top in _OURS or top.startswith("tangrad_")
