"""What profiling costs, here and in PyTorch: processor time of an MLP's step, in turn.

    python benchmarks/profiling.py --rounds 15

Goals: 1.10 plain, 1.25 with shapes and memory, 1.5 with stacks; leaving within 50 ms and at most
3 MB for 1,000 steps; own times add up to the time that passed within 2 %.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import tangrad

STEPS = 60
FORMS: dict[str, dict[str, bool]] = {
    "plain": {},
    "shapes and memory": {"record_shapes": True, "profile_memory": True},
    "stacks": {"with_stack": True},
}


def training_step(framework: Any) -> Callable[[], None]:
    """Return a step of training of a small network."""
    nn = framework.nn
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = framework.optim.SGD(model.parameters(), lr=0.01)
    x, y = framework.randn(64, 64), framework.randint(0, 10, (64,))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


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
    began = time.perf_counter()
    with tangrad.profiler.profile() as prof, tangrad.profiler.record_function("all"):
        for _ in range(200):
            steps["tangrad"]()
        passed = time.perf_counter() - began
    print(f"own times / time: {prof.trace.own.sum() / 1e9 / passed:.4f}")


if __name__ == "__main__":
    main()
