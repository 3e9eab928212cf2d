"""Measure tangrad against PyTorch and NumPy in one run, beside the figures it has to reach.

Prints one table; a figure that misses its goal is marked and makes `--strict` fail. Times depend
on the machine and on what else it does: compare ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import allocator
import import_time
from paired import Figure, as_data, from_data, table

HERE = Path(__file__).resolve().parent


def machine() -> str:
    """Describe where the figures were taken."""
    name = platform.processor() or platform.machine()
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        lines = listing.read_text("utf-8").splitlines()
        models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        name = models[0] if models else name
    return (
        f"{name}, {os.cpu_count()} cores, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}"
    )


def core_overhead(rounds: int, only: str) -> list[Figure]:
    """Run the workloads whose kernels do nothing, in a process of their own."""
    command = [sys.executable, str(HERE / "core_overhead.py"), "--json"]
    command += ["--rounds", str(rounds), "--only", only]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return from_data(json.loads(done.stdout))


def draw(figures: Sequence[Figure], path: str) -> None:
    """Draw the ratios to PyTorch with their quartiles and goals."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [f for f in figures if f.ratio is not None]
    picture, axes = pyplot.subplots(figsize=(8, 1 + 0.28 * len(shown)), layout="constrained")
    for place, figure in enumerate(shown):
        low, middle, high = figure.ratio
        axes.barh(place, middle, color="tab:red" if figure.misses() else "tab:blue", alpha=0.7)
        axes.plot([low, high], [place, place], color="black", linewidth=1)
        if figure.goal_ratio is not None:
            axes.plot([figure.goal_ratio] * 2, [place - 0.4, place + 0.4], color="tab:green")
    axes.set_yticks(range(len(shown)), [f.workload for f in shown])
    axes.invert_yaxis()
    axes.set_xlabel("time of tangrad / time of PyTorch (black: quartiles, green: goal)")
    axes.set_xscale("log")
    axes.axvline(1, color="gray", linewidth=0.5)
    picture.savefig(path, dpi=120)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="measure what has this in its name or group")
    parser.add_argument("--rounds", type=int, default=15, help="pairs per workload")
    parser.add_argument("--json", metavar="FILE", help="write the figures here")
    parser.add_argument("--picture", metavar="FILE", help="draw the ratios into this PNG")
    parser.add_argument("--strict", action="store_true", help="fail if a goal is missed")
    arguments = parser.parse_args()

    figures = core_overhead(arguments.rounds, arguments.only)
    figures += allocator.figures(arguments.only)
    figures += import_time.figures(arguments.rounds, arguments.only)
    if not figures:
        parser.error(f"nothing measured here has {arguments.only!r} in its name")
    print(machine())
    print(table(figures))
    missed = [figure for figure in figures if figure.misses()]
    for figure in missed:
        print(f"missed: {figure.workload}: {'; '.join(figure.misses())}")
    if arguments.json:
        data = {"machine": machine(), "figures": as_data(figures)}
        Path(arguments.json).write_text(json.dumps(data, indent=1) + "\n", "utf-8")
    if arguments.picture:
        draw(figures, arguments.picture)
    return 1 if missed and arguments.strict else 0


if __name__ == "__main__":
    sys.exit(main())
