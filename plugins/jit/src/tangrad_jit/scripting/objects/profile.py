"""`jit._ScriptProfile`: how often Python calls scripts, and how long they take."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tangrad_jit.scripting.check.functions import Unit
from tangrad_jit.scripting.recording.following import ACTIVE

__all__ = ["ScriptProfile", "_ScriptProfile", "timed"]

_enabled: list[ScriptProfile] = []


class ScriptProfile:
    """The calls of scripts between `enable` and `disable`, from any thread.

    What a script calls is part of its time.
    """

    def __init__(self) -> None:
        self._found: dict[int, tuple[Unit, int, float]] = {}

    def enable(self) -> None:
        """Count and time calls from here on."""
        if self not in _enabled:
            _enabled.append(self)
            ACTIVE.append(self)

    def disable(self) -> None:
        """Stop; what has been found is kept."""
        if self in _enabled:
            _enabled.remove(self)
            ACTIVE.remove(self)

    def add(self, unit: Unit, seconds: float) -> None:
        """Add a call."""
        _, calls, before = self._found.get(id(unit), (unit, 0, 0.0))
        self._found[id(unit)] = unit, calls + 1, before + seconds

    def dump_string(self) -> str:
        """Return a line for each script: calls, milliseconds, name and place; "" without calls."""
        if not self._found:
            return ""
        rows = sorted(self._found.values(), key=lambda row: -row[2])
        lines = [f"{'calls':>8} {'ms':>12}  script"]
        for unit, calls, seconds in rows:
            where = f"{unit.source.file}:{unit.source.first}"
            lines.append(f"{calls:>8} {seconds * 1e3:>12.6f}  {unit.qualified} ({where})")
        return "\n".join(lines) + "\n"

    def dump(self) -> None:
        """Print what `dump_string` returns."""
        print(self.dump_string())


def timed(unit: Unit, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call a script, and tell the profiles that are enabled."""
    start = time.perf_counter()
    try:
        return call(*args, **kwargs)
    finally:
        seconds = time.perf_counter() - start
        for profile in list(_enabled):
            profile.add(unit, seconds)


_ScriptProfile = ScriptProfile  # PyTorch's name
