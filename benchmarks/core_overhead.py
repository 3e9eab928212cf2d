"""What the core costs per op, kernels left out: `python benchmarks/core_overhead.py`.

The kernels of the `cpu` device are replaced by ones in C that do nothing (core/tests/abi), hence
the process of its own. PyTorch and NumPy compute their four numbers, which takes a few
nanoseconds.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import sysconfig
import tempfile
import time
import timeit
from collections.abc import Callable
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import numpy
from measuring.paired import OURS, Figure, Pace, Program, as_data, measure_programs
from measuring.report import table

import tangrad
from tangrad.plugin import include_directory, op, pop_observer, push_observer

BACKEND = Path(__file__).resolve().parents[1] / "core/tests/abi/noop_backend/noop_backend.c"
SILENT_OPS = ("add", "mul", "relu", "sum")
CHAIN = 1000
OBSERVED = 20_000  # calls per timing
FOUR = [1.0, 2.0, 3.0, 4.0]


@dataclass(frozen=True)
class Workload:
    """A statement that PyTorch and we run alike.

    Attributes:
        name, group: what it is called. statement: over `fw` and what `prepare(fw)` returns.
        numpy: the statement for NumPy, over `fw`, `a`, `b` and `m`, or empty.
        goal: microseconds; goal_ratio: of PyTorch's time. repeats: see `Program`.
    """

    name: str
    statement: str
    prepare: Callable[[Any], dict[str, Any]]
    numpy: str = ""
    goal: float | None = None
    goal_ratio: float | None = None
    repeats: int = 1
    group: str = "dispatch"


def tensors(fw: Any) -> dict[str, Any]:
    return {
        "a": fw.tensor(FOUR),
        "b": fw.tensor(FOUR),
        "m": fw.tensor([[1.0, 2.0], [3.0, 4.0]]),
        "w": fw.tensor(FOUR, requires_grad=True),
        "values": FOUR,
    }


def module(fw: Any) -> dict[str, Any]:
    class Empty(fw.nn.Module):
        def forward(self, x: Any) -> Any:
            return x

    return {"module": Empty(), "a": fw.tensor(FOUR)}


def chain_of(step: Callable[[Any, Any], Any]) -> Callable[[Any], dict[str, Any]]:
    """Prepare a chain of one binary step, and the gradient to send back through it."""

    def prepare(fw: Any) -> dict[str, Any]:
        x, y = fw.tensor(FOUR, requires_grad=True), fw.tensor(FOUR)
        z = x
        for _ in range(CHAIN):
            z = step(z, y)
        return {"z": z, "g": fw.tensor(FOUR)}

    return prepare


def forward_and_backward(fw: Any) -> dict[str, Any]:
    def run(x: Any, y: Any, g: Any) -> None:
        z = x
        for _ in range(CHAIN):
            z = z + y
        z.backward(g)

    return {"run": run, "x": fw.tensor(FOUR, requires_grad=True), "y": fw.tensor(FOUR),
            "g": fw.tensor(FOUR)}  # fmt: skip


def python_rule(fw: Any) -> dict[str, Any]:
    """Prepare a chain whose rule is a Python function: an op of ours, PyTorch's Function."""
    if fw is tangrad:
        return chain_of(_op_with_python_rule())(fw)
    return function_chain(fw)


def _op_with_python_rule() -> Any:
    return op(
        "bench_step(Tensor self, Tensor other) -> Tensor",
        shape=lambda self, other: self.shape,
        reference=lambda np, self, other: self,
        vjp={"self": lambda g: g},
    )


