"""The peak memory of training, each framework in a process of its own.

`python benchmarks/memory.py tangrad "ResNet-18 32×32 b16"` prints MB.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path

from measuring.paired import OURS, Figure
from measuring.supervise import environment
from workloads import registry

STEPS = 5
SECONDS = 10.0
TIMEOUT = 60
GOALS = {  # MB, and the share of PyTorch's
    "MLP on digits b64, AdamW": (120.0, None),
    "ResNet-18 32×32 b16": (None, 1.0),
}


def peak() -> float:
    """Return the most MB that this process has held."""
    status = Path("/proc/self/status")
    if status.exists():
        # ru_maxrss would count what the parent held before exec.
        return int(status.read_text("utf-8").partition("VmHWM:")[2].split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
        2**20 if sys.platform == "darwin" else 1024
    )


def train(framework: str, name: str) -> None:
    """Take some steps, fewer if they are slow."""
    warnings.simplefilter("ignore")
    step = registry.workloads()["training", name].prepare(__import__(framework))["step"]
    start = time.perf_counter()
    for _ in range(STEPS):
        step()
        if time.perf_counter() - start > SECONDS:
            break


def figures(threads: int, only: str = "") -> list[Figure]:
    """Measure the rows whose name or group contains `only`."""
    return [
        measure(f"{name}: peak memory", name, threads)
        for name in GOALS
        if only.lower() in f"memory {name}: peak memory".lower()
    ]


def measure(title: str, name: str, threads: int) -> Figure:
    goal, goal_ratio = GOALS[name]
    figure = Figure(title, "memory", "MB", {}, goal=goal, goal_ratio=goal_ratio)
    for framework in ("torch", OURS):
        command = [sys.executable, __file__, framework, name]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT,
                                  env=environment(threads), check=True)  # fmt: skip
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            if framework == OURS:
                last = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1:]
                figure.absent = "".join(last)[:160]
            continue
        figure.values[framework] = float(done.stdout)
    if len(figure.values) == 2:
        figure.ratio = (figure.values[OURS] / figure.values["torch"],) * 3
    return figure


if __name__ == "__main__":
    train(*sys.argv[1:])
    print(peak())
