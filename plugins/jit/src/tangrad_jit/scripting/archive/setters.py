"""Programs of archives that run while they are read: `__setstate__`, within a number of steps."""

from __future__ import annotations

import sys
from typing import Any

from tangrad.serialization import SerializationError
from tangrad_jit.scripting.check.functions import Unit
from tangrad_jit.scripting.program.emit import program_of
from tangrad_jit.scripting.tree.nodes import Fork, every

__all__ = ["run_setter"]

#: Lines of all that a `__setstate__` runs; those of quantized modules have some ten.
MOST_STEPS = 200_000


def run_setter(setter: Unit, module: Any, state: Any) -> None:
    """Give a module its state by a program of its archive.

    It runs as Python code, of which each line is counted, and each turn of a loop.

    Raises:
        SerializationError: it takes too many steps, or starts threads.
    """
    _refuse_threads(setter, set())
    left = MOST_STEPS

    def count(frame: Any, event: str, arg: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise SerializationError(
                f"jit.load: __setstate__ of {setter.qualified} takes more than {MOST_STEPS} steps"
            )
        return count

    run, before = program_of(setter), sys.gettrace()
    sys.settrace(count)
    try:
        run(module, state)
    finally:
        sys.settrace(before)


def _refuse_threads(unit: Unit, seen: set[int]) -> None:
    if id(unit) in seen:
        return
    seen.add(id(unit))
    for node in every(unit.body):
        if isinstance(node, Fork):
            raise SerializationError(
                f"jit.load: __setstate__ of {unit.qualified} starts a thread, which none may"
            )
        called = getattr(node, "unit", None)
        if isinstance(called, Unit):
            _refuse_threads(called, seen)
