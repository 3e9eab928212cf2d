"""What code is made of: names of instructions and their arguments, without what `dis` tells beside.

`dis` tells positions, lines and jumps of each instruction, which takes ten times as long, and
importing it takes milliseconds.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from opcode import EXTENDED_ARG, opname
from types import CodeType

__all__ = ["instructions", "name_of"]

# Of these a bit, or two, of the argument say something else than the name.
_SHIFTS = {"LOAD_GLOBAL": 1, "LOAD_ATTR": 1 if sys.version_info >= (3, 12) else 0}


def instructions(code: CodeType) -> Iterator[tuple[str, int]]:
    """Yield (name, argument) of each instruction, those of caches among them."""
    higher = 0
    text = code.co_code
    for at in range(0, len(text), 2):
        operation, argument = text[at], higher | text[at + 1]
        if operation == EXTENDED_ARG:
            higher = argument << 8
            continue
        higher = 0
        yield opname[operation], argument


def name_of(code: CodeType, instruction: str, argument: int) -> str:
    """Return the name that an instruction looks up."""
    return code.co_names[argument >> _SHIFTS.get(instruction, 0)]
