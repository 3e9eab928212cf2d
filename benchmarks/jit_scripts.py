"""Scripted functions beside PyTorch's and eager programs: `python benchmarks/jit_scripts.py`.

The three are called alternately, and the least time of a call counts. `first` is the time of the
first call beside the hundredth's. With `--threads`, a scripted function runs in four threads at
once, which tells how much of it runs side by side. One thread within ops.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import torch

import tangrad

PUZZLE = "800000000003600000070090200050007000000045700000100030001000068008500010090000400"


def programs(side: Any, name: str) -> Any:
    """Return the module of the programs for a framework."""
    return scripted_module(side, name, "jit_script_programs.py")


def scripted_module(side: Any, name: str, file: str) -> Any:
    """Return a file beside this one as a module of a name, for a framework."""
    sys.modules["scripted_side"] = side
    path = Path(__file__).with_name(file)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made
    spec.loader.exec_module(made)
    return made


def cases() -> dict[str, tuple[Any, ...]]:
    """Return the arguments of each program."""
    torch.manual_seed(0)
    boxes = torch.rand(1000, 4) * 90
    boxes[:, 2:] = boxes[:, :2] + torch.rand(1000, 2) * 20 + 1
    cell = [torch.randn(100, 8, 32), torch.zeros(8, 32), torch.zeros(8, 32)]
    cell += [torch.randn(32, 128), torch.randn(32, 128), torch.randn(128)]
    return {
        "scalar_loop": (1_000_000,),
        "nms": (boxes, torch.rand(1000), 0.5),
        "nms_tensor": (boxes, torch.rand(1000), 0.5),
        "lstm": tuple(cell),
        "beam": (torch.randn(30, 100), 5),
        "sudoku": (PUZZLE,),
    }


#: What tells the time of a call: of this process, where others use the machine.
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def seconds(function: Any, args: tuple[Any, ...], clock: Any = time.perf_counter) -> float:
    """Return the time of a call."""
    begin: float = clock()
    function(*args)
    return float(clock() - begin)


def least_times(
    calls: list[tuple[Any, tuple[Any, ...]]], limit: float, clock: Any = time.perf_counter
) -> list[float]:
    """Return the least time of each of some calls, made in turn for a while."""
    least = [float("inf")] * len(calls)
    end = time.perf_counter() + limit
    while time.perf_counter() < end:
        for k, call in enumerate(calls):
            least[k] = min(least[k], seconds(*call, clock))
    return least


def in_threads(function: Any, args: tuple[Any, ...], count: int) -> float:
    """Return the time in which some threads make a call each."""
    threads = [threading.Thread(target=function, args=args) for _ in range(count)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - begin


def main() -> None:
    """Print a line for each program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="programs whose names begin so")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each program")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--threads", action="store_true", help="measure four threads, too")
    given = parser.parse_args()
    clock = CLOCKS[given.clock]
    warnings.simplefilter("ignore")  # PyTorch's, of its scripts
    torch.set_num_threads(1)
    tangrad.set_num_threads(1)
    ours, theirs = programs(tangrad, "scripts_ours"), programs(torch, "scripts_theirs")
    for name, args in cases().items():
        if not name.startswith(given.only):
            continue
        here = tuple(tangrad.tensor(a.numpy()) if torch.is_tensor(a) else a for a in args)
        eager = getattr(ours, name)
        scripted = tangrad.jit.script(eager)
        other = torch.jit.script(getattr(theirs, name))
        seconds(eager, here)  # so that the first call is the script's alone
        first = seconds(scripted, here, clock)
        for _ in range(3):
            other(*args)  # PyTorch's executor looks at the first calls
        times = least_times([(eager, here), (scripted, here), (other, args)], given.seconds, clock)
        hundredth = min(seconds(scripted, here, clock) for _ in range(5))
        print(
            f"{name:12} eager {times[0] * 1e3:8.2f} ms  script {times[1] * 1e3:8.2f} ms  "
            f"PyTorch's {times[2] * 1e3:8.2f} ms  ratios {times[1] / times[0]:.3f} "
            f"{times[1] / times[2]:.3f}  first {first * 1e3:.2f} ms, then {hundredth * 1e3:.2f} ms"
        )
        if given.threads:
            one = min(in_threads(scripted, here, 1) for _ in range(5))
            four = min(in_threads(scripted, here, 4) for _ in range(5))
            print(f"{'':12} four threads: {4 * one / four:.2f} times one's throughput")


if __name__ == "__main__":
    main()