def function_chain(fw: Any) -> dict[str, Any]:
    class Step(fw.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            return x + y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g, None

    return chain_of(Step.apply)(fw)


BACKWARD = "z.backward(g, retain_graph=True)"

WORKLOADS = [
    Workload("a + b, 4 floats", "a + b", tensors, "a + b", 0.12, 0.25),
    Workload("a + b, recorded", "w + b", tensors, "", 0.20, 0.3),
    Workload("a * b, recorded, both saved", "w * b", tensors, "", None, 0.3),
    Workload("a.add_(b)", "a.add_(b)", tensors, "fw.add(a, b, a)", None, 0.25),
    Workload("a += b", "c = a; c += b", tensors, "c = a; c += b", None, 0.25),
    Workload("a + 2.0", "a + 2.0", tensors, "a + 2.0", None, 0.15),
    Workload("m + row (broadcast)", "m + m[0]", tensors, "m + m[0]"),
    Workload("relu(a)", "fw.relu(a)", tensors, "fw.maximum(a, 0)", None, 0.35),
    Workload("a.relu()", "a.relu()", tensors),
    Workload("a.sum()", "a.sum()", tensors, "a.sum()", None, 0.35),
    Workload("m.view(4)", "m.view(4)", tensors, "m.reshape(4)", 0.10, 0.3, group="views"),
    Workload("a[0]", "a[0]", tensors, "a[0]", 0.10, 0.3, group="views"),
    Workload("a[1:3]", "a[1:3]", tensors, "a[1:3]", 0.10, 0.3, group="views"),
    Workload("m.t()", "m.t()", tensors, "m.T", 0.10, 0.3, group="views"),
    Workload("a.detach()", "a.detach()", tensors, group="views"),
    Workload("empty(3)", "fw.empty(3)", tensors, "fw.empty(3)", None, 0.3, group="creation"),
    Workload("tensor(list)", "fw.tensor(values)", tensors, "fw.array(values)", None, 0.3,
             group="creation"),
    Workload("from_numpy + numpy", "fw.from_numpy(array).numpy()",
             lambda fw: {"array": numpy.ones(4, "float32")}, "", None, 0.3, group="creation"),
    Workload("Module() of an empty forward", "module(a)", module, "", 0.25, group="modules"),
    Workload("backward, per add", BACKWARD, chain_of(lambda z, y: z + y), "", 0.15, None, CHAIN,
             "backward"),
    Workload("backward, per rule in Python", BACKWARD, python_rule, "", 0.6, None, CHAIN,
             "backward"),
    Workload("backward, per autograd.Function", BACKWARD, function_chain, "", None, None, CHAIN,
             "backward"),
    Workload("1,000 adds + backward", "run(x, y, g)", forward_and_backward, "", None, 0.3,
             group="backward"),
]  # fmt: skip


def load_backend(folder: Path) -> ModuleType:
    """Compile the do-nothing backend and load it."""
    library = folder / f"noop_backend{sysconfig.get_config_var('EXT_SUFFIX')}"
    includes = [f"-I{sysconfig.get_paths()['include']}", f"-I{include_directory()}"]
    compiler = shlex.split(sysconfig.get_config_var("CC") or "cc")
    command = [*compiler, "-O2", "-shared", "-fPIC", *includes, str(BACKEND), "-o", str(library)]
    subprocess.run(command, check=True)
    found = util.spec_from_file_location("noop_backend", library)
    backend = util.module_from_spec(found)
    found.loader.exec_module(backend)
    return backend


def silence_kernels() -> ModuleType:
    """Replace the kernels of the `cpu` device, for float32, by one that does nothing."""
    with tempfile.TemporaryDirectory() as folder:
        backend = load_backend(Path(folder))
    for name in SILENT_OPS:
        backend.install(name, "cpu", "float32")
    return backend


class Unmoved:
    """An observer that does nothing."""

    def enter(self, op: Any) -> None:
        """Look at nothing."""

    def leave(self, op: Any, token: Any) -> None:
        """Look at nothing."""


def of_observers(backend: ModuleType, rounds: int) -> list[Figure]:
    """Measure what observers that do nothing add to an op, by the thread's own time."""
    unmoved = Unmoved()
    kinds = {
        "in C": (lambda: backend.push_observer(False), lambda: backend.pop_observer(False), 0.05),
        "in Python": (lambda: push_observer(unmoved), lambda: pop_observer(unmoved), 0.3),
    }
    timer = timeit.Timer("a + b", globals=tensors(tangrad), timer=time.thread_time)
    found = []
    for kind, (push, pop, goal) in kinds.items():
        added = []
        for _ in range(rounds):
            alone = timer.timeit(OBSERVED)
            push()
            try:
                added.append((timer.timeit(OBSERVED) - alone) / OBSERVED * 1e6)
            finally:
                pop()
        name = f"an empty observer {kind}, per op"
        found.append(Figure(name, "observers", "us", {OURS: median(added)}, goal=goal))
    return found


def torch_or_none() -> Any:
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(1)
    return torch


def measure(workload: Workload, torch: Any, rounds: int) -> Figure:
    """Time a workload in every framework that has it."""
    programs = {}
    for name, fw in ((OURS, tangrad), ("torch", torch)):
        if fw is not None:
            names = {"fw": fw, **workload.prepare(fw)}
            programs[name] = Program(workload.statement, names, workload.repeats)
    if workload.numpy:
        a = numpy.array(FOUR, "float32")
        names = {"fw": numpy, "a": a, "b": a.copy(), "m": a.reshape(2, 2), "values": FOUR}
        programs["numpy"] = Program(workload.numpy, names)
    samples = measure_programs(programs, Pace(rounds))
    return Figure(workload.name, workload.group, "us", samples.medians(), samples.ratio(),
                  workload.goal, workload.goal_ratio)  # fmt: skip


def figures(rounds: int, only: str = "") -> list[Figure]:
    """Measure all workloads whose name or group contains `only`."""
    chosen = [w for w in WORKLOADS if only.lower() in f"{w.group} {w.name}".lower()]
    observes = only.lower() in "observers"
    if not chosen and not observes:
        return []
    backend, torch = silence_kernels(), torch_or_none()
    measured = [measure(workload, torch, rounds) for workload in chosen]
    return measured + (of_observers(backend, rounds) if observes else [])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="measure what has this in its name")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true", help="print figures as JSON")
    arguments = parser.parse_args()
    measured = figures(arguments.rounds, arguments.only)
    print(json.dumps(as_data(measured)) if arguments.json else table(measured))


if __name__ == "__main__":
    sys.exit(main())
