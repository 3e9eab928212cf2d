"""What profiling costs, here and in PyTorch: processor time of an MLP's step, in turn.

    python benchmarks/profiling.py --rounds 15

Goals: 1.10 plain, 1.25 with shapes and memory, 1.5 with stacks; leaving within 50 ms and at most
3 MB for 1,000 steps; own times, and what is outside of all events, add up to the time that passed
within 2 %. Then: looking for NaN and infinity in every op 1.5, checked_step 1.1, the counters that
are always on 1 % of the shortest op, and a profiler that is installed and not used not measurable.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

import tangrad
from tangrad.optim.finite import checked_step

STEPS = 60
FORMS: dict[str, dict[str, bool]] = {
    "plain": {},
    "shapes and memory": {"record_shapes": True, "profile_memory": True},
    "stacks": {"with_stack": True},
}


def training_step(framework: Any, tells: bool = False) -> Any:
    """Return a step of training of a small network; with `tells` one that returns its loss.

    Returns:
        The step, with `tells` also its state.
    """
    nn = framework.nn
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = framework.optim.SGD(model.parameters(), lr=0.01)
    x, y = framework.randn(64, 64), framework.randint(0, 10, (64,))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    def loss() -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return (loss, [model, optimizer]) if tells else step


def seconds(step: Callable[[], None]) -> float:
    """Return the processor time of a step, on average."""
    began = time.process_time()
    for _ in range(STEPS):
        step()
    return (time.process_time() - began) / STEPS


def profiled(framework: Any, step: Callable[[], None], **options: bool) -> float:
    """Return the same under a profiler, without entering and leaving it."""
    activities = [framework.profiler.ProfilerActivity.CPU]
    with framework.profiler.profile(activities=activities, **options):
        for _ in range(5):
            step()
        return seconds(step)


def thousand_steps(framework: Any, step: Callable[[], None]) -> tuple[float, int]:
    """Return the processor time of leaving, and the bytes of the smallest file there is for it."""
    prof = framework.profiler.profile(activities=[framework.profiler.ProfilerActivity.CPU])
    prof.start()
    for _ in range(1000):
        step()
    began = time.process_time()
    prof.stop()
    left = time.process_time() - began
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "trace.json")
        (prof.save if framework is tangrad else prof.export_chrome_trace)(path)
        return left, Path(path).stat().st_size


def faults(rounds: int) -> None:
    """Print what looking for NaN and infinity adds to a step in which there is none."""
    plain, loss = training_step(tangrad), training_step(tangrad, tells=True)
    checked = checked_step(loss[0], state=loss[1])
    forms: dict[str, tuple[Any, Any, Any]] = {
        "detect_anomaly": (plain, plain, tangrad.autograd.detect_anomaly()),
        "check_finite": (plain, plain, tangrad.autograd.detect_anomaly(check_finite=True)),
        "checked_step": (loss[0], checked, nullcontext()),
    }
    for name, (off, on, context) in forms.items():
        ratios = []
        for _ in range(rounds):
            before = seconds(off)
            with context:
                on()
                ratios.append(seconds(on) / before)
        print(f"tangrad  {name:18} x {_quartiles(ratios)}")


def counting() -> None:
    """Print what counting the shortest op takes: an addition in memory, timed by itself."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "count.c")
        source.write_text(
            "volatile long count; void run(long n) { while (n--) count += 1; }\n", "utf-8"
        )
        library = str(Path(folder, "count.so"))
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, str(source)], check=True)
        run, number = ctypes.CDLL(library).run, 10_000_000
        each = min(timeit.repeat(lambda: run(number), number=1, repeat=5)) / number
    x = tangrad.ones(1)
    op = min(timeit.repeat(lambda: x + x, number=100_000, repeat=5)) / 100_000
    reading = min(timeit.repeat(tangrad.profiler.counters, number=1000, repeat=5)) / 1000
    print(
        f"counters: {1e9 * each:.1f} ns of {1e9 * op:.0f} ns for the shortest op, "
        f"{100 * each / op:.1f} %; reading them takes {1e6 * reading:.1f} us"
    )


UNUSED = """
import sys
sys.path.insert(0, sys.argv[1])
import profiling
profiling.tangrad.set_num_threads(1)
step = profiling.training_step(profiling.tangrad)
profiling.seconds(step)
print(min(profiling.seconds(step) for _ in range(10)))
"""


def unused(rounds: int) -> None:
    """Print how long a step takes where the profiler is installed, over where it is not."""
    ratios = []
    for _ in range(rounds):
        found = [
            float(
                subprocess.run(
                    [sys.executable, "-c", UNUSED, str(Path(__file__).parent)],
                    env={**os.environ, "TANGRAD_DISABLE_PLUGINS": disabled},
                    capture_output=True,
                    text=True,
                    check=True,
                ).stdout
            )
            for disabled in ("", "tangrad-profiler")
        ]
        ratios.append(found[0] / found[1])
    print(f"installed and not used: x {_quartiles(ratios)}")


def _quartiles(ratios: list[float]) -> str:
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    warnings.simplefilter("ignore")
    names = {"tangrad": tangrad, "torch": torch}
    steps = {name: training_step(framework) for name, framework in names.items()}
    for name, framework in names.items():
        framework.set_num_threads(1)
        seconds(steps[name])
    times: dict[tuple[str, str], list[float]] = {}
    for _ in range(rounds):
        for name, framework in names.items():
            times.setdefault((name, "off"), []).append(seconds(steps[name]))
            for form, options in FORMS.items():
                figure = profiled(framework, steps[name], **options)
                times.setdefault((name, form), []).append(figure)
    for name, framework in names.items():
        off = times[name, "off"]
        for form in FORMS:
            pairs = [a / b for a, b in zip(times[name, form], off, strict=True)]
            print(f"{name:8} {form:18} {1e6 * min(off):6.0f} us x {statistics.median(pairs):.2f}")
        left, nbytes = thousand_steps(framework, steps[name])
        print(f"{name:8} 1,000 steps: leaving {1e3 * left:.0f} ms, {nbytes / 1e6:.2f} MB")
    with tangrad.profiler.profile() as prof:
        began = time.perf_counter()
        for _ in range(200):
            steps["tangrad"]()
        passed = time.perf_counter() - began
    own, outside = prof.trace.own.sum() / 1e9, prof.trace.outside / 1e9
    print(f"own times and what is outside / time: {(own + outside) / passed:.4f}")
    faults(rounds)
    counting()
    unused(max(3, rounds // 3))


if __name__ == "__main__":
    main()
