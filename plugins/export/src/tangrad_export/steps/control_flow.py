"""Branches and loops: steps that begin and end the blocks of C that other steps stand in.

The steps of a program stay one list. Between two markers lies a run of steps without branches,
and no pass moves or joins steps of two such runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tangrad_export.program.buffers import Ref
from tangrad_export.steps.base import Number, Step

__all__ = ["Else", "EndBranch", "EndLoop", "If", "Loops", "Marker", "Test", "loops_of", "runs_of"]


class Marker(Step):
    """The beginning or end of a block.

    Args:
        refs: what it reads.

    Attributes:
        opens, closes: whether a block begins or ends here.
    """

    opens = closes = False
    line = "}"

    def __init__(self, refs: Sequence[Ref | None] = ()) -> None:
        super().__init__(refs, (), [])

    def text(self, names: list[str], at: list[str], n: list[Number]) -> list[str]:
        """Return the line, in which `@` stands for the truth value."""
        return [self.line.replace("@", f"{at[0]}[0]") if "@" in self.line else self.line]


class If(Marker):
    """The steps of a branch that is taken where a truth value holds begin."""

    opens, line = True, "if (@) {"


class Else(Marker):
    """The steps of the other branch begin."""

    opens, closes, line = True, True, "} else {"


class EndBranch(Marker):
    """The steps behind a branch begin."""

    closes = True


class Loops(Marker):
    """The steps of a loop's condition begin; `refs` are the values that it carries."""

    opens, line = True, "for (;;) {"


class Test(Marker):
    """A loop ends where a truth value does not hold; else the steps of its body begin."""

    line = "if (!@) break;"


class EndLoop(Marker):
    """A loop goes on with its condition; `refs` are the values that it carries."""

    closes = True


def runs_of(steps: Sequence[Step]) -> dict[int, int]:
    """Return {id of a step: number of the run between two markers that it is of}."""
    found, number = {}, 0
    for step in steps:
        number += isinstance(step, Marker)
        found[id(step)] = number
    return found


def loops_of(steps: Sequence[Step]) -> list[tuple[int, int]]:
    """Return the numbers of the first and last steps of all loops."""
    found: list[tuple[int, int]] = []
    begun: list[Any] = []
    for k, step in enumerate(steps):
        if isinstance(step, Loops):
            begun.append(k)
        elif isinstance(step, EndLoop):
            found.append((begun.pop(), k))
    return found
