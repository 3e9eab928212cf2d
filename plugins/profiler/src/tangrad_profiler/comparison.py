"""Compare two recordings: what became slower, and how sure that is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, log, sqrt
from typing import Any

import numpy as np

from tangrad_profiler.trace import Trace
from tangrad_profiler.views import own_frame


@dataclass(frozen=True)
class Difference:
    """One op, module or line in both recordings; times are own times, in microseconds.

    Attributes:
        name: what is compared. before, after: mean time of a call, or the time of all calls.
        calls_before, calls_after: how many there were.
        ratio: after / before. low, high: the interval that holds it with 95 % confidence.
    """

    name: str
    before: float
    after: float
    calls_before: int
    calls_after: int
    ratio: float
    low: float
    high: float

    @property
    def slower(self) -> bool:
        """Whether it became slower for sure."""
        return self.low > 1


def _op(trace: Trace, i: int) -> str:
    return trace.name(i)


def _module(trace: Trace, i: int) -> str:
    return trace.module_path(i)


def _line(trace: Trace, i: int) -> str:
    """Return the line of the program, as the page does: not that within this framework."""
    frame = own_frame(trace.frames(i))
    return f"{frame[0]}:{frame[2]}" if frame else ""


KEYS: dict[str, Callable[[Trace, int], str]] = {"op": _op, "module": _module, "line": _line}


def _samples(trace: Trace, key: Callable[[Trace, int], str]) -> dict[str, Any]:
    found: dict[str, list[float]] = {}
    for i in range(len(trace)):
        name = key(trace, i)
        if name:
            found.setdefault(name, []).append(trace.own[i] / 1e3)
    return {name: np.array(times) for name, times in found.items()}


def compare(before: Trace, after: Trace, by: str = "op", total: bool = False) -> list[Difference]:
    """Return what is in both recordings, the largest change of total time first.

    The interval is that of the ratio of means of logarithms, by Welch's standard error.

    Args:
        by: "op", "module" or "line".
        total: compare the time of all calls, for runs that do the same by other calls.

    Raises:
        ValueError: `by` is none of these.
    """
    if by not in KEYS:
        raise ValueError(f"compare: by must be one of {', '.join(KEYS)}, not {by!r}")
    old, new = _samples(before, KEYS[by]), _samples(after, KEYS[by])
    rows = [_difference(name, old[name], new[name], total) for name in old if name in new]
    counts = (1, 1) if total else None

    def change(r: Difference) -> float:
        after, before = counts or (r.calls_after, r.calls_before)
        return abs(r.after * after - r.before * before)

    return sorted(rows, key=change, reverse=True)


def _difference(name: str, old: Any, new: Any, total: bool) -> Difference:
    # Times are skewed: their logarithms are nearly normal.
    a, b = np.log(np.maximum(old, 1e-3)), np.log(np.maximum(new, 1e-3))
    middle = float(b.mean() - a.mean()) + (log(len(b) / len(a)) if total else 0.0)
    if len(a) > 1 and len(b) > 1:
        spread = 1.96 * sqrt(a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b))
    else:
        spread = inf
    low, high = np.exp(middle - spread), np.exp(min(middle + spread, 700.0))
    return Difference(
        name,
        float(old.sum() if total else old.mean()),
        float(new.sum() if total else new.mean()),
        len(old),
        len(new),
        float(np.exp(middle)),
        float(low),
        float(high),
    )


def told(rows: list[Difference], limit: int = 30) -> str:
    """Return differences as a table."""
    lines = [f"{'ratio':>7} {'95 % between':>17} {'before':>12} {'after':>12}  {'calls':>13}  name"]
    for r in rows[:limit]:
        between = f"{r.low:.2f} and {r.high:.2f}" if r.high < 1e6 else "?"
        lines.append(
            f"{r.ratio:>7.2f} {between:>17} {r.before:>10.2f}us {r.after:>10.2f}us  "
            f"{r.calls_before:>6}/{r.calls_after:<6}  {r.name}"
        )
    return "\n".join(lines)
