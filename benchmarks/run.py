"""Measure tangrad against PyTorch and others in one run, beside the figures it has to reach.

Prints one table; a figure that misses its goal is marked and makes `--strict` fail. Times depend
on the machine and on what else it does: compare ratios. `limit` is what the machine allows, from
what is measured first; `off` is our time divided by it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import allocator
import import_time
import memory
from measuring.limits import Limits, machine, vendor
from measuring.paired import CLOCKS, QUICK, Figure, Pace, as_data, from_data
from measuring.report import draw, head, line, summary
from measuring.supervise import measured
from workloads import registry

HERE = Path(__file__).resolve().parent
MEAN_GOAL = {"AMD": 0.4, "Intel": 0.5}


def core_overhead(rounds: int, only: str) -> list[Figure]:
    """Run the workloads whose kernels do nothing, in a process of their own."""
    command = [sys.executable, str(HERE / "core_overhead.py"), "--json"]
    command += ["--rounds", str(rounds), "--only", only]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        absent = f"core_overhead.py failed with exit status {done.returncode}"
        return [Figure("ops without kernels", "dispatch", "us", {}, absent=absent)]
    return from_data(json.loads(done.stdout))


def core(rounds: int, only: str) -> Iterator[Figure]:
    """Yield what the core costs: dispatch without kernels, allocation, import."""
    yield from core_overhead(rounds, only)
    yield from allocator.figures(only)
    yield from import_time.figures(rounds, only)


def busy() -> str:
    """Return a warning if other programs take the processor, empty if not."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load < cores / 2:
        return ""
    return f"a load of {load:.1f} on {cores} cores: take `--threads 1 --clock cpu`, or wait\n"


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="measure what has this in its name or group")
    parser.add_argument("--rounds", type=int, help="timings per framework and workload, at most")
    parser.add_argument("--quick", action="store_true", help="few and short timings")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1),
                        help="of every framework (default: %(default)s)")  # fmt: skip
    parser.add_argument("--clock", choices=sorted(CLOCKS), default="wall",
                        help="cpu: the processor's time, for a busy machine")  # fmt: skip
    parser.add_argument("--json", metavar="FILE", help="write the figures here")
    parser.add_argument("--picture", metavar="FILE", help="draw the ratios into this PNG")
    parser.add_argument("--strict", action="store_true", help="fail if a goal is missed")
    arguments = parser.parse_args()
    if arguments.threads < 1:
        parser.error("--threads takes a number from 1")
    if arguments.clock == "cpu" and arguments.threads > 1:
        parser.error("--clock cpu adds up what threads do at once: use it with --threads 1")
    return arguments


def asked(arguments: argparse.Namespace) -> str:
    """Return the command, without where its figures go."""
    options = {key: getattr(arguments, key) for key in ("only", "rounds", "threads", "clock")}
    parts = [f"--{key} {value}" for key, value in options.items() if value]
    quick = ["--quick"] if arguments.quick else []
    return " ".join(["python benchmarks/run.py", *quick, *parts])


def main() -> int:
    arguments = parsed()
    start = time.perf_counter()
    pace = QUICK if arguments.quick else Pace()
    pace = replace(pace, rounds=arguments.rounds or pace.rounds, clock=arguments.clock)
    title = f"{machine()}, {arguments.threads} threads"
    print(title)
    if arguments.clock == "wall":
        print(busy(), end="", flush=True)
    workloads, others, bound = [], [], None
    for row in measured(registry.chosen(arguments.only), arguments.threads, pace):
        if isinstance(row, Limits):
            bound = row
            print(f"{bound}\n{head()}", flush=True)
        else:
            workloads.append(row)
            print(line(row), flush=True)
    if bound is None:
        print(head())
    for figure in memory.figures(arguments.threads, arguments.only):
        others.append(figure)
        print(line(figure), flush=True)
    for figure in core(pace.rounds, arguments.only):
        others.append(figure)
        print(line(figure), flush=True)
    figures = workloads + others
    if not figures:
        print(f"nothing measured here has {arguments.only!r} in its name", file=sys.stderr)
        return 2
    if workloads:
        print(summary(workloads, MEAN_GOAL[vendor()]))
    missed = [figure for figure in figures if figure.misses()]
    if arguments.strict:
        for figure in missed:
            print(f"missed: {figure.workload}: {'; '.join(figure.misses())}")
    print(f"{time.perf_counter() - start:.0f} s")
    if arguments.json:
        limits = bound and {"bandwidth": bound.bandwidth, "flops": bound.flops}
        told = {"machine": title, "date": time.strftime("%Y-%m-%d"), "command": asked(arguments)}
        data = {**told, "limits": limits, "figures": as_data(figures)}
        Path(arguments.json).write_text(json.dumps(data, indent=1) + "\n", "utf-8")
    if arguments.picture:
        draw(figures, arguments.picture, title)
    return 1 if missed and arguments.strict else 0


if __name__ == "__main__":
    sys.exit(main())
