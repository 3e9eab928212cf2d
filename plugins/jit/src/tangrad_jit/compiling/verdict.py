"""Whether compiling has helped a function, what stands in the way, and what to change."""

from __future__ import annotations

from typing import Any

__all__ = ["NO_FASTER", "verdict_of"]

NO_FASTER = "compiled, no faster"

# What a refusal says, and what is to be changed in the program; the first that fits is told.
_CHANGES = (
    (
        "looks at the value of a tensor",
        "take where(condition, a, b) in place of a branch, or return the tensor and read it "
        "outside of the function",
    ),
    (
        "looked at the values",
        "keep to tensors, by where, masks and indices that are tensors, or return them and "
        "convert outside of the function",
    ),
    ("print()", "print outside of the function, or return what is to be shown"),
    (
        "may answer otherwise in the next call",
        "draw by tangrad's own functions, or give what changes as an argument",
    ),
    ("depends on values", "take where or a mask, which keep the size"),
    ("compiler.disable", "call that part outside of the function, or let it be compiled"),
    (
        "changed what it reads",
        "return what changes, or keep it in a tensor that the function writes",
    ),
    (
        "still none fits",
        "give what varies as tensors, compile with dynamic=True, or raise recompile_limit",
    ),
    (
        NO_FASTER,
        "nothing: the calls are what the ops take; more pointwise work in a call, or many small "
        "ops, is what a graph makes faster",
    ),
)


def verdict_of(compiled: Any) -> list[str]:
    """Return the lines that `explain` opens with.

    Args:
        compiled: a `Compiled`.
    """
    if compiled.off:
        reason = compiled.off.removeprefix("runs as it is: ")
        change = next((told for part, told in _CHANGES if part in reason), "")
        lines = ["verdict: the function runs as it is, not as a graph", f"  in the way: {reason}"]
        lines += [f"  to change: {change}"] if change else []
        queued = compiled.queued
        measured = queued.measured if queued is not None and not queued.dropped else None
        return lines + ([f"  its pointwise work is queued: {_told(*measured)}"] if measured else [])
    timed = [e.measured for e in compiled.executables if e.measured]
    if timed:
        return [f"verdict: a graph, {_told(*timed[0])}"]
    trials = [e.trial.profit for e in compiled.executables if e.trial and e.trial.profit]
    so_far = [check.times_so_far for check in trials if check.times_so_far]
    if so_far:
        return [f"verdict: a graph that is still timed, so far {_told(*so_far[0])}"]
    if compiled.executables:
        return ["verdict: a graph, not timed: what compile() returns is timed in its first calls"]
    return ["verdict: no graph yet: " + (compiled.events[-1] if compiled.events else "not called")]


def _told(ours: float, eager: float) -> str:
    times = f"{1e6 * ours:.1f} us a call, the function itself {1e6 * eager:.1f} us"
    return f"{eager / ours:.2f} times as fast ({times})"
