"""How much is told and checked beside the work, and a breakpoint on one rank."""

from __future__ import annotations

import os
import pdb
import sys
from enum import Enum, IntEnum
from typing import Any


class DebugLevel(IntEnum):
    """Say how much is checked: headers and the flight recorder are always on here."""

    OFF = 0
    INFO = 1
    DETAIL = 2

    __str__ = Enum.__str__


_level = [DebugLevel.OFF]


def get_debug_level() -> DebugLevel:
    """Return how much is checked."""
    return _level[0]


def set_debug_level(level: DebugLevel) -> None:
    """Say how much is checked."""
    _level[0] = DebugLevel(level)


def set_debug_level_from_env() -> None:
    """Take the level from TORCH_DISTRIBUTED_DEBUG.

    Raises:
        RuntimeError: it names none.
    """
    name = os.environ.get("TORCH_DISTRIBUTED_DEBUG", "OFF").upper()
    if name not in DebugLevel.__members__:
        raise RuntimeError(
            "The value of TORCH_DISTRIBUTED_DEBUG must be OFF, INFO or DETAIL, got " + repr(name)
        )
    _level[0] = DebugLevel[name]


set_debug_level_from_env()


class _TerminalPdb(pdb.Pdb):
    """Read from the terminal: a launcher's children have no standard input."""

    def interaction(self, *args: Any, **kwargs: Any) -> None:
        before = sys.stdin
        try:
            with open("/dev/tty") as sys.stdin:
                super().interaction(*args, **kwargs)
        finally:
            sys.stdin = before


def breakpoint(rank: int = 0, skip: int = 0, timeout_s: int = 3600) -> None:
    """Stop one rank in the debugger while the others wait.

    Args:
        rank: which one.
        skip: how many calls to let pass first.
        timeout_s: how long the others wait, in seconds.
    """
    from datetime import timedelta

    from tangrad_distributed.communication.collectives import barrier
    from tangrad_distributed.world import get_rank

    _passed[0] += 1
    if _passed[0] <= skip:
        return
    if get_rank() == rank:
        _TerminalPdb().set_trace(sys._getframe(1))
    barrier(timeout=timedelta(seconds=timeout_s))


_passed = [0]
