"""Measure rows of the table in a process that may die: `supervise.py` starts it and reads on.

The job comes as JSON on standard input; every message is a line of JSON on standard output.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import numpy
from measuring import limits
from measuring.paired import CLOCKS, OURS, Figure, Pace, Program, alternate, collected, timer
from workloads import registry
from workloads.workload import Workload

COMPARED = 1 << 16
PREPARATION = 12.0


class TooSlow(BaseException):
    """Raised by the alarm; no framework catches it by accident."""


@contextmanager
def alarm(seconds: float, doing: str) -> Iterator[None]:
    """Interrupt what takes longer, as soon as it is back in Python."""

    def ring(*_: Any) -> None:
        raise TooSlow(f"{doing} takes longer than {seconds:g} s")

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


class Started:
    """A statement in one framework: prepared, run once, its result kept for comparison."""

    def __init__(self, fw: Any, workload: Workload, pace: Pace, impatient: bool) -> None:
        clock = CLOCKS[pace.clock]
        with alarm(PREPARATION if impatient else 600, "preparation"):
            self.names = {"fw": fw, **workload.prepare(fw)}
        self.arrays = {key: value for key, value in self.names.items() if is_tensor(value)}
        self.arrays = {key: as_array(value) for key, value in self.arrays.items()}
        with alarm(pace.patience if impatient else 600, "one run"):
            start = clock()
            result = run_once(workload.statement, self.names)
            self.first = clock() - start
        self.result = as_array(result) if workload.checked else None


def run_once(statement: str, names: dict[str, Any]) -> Any:
    """Run a statement; return its value if it is an expression."""
    try:
        code = compile(statement, "<workload>", "eval")
    except SyntaxError:
        exec(compile(statement, "<workload>", "exec"), dict(names))
        return None
    return eval(code, dict(names))


def is_tensor(value: Any) -> bool:
    return hasattr(value, "detach") and hasattr(value, "numpy")


def as_array(result: Any) -> numpy.ndarray | None:
    """Return a tensor, or the first of a tuple, as an array; None for anything else."""
    while isinstance(result, tuple) and result:
        result = result[0]
    if not is_tensor(result):
        return None
    tensor = result.detach()
    wide = tensor.float() if str(tensor.dtype).endswith("bfloat16") else tensor
    return wide.contiguous().numpy()


def difference(ours: numpy.ndarray | None, theirs: numpy.ndarray | None) -> float:
    """Return the largest difference between two results, relative to the largest value."""
    if ours is None or theirs is None:
        return 0.0
    if ours.shape != theirs.shape:
        return float("inf")
    step = max(1, ours.size // COMPARED)
    mine, other = (x.reshape(-1)[::step].astype("float64") for x in (ours, theirs))
    scale = float(numpy.abs(other).max(initial=0)) or 1.0
    apart = float(numpy.abs(mine - other).max(initial=0)) / scale
    return apart if apart == apart else float("inf")


def why(error: BaseException) -> str:
    """Tell an error in one line."""
    return " ".join(f"{error}".split())[:160] or type(error).__name__


def by_jax(workload: Workload, arrays: dict[str, numpy.ndarray]) -> Program:
    """Return NumPy's statement, compiled by XLA."""
    import jax

    code = compile(workload.numpy, "<workload>", "eval")
    compiled = jax.jit(lambda named: eval(code, {"fw": jax.numpy, **named}))
    named = {key: jax.numpy.asarray(value) for key, value in arrays.items()}
    statement = "ready(compiled(named))"
    names = {"compiled": compiled, "named": named, "ready": jax.block_until_ready}
    return Program(statement, names, workload.repeats)


def peers(workload: Workload, theirs: Started) -> Iterator[tuple[str, Callable[[], Program]]]:
    """Yield what makes the other opponents' programs."""
    if workload.numpy:
        # A copy, for statements that write in place.
        names = {**theirs.names, **{k: v.copy() for k, v in theirs.arrays.items()}, "fw": numpy}
        yield "numpy", lambda: Program(workload.numpy, names, workload.repeats)
        if workload.xla:
            yield "jax", lambda: by_jax(workload, theirs.arrays)
    for name, make in workload.peers.items():
        yield name, lambda make=make: Program("run()", {"run": make()}, workload.repeats)


def measure(workload: Workload, group: str, fws: dict[str, Any], pace: Pace) -> Figure:
    """Measure a workload in every framework that has it."""
    goal = workload.goal(limits.vendor())
    figure = Figure(workload.name, group, "us", {}, goal_ratio=goal)
    started = {}
    for name, fw in fws.items():
        try:
            started[name] = Started(fw, workload, pace, name == OURS)
        except (Exception, TooSlow) as error:
            if name != OURS:
                raise
            figure.absent = why(error)
    if OURS in started and "torch" in started:
        apart = difference(started[OURS].result, started["torch"].result)
        if apart > workload.tolerance:
            figure.absent = f"wrong result: {apart:.2g} off torch's, relative to its largest value"
            del started[OURS]
    with collected():
        timers = {}
        for name, one in started.items():
            program = Program(workload.statement, one.names, workload.repeats)
            timers[name] = timer(program, pace, one.first)
        if started and pace.peers:
            for name, make in peers(workload, started.get("torch") or started[OURS]):
                try:
                    timers[name] = timer(make(), pace)
                except ImportError:
                    continue
        samples = alternate(timers, pace.rounds, pace.row)
    figure.values, figure.ratio = samples.medians(), samples.ratio()
    return figure


def frameworks(threads: int) -> dict[str, Any]:
    """Import the frameworks that are there, with so many threads; PyTorch first."""
    found = {}
    for name in ("torch", OURS):
        try:
            fw = __import__(name)
        except ImportError:
            if name == OURS:
                raise
            continue
        if hasattr(fw, "set_num_threads"):
            fw.set_num_threads(threads)
        (fw.ones(2) + 1).sum()  # loads what a framework loads with its first op
        found[name] = fw
    return found


def main() -> None:
    # Libraries may print: what they print goes to the other stream.
    messages = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    job = json.load(sys.stdin)
    fws = frameworks(job["threads"])
    if job["limits"]:
        bound = limits.Limits.from_data(job["limits"])
    else:
        bound = limits.measure(job["threads"])
        print(json.dumps({"limits": asdict(bound)}), file=messages)
    workloads = registry.workloads()
    for group, name in job["rows"]:
        workload = workloads[group, name]
        figure = measure(workload, group, fws, Pace(**job["pace"]))
        figure.limit = bound.microseconds(workload.cost)
        print(json.dumps({"figure": asdict(figure)}), file=messages)


if __name__ == "__main__":
    main()
