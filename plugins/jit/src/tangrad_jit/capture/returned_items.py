"""Whether a number that a program takes out of a tensor goes straight to who called the program.

Then nothing of the run depends on it: `return loss.item()` is a result like any other. Between the
call of `item` and the return, code may make other results, and put all together.
"""

from __future__ import annotations

import dis
import sys
from functools import lru_cache
from types import CodeType

from tangrad_jit.capture.calls import is_library

__all__ = ["item_is_returned_to"]

_BUILD = ("BUILD_TUPLE", "BUILD_LIST", "BUILD_MAP", "BUILD_CONST_KEY_MAP")
_SILENT = ("CACHE", "PRECALL", "NOP", "NOT_TAKEN", "KW_NAMES", "EXTENDED_ARG")


def item_is_returned_to(caller: CodeType) -> bool:
    """Return whether the program is at a call of `item()` whose number it returns to a caller.

    Args:
        caller: the code that calls the program.
    """
    frame = sys._getframe(1)
    while is_library(frame.f_code):
        if frame.f_back is None:
            return False
        frame = frame.f_back
    outer = frame.f_back
    while outer is not None and outer.f_code is not caller and is_library(outer.f_code):
        outer = outer.f_back  # a module's call, which leads to its `forward`
    if outer is None or outer.f_code is not caller:
        return False
    return frame.f_lasti in _returned_items(frame.f_code)


@lru_cache(maxsize=1024)
def _returned_items(code: CodeType) -> frozenset[int]:
    """Return where code calls `item()` and returns what it gives."""
    found: set[int] = set()
    way = _Way()
    for step in dis.get_instructions(code):
        if step.opname == "RETURN_VALUE":
            found |= way.pending
            way = _Way()
        elif step.opname not in _SILENT and not way.goes_on(step):
            way = _Way()
    return frozenset(found)


class _Way:
    """What code has done since it called `item()`.

    Attributes:
        pending: where it did.
        above: how many objects lie on the stack above the last number, or what it is part of.
        stored: whether a local variable holds one.
        method: the name of the method that was loaded last, if nothing came after it.
    """

    def __init__(self) -> None:
        self.pending: set[int] = set()
        self.above = 0
        self.stored = False
        self.method = ""

    def goes_on(self, step: dis.Instruction) -> bool:
        """Follow an instruction; return whether the numbers have gone nowhere else by it."""
        name, count, method = step.opname, step.arg or 0, self.method
        self.method = step.argval if name in ("LOAD_METHOD", "LOAD_ATTR") else ""
        if name == "CALL":
            if count == 0 and method == "item":
                self.pending.add(step.offset)
                self.above = 0
                return True
            self.above -= count + 1
            return not self.stored and self.above > 0
        if name.startswith(_BUILD):
            taken = 2 * count if name == "BUILD_MAP" else count + (name == "BUILD_CONST_KEY_MAP")
            self.above = self.above - taken + 1 if taken <= self.above else 0
            return True
        if name == "STORE_FAST":
            self.stored = self.stored or (bool(self.pending) and self.above == 0)
            self.above = max(0, self.above - 1)
            return True
        if not name.startswith(("LOAD_", "PUSH_NULL")):
            return False
        self.above += dis.stack_effect(step.opcode, step.arg)
        return name not in ("LOAD_METHOD", "LOAD_ATTR") or self.above > 0
