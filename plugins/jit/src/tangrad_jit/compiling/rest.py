"""When a function whose graph was no faster is compiled again: sizes or loads have changed."""

from __future__ import annotations

from typing import Any

from tangrad_jit._guards import Pattern
from tangrad_jit.compiling.sizes import size_changes

__all__ = ["Rest"]

_LOOKS = 32  # calls from one look at the sizes to the next: a look takes about a microsecond
_MOST = 8  # sizes at which a decision is made anew at once
_SHARE = 0.01  # of the time of calls that deciding again may take


class Rest:
    """Tells when calls that run as they are have paid for another decision.

    Args:
        executable: what was no faster.
        before: the rest before this one, which was half as long; or None.
    """

    def __init__(self, executable: Any, before: Rest | None) -> None:
        graph, eager = executable.measured
        self.length: float = executable.seconds + max(graph - eager, 0.0)
        self.eager = eager
        self.patience: float = 1.0 if before is None else 2 * before.patience
        earlier: list[Pattern] = [] if before is None else before.patterns
        self.patterns: list[Pattern] = [executable.pattern, *earlier]
        self.calls = 0

    def is_over(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Return whether to decide again, at a call."""
        self.calls += 1
        if self.calls % _LOOKS:
            return False
        if self.calls * self.eager * _SHARE >= self.patience * self.length:
            return True
        now = Pattern(args, kwargs)
        is_new = len(self.patterns) < _MOST and all(size_changes(p, now) for p in self.patterns)
        if is_new:
            self.patterns.append(now)
        return is_new
