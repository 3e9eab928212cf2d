"""Programs of archives that run while they are read: `__setstate__`, within bounds.

Steps are counted. Memory is bounded by the limit that the system has for a process, for as long as
the program runs, where there is such a limit.
"""

from __future__ import annotations

import mmap
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tangrad.serialization import SerializationError
from tangrad_jit.scripting.check.functions import Unit
from tangrad_jit.scripting.program.emit import Emitter
from tangrad_jit.scripting.program.retelling import MARK
from tangrad_jit.scripting.tree.nodes import Fork, every

__all__ = ["run_setter"]

#: Lines of all that a `__setstate__` runs; those of quantized modules have some ten.
MOST_STEPS = 200_000


#: Memory that a `__setstate__` may take beside what the archive holds.
MOST_MEMORY = 1 << 30
_lock = threading.Lock()


class _Counted(Emitter):
    """Python code that never enters the machine, whose steps nobody counts."""

    def __init__(self, unit: Unit) -> None:
        super().__init__(unit)
        self.entered = lambda called: _Counted(called).function()


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
        if MARK not in frame.f_globals:
            return None  # the library's own
        left -= 1
        if left < 0:
            raise SerializationError(
                f"jit.load: __setstate__ of {setter.qualified} takes more than {MOST_STEPS} steps"
            )
        return count

    run, before = _Counted(setter).function(), sys.gettrace()
    sys.settrace(count)
    try:
        with _lock, _bounded_memory():
            run(module, state)
    except MemoryError:
        raise SerializationError(
            f"jit.load: __setstate__ of {setter.qualified} takes more than {MOST_MEMORY} bytes of "
            "memory"
        ) from None
    finally:
        sys.settrace(before)


@contextmanager
def _bounded_memory() -> Iterator[None]:
    """Let the process take so much memory and no more, where the system can tell and bound it."""
    try:
        import resource

        before, hard = resource.getrlimit(resource.RLIMIT_AS)
        with open("/proc/self/statm") as file:
            held = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (ImportError, OSError, ValueError):
        yield
        return
    most = held + MOST_MEMORY
    if before != resource.RLIM_INFINITY and before <= most:
        yield
        return
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    try:
        try:
            mmap.mmap(-1, MOST_MEMORY // 2).close()
        except OSError:  # the system tells less than what the process holds
            resource.setrlimit(resource.RLIMIT_AS, (before, hard))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (before, hard))


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
