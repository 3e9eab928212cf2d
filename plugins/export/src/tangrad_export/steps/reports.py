"""Reports: conditions that do not hold, and the end of a program that has reported something."""

from __future__ import annotations

from typing import Any

from tangrad_export.program.buffers import Ref
from tangrad_export.program.recording import Recording
from tangrad_export.steps.base import Step

__all__ = ["Check", "Guard", "guard"]


class Check(Step):
    """Report that a condition does not hold.

    Args:
        refs: of the condition and of the cell.
    """

    def __init__(self, refs: list[Ref]) -> None:
        super().__init__(refs, (1,), [])

    def text(self, names: list[str], at: list[str], n: list[Any]) -> list[str]:
        """Return the branch."""
        return [f"if (!{at[0]}[0]) {at[1]}[0] = 1;"]


class Guard(Step):
    """Leave the function if a step has reported something.

    Args:
        cell: where steps report.
    """

    def __init__(self, cell: Ref) -> None:
        super().__init__([cell], (), [])

    def text(self, names: list[str], at: list[str], n: list[Any]) -> list[str]:
        """Return the branch; `@` stands for what the function returns."""
        return [f"if ({at[0]}[0]) return @;"]


def guard(recording: Recording) -> None:
    """Have a program end here if a step has reported something, where one can."""
    if recording.errors is not None:
        recording.add(Guard(Ref(recording.errors, 0, "int64")))
