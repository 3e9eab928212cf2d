"""Why a program cannot be one graph."""

from __future__ import annotations

__all__ = ["CaptureError", "GuardError", "Unsettled"]


class CaptureError(RuntimeError):
    """A program, or a part of it, cannot be recorded; `reason` and `line` say what and where."""

    def __init__(self, reason: str, line: str = "") -> None:
        super().__init__(f"{reason} ({line})" if line else reason)
        self.reason, self.line = reason, line


class GuardError(CaptureError):
    """What a program reads of the outside cannot be watched."""


class Unsettled(CaptureError):
    """A run changed what it reads, as the first step of an optimizer does: the next may not."""
