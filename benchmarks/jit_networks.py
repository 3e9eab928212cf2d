"""Compiled networks beside eager ones: `python benchmarks/jit_networks.py [--busy] [--threads N]`.

Every training step and every network of `workloads/` runs as it is and as `compile` gives it, in
turn, after the calls in which a compiled function measures and decides. The ratio is the compiled
form's time to the eager one's, median by round, and `verdict` is what `compile` tells of the
function. `--busy` adds a process that keeps a processor busy, from the first call on.

    python benchmarks/jit_networks.py [--only GPT] [--calls 20] [--rounds N] [--clock cpu]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from jit_steps import options_of
from measure import frameworks
from measuring.paired import Pace, Program, measure_programs
from workloads import inference, training
from workloads.workload import Prepare

MOST = 1.05  # that a compiled form may take of the eager one's time


def networks() -> dict[str, tuple[Prepare, str]]:
    """Return what prepares each network, and the name of the function to call."""
    found = {name: (prepare, "step") for name, prepare in training.PREPARED.items()}
    for workload in inference.WORKLOADS:
        found.setdefault(workload.name, (workload.prepare, workload.statement.partition("(")[0]))
    return found


@contextmanager
def neighbour(busy: bool) -> Iterator[None]:
    """Keep a processor busy meanwhile, if that is asked."""
    if not busy:
        yield
        return
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def verdict_of(function: Callable[..., Any]) -> str:
    """Return why a compiled function runs as it is, or ""."""
    compiled = getattr(function, "compiled", None)
    return "" if compiled is None or not compiled.off else str(compiled.off)


def main() -> None:
    """Print a line for each network, and how many are above the limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="networks that have this in their names")
    parser.add_argument("--calls", type=int, default=20, help="before anything is measured")
    parser.add_argument("--busy", action="store_true", help="beside a busy process")
    options = options_of(parser, rounds=15)
    ours = frameworks(options.threads)["tangrad"]
    pace = Pace(rounds=options.rounds, timing=0.05, row=20.0, clock=options.clock)
    above = 0
    print(f"{'':33}{'eager us':>10}{'compiled':>10}{'ratio':>8}  verdict")
    with neighbour(options.busy):
        for name, (prepare, called) in networks().items():
            if options.only.lower() not in name.lower():
                continue
            own, other = (prepare(ours)[called] for _ in range(2))
            forms = {"eager": own, "compiled": ours.compile(other)}
            for function in forms.values():
                for _ in range(options.calls):
                    function()
            programs = {form: Program("f()", {"f": f}) for form, f in forms.items()}
            samples = measure_programs(programs, pace)
            eager, compiled = (samples.by_framework[form] for form in ("eager", "compiled"))
            ratio = statistics.median(c / e for c, e in zip(compiled, eager, strict=True))
            above += ratio > MOST
            medians = samples.medians()
            cells = f"{medians['eager']:10.1f}{medians['compiled']:10.1f}{ratio:8.3f}"
            print(f"{name:33}{cells}  {verdict_of(forms['compiled'])}".rstrip(), flush=True)
    print(f"above {MOST}: {above}")


if __name__ == "__main__":
    main()
