"""Calls whose pointwise work is queued: kernels for queues that come again, the way back to eager.

A function that cannot be one graph runs as it is, with its pointwise work queued (`_queue.pyx`).
Queues are known to the process, and have their kernels made between calls, never in one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from tangrad.plugin.render import describe
from tangrad_jit import _queue
from tangrad_jit.codegen import Const, Group, GroupInput, Step, can_compile, compile_group
from tangrad_jit.compiling.profitability import ProfitabilityCheck

__all__ = ["QueuedCalls", "make_kernels"]

# Calls before the first that is timed: in them queues are met, and their kernels made.
_SETTLING = 4


class QueuedCalls:
    """Runs a function's calls with their work queued, as long as that pays.

    Args:
        function: the function.
        measure: compare times in the first calls.
        told: is given a line when queueing is dropped.

    Attributes:
        calls: how many ran queued. ops, queues, compiled: what they queued, how often a queue was
            settled, and how often that was by a kernel.
        dropped: why calls are queued no more, or "".
        measured: seconds of a call queued, and as it is; None: not known.
    """

    def __init__(self, function: Callable[..., Any], measure: bool, told: list[str]) -> None:
        self.function, self.told = function, told
        self.calls = self.ops = self.queues = self.compiled = 0
        self.dropped = ""
        self.measured: tuple[float, float] | None = None
        self._untimed = _SETTLING
        self._profit = ProfitabilityCheck() if measure else None

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a call."""
        if self._untimed:
            self._untimed -= 1
            return self._queued(args, kwargs)
        check = self._profit
        if check is None:
            return self._queued(args, kwargs)
        result = check.run(
            lambda: self._queued(args, kwargs), lambda: self.function(*args, **kwargs)
        )
        if not check.open:
            self._decide(check)
        return result

    def _queued(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        ops, queues, compiled = _queue.counts()
        try:
            return _queue.call(self.function, args, kwargs)
        finally:
            now_ops, now_queues, now_compiled = _queue.counts()
            self.calls += 1
            self.ops += now_ops - ops
            self.queues += now_queues - queues
            self.compiled += now_compiled - compiled
            if _queue.has_wanted():
                make_kernels()

    def _decide(self, check: ProfitabilityCheck) -> None:
        self.measured, self._profit = check.times, None
        if check.lost and self.measured is not None:
            queued, eager = self.measured
            self.dropped = (
                f"queued, a call took {1e6 * queued:.1f} us, as it is {1e6 * eager:.1f} us"
            )
            self.told.append(self.dropped)


_making = threading.Lock()


def make_kernels() -> None:
    """Make the kernels of queues that have run twice, unless another thread is at it."""
    if not _making.acquire(blocking=False):
        return
    try:
        for queue in _queue.take_wanted():
            _make_kernel(queue)
    finally:
        _making.release()


def _make_kernel(queue: Any) -> None:
    if len(queue.steps) < 2:
        queue.refused = "it is one op"
        return
    unknown = [op.title for op, *_ in queue.steps if describe(op) is None]
    if unknown:
        queue.refused = f"{unknown[0]} has no description"
        return
    group, ins, outs = group_of(queue)
    if not outs:
        queue.refused = "nobody holds what it makes"
    elif len(outs) > 1 and set(ins) & set(outs):
        queue.refused = "it writes several tensors, one of which it reads"
    else:
        queue.refused = can_compile(group) or ""
        if not queue.refused:
            code = compile_group(group)
            # A run must not make one: other threads would meet results that are not computed yet.
            code.kernel.complete_plans()
            queue.compiled(code, code.kernel.entry, code.kernel.context, ins, outs)


def group_of(queue: Any) -> tuple[Group, list[int], list[int]]:
    """Return what a queue computes for those who hold results, and the places of both."""
    ins: list[int] = []
    written: set[int] = set()
    for _, to, sources, _ in queue.steps:
        ins += [k for k in dict.fromkeys(sources) if k >= 0 and k not in written and k not in ins]
        written.add(to)
    current = {place: k for k, place in enumerate(ins)}
    steps = []
    for op, to, sources, numbers in queue.steps:
        described = describe(op)
        assert described is not None
        args = tuple(
            current[k] if k >= 0 else Const(number)
            for k, number in zip(sources, numbers, strict=True)
        )
        steps.append(Step(described, queue.dtype, args))
        current[to] = len(ins) + len(steps) - 1
    outs = [place for place in queue.living if place in written]
    used = _used(steps, len(ins), {current[place] for place in outs})
    return _without_dead(steps, ins, outs, current, used, queue.dtype, queue.lies)


def _used(steps: list[Step], given: int, wanted: set[int]) -> list[int]:
    """Return the numbers of the values that the wanted ones are made of, themselves included."""
    for k in reversed(range(len(steps))):
        if given + k in wanted:
            wanted |= {a for a in steps[k].args if isinstance(a, int)}
    return sorted(wanted)


def _without_dead(
    steps: list[Step],
    ins: list[int],
    outs: list[int],
    current: dict[int, int],
    used: list[int],
    dtype: str,
    lies: tuple[Any, ...],
) -> tuple[Group, list[int], list[int]]:
    number = {value: k for k, value in enumerate(used)}
    kept = tuple(
        Step(
            step.described, dtype, tuple(number[a] if isinstance(a, int) else a for a in step.args)
        )
        for k, step in enumerate(steps)
        if len(ins) + k in number
    )
    places = [place for k, place in enumerate(ins) if k in number]
    given = tuple(GroupInput(dtype, lies[place]) for place in places)
    return Group(given, kept, tuple(number[current[p]] for p in outs)), places, outs
