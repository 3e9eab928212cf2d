"""What compiling a function of 100 ops costs: `python benchmarks/jit_compile.py [--rounds N]`.

Processor time of the call that records, rewrites, fuses and lays out, less that of the function
itself, by stage. "warm" is in a process that has compiled other programs, each of its own: kernels
are kept by what they compute, so no program is measured twice. "first" is the first that a process
compiles, which has run the function before, so that its ops are loaded: with the imports, which
are counted, as are files that the call opens to write. Then what a call of a compiled function
costs beside its kernels: the same call of the plan alone is taken from it.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import tangrad
from tangrad import nn

OPS = 100
ROWS, COLUMNS = 16, 64
WARM, FIRST, CALL = 10.0, 50.0, 3.0  # the goals: ms, ms, us
ALONE = {"fullgraph": True, "options": {"measure": False}}

POINTWISE = (
    "{x} * {y}",
    "{x} + {y}",
    "{x} - {y}",
    "{x} * {c}",
    "{x} + {c}",
    "{x}.relu()",
    "{x}.tanh()",
    "{x}.sigmoid()",
    "{x}.abs()",
    "tangrad.maximum({x}, {y})",
    "functional.silu({x})",
    "functional.gelu({x})",
)
OTHERS = (
    "{x} @ w",
    "functional.softmax({x}, -1)",
    "{x} - {x}.mean(-1, keepdim=True)",
    "{x} * {x}.sum(0)",
    "functional.layer_norm({x}, (64,))",
    "tangrad.cat(({x}[:8], {y}[8:]))",
)
COUNTED = {OTHERS[2]: 2, OTHERS[3]: 2, OTHERS[5]: 3}

# What a fresh process does. It imports nothing else, so that nothing is there that compiling needs.
SETUP = {
    "expressions": """
code = compile(PROGRAM, "program.py", "exec")
names = {"tangrad": tangrad, "functional": tangrad.nn.functional}
exec(code, names)
function = names["program"]
args = tangrad.rand(16, 64), tangrad.rand(16, 64), tangrad.rand(64, 64)
""",
    "training": """
nn = tangrad.nn
model = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 16), nn.Tanh(), nn.Linear(16, 10))
update = tangrad.optim.Adam(model.parameters(), lr=1e-3)
names = {"model": model, "update": update, "loss_of": nn.functional.cross_entropy}
exec(compile(PROGRAM, "program.py", "exec"), names)
function, args = names["program"], (tangrad.rand(16, 64), tangrad.arange(16) % 10)
""",
}
STEP = """
def program(x, y):
    update.zero_grad()
    loss = loss_of(model(x), y)
    loss.backward()
    update.step()
    return loss
"""
CHILD = """
import gc, os, sys, time
import tangrad
SETUP
for _ in range(3):
    start = time.process_time()
    function(*args)
    alone = time.process_time() - start
files, live = [], True
def hook(event, given):
    if not live:
        return
    if event == "open":
        path, mode, flags = given
        bits = os.O_WRONLY | os.O_RDWR | os.O_CREAT
        if flags & bits if mode is None else set("wax+") & set(str(mode)):
            files.append(str(path))
    elif event in ("os.mkdir", "os.rename"):
        files.append(str(given[0]))
sys.addaudithook(hook)
before = set(sys.modules)
gc.collect()
start = time.process_time()
fast = tangrad.compile(function, fullgraph=True, options={"measure": False})
for _ in range(3):
    fast(*args)
    if fast.compiled.executables:
        break
took, live = time.process_time() - start, False
assert fast.compiled.executables
print(1e3 * (took - alone))
print(*sorted(set(sys.modules) - before))
print(*files)
"""


def source(kind: str, seed: int) -> str:
    """Return a program: a step of training, or 100 ops, a third of which are not pointwise."""
    if kind == "training":
        return STEP
    rng = random.Random(f"{kind} {seed}")
    lines = ["def program(x0, x1, w):"]
    made = count = 0

    def value() -> str:
        return f"x{max(0, made + 1 - min(int(rng.expovariate(0.6)), made + 1))}"

    while count < OPS:
        others = kind == "mixed" and rng.random() < 0.33
        form = rng.choice(OTHERS if others else POINTWISE)
        if count + COUNTED.get(form, 1) > OPS:
            form = POINTWISE[5]
        count += COUNTED.get(form, 1)
        given = {"x": f"x{made + 1}", "y": value(), "c": f"{rng.uniform(0.1, 0.9):.3f}"}
        lines.append(f"    x{made + 2} = {form.format(**given)}")
        made += 1
    return "\n".join([*lines, f"    return x{made + 1}", ""])


def program(kind: str, seed: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return a function and its arguments."""
    if kind == "training":
        return training(seed)
    names = {"tangrad": tangrad, "functional": nn.functional}
    exec(compile(source(kind, seed), f"{kind}{seed}.py", "exec"), names)
    given = [tangrad.rand(ROWS, COLUMNS), tangrad.rand(ROWS, COLUMNS)]
    return names["program"], (*given, tangrad.rand(COLUMNS, COLUMNS) / COLUMNS)


def training(seed: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return a step of a network of three layers, backward and update with it."""
    sizes = [64, *(8 * (1 + (seed + k) % 7) for k in range(2)), 10]
    layers: list[nn.Module] = []
    for inner, outer in pairwise(sizes):
        layers += [nn.Linear(inner, outer), nn.Tanh()]
    model = nn.Sequential(*layers[:-1])
    update = tangrad.optim.Adam(model.parameters(), lr=1e-3)

    def step(x: Any, y: Any) -> Any:
        update.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        update.step()
        return loss

    return step, (tangrad.rand(ROWS, 64), tangrad.arange(ROWS) % 10)


class Stages:
    """Processor time of functions by themselves, without that of others which are timed within."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        self._within: list[float] = []

    def watch(self, module: Any, name: str, stage: str) -> None:
        """Time a function that a module calls by a name."""
        function = getattr(module, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            self._within.append(0.0)
            start = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                took = time.process_time() - start
                self.spent[stage] = self.spent.get(stage, 0.0) + took - self._within.pop()
                if self._within:
                    self._within[-1] += took

        setattr(module, name, timed)

    def install(self) -> None:
        """Watch the stages of compiling."""
        from tangrad_jit.compiling import compiled, executable, recording
        from tangrad_jit.passes import fusion, pipeline

        self.watch(compiled, "record", "record")
        self.watch(recording, "survey", "surroundings")
        self.watch(compiled, "Executable", "executable")
        self.watch(executable, "optimize", "passes")
        self.watch(pipeline, "fuse", "grouping")
        self.watch(pipeline, "verify", "verifier")
        self.watch(fusion, "compile_group", "code")
        self.watch(executable, "Plan", "plan")


def prepared(function: Callable[..., Any], args: tuple[Any, ...]) -> float:
    """Run a function as it is some times; return the seconds of a call."""
    times = []
    for _ in range(3):
        start = time.process_time()
        function(*args)
        times.append(time.process_time() - start)
    return min(times)


def compiled_in(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[float, Any]:
    """Return the seconds of the calls that make a graph, and the compiled function."""
    start = time.process_time()
    fast = tangrad.compile(function, **ALONE)
    for _ in range(3):
        fast(*args)
        if fast.compiled.executables:
            break
    return time.process_time() - start, fast


def warm(kind: str, rounds: int) -> dict[str, Any]:
    """Return milliseconds of compiling in this process, all in all and by stage."""
    for seed in range(3):
        function, args = program(kind, 1000 + seed)
        prepared(function, args)
        compiled_in(function, args)
    stages = Stages()
    stages.install()
    totals, spent, nodes = [], [], []
    for seed in range(rounds):
        function, args = program(kind, seed)
        alone = prepared(function, args)
        gc.collect()
        stages.spent.clear()
        took, fast = compiled_in(function, args)
        totals.append(1e3 * (took - alone))
        spent.append(dict(stages.spent))
        nodes.append(len(fast.compiled.executables[0].recorded.nodes))
    found = {name for row in spent for name in row}
    by_stage = {n: 1e3 * statistics.median(row.get(n, 0.0) for row in spent) for n in found}
    return {
        "ms": statistics.median(totals),
        "least": min(totals),
        "nodes": statistics.median(nodes),
        "stages": by_stage,
    }


def fresh(kind: str, seed: int) -> dict[str, Any]:
    """Return what the first compilation of a fresh process costs; it may keep compiled modules."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    text = SETUP[kind if kind == "training" else "expressions"]
    child = CHILD.replace("SETUP", text.replace("PROGRAM", repr(source(kind, seed))))
    command = [sys.executable, "-c", child]
    done = subprocess.run(command, env=kept, capture_output=True, text=True, check=True)
    took, modules, files = done.stdout.splitlines()
    return {"ms": float(took), "modules": modules.split(), "files": files.split()}


def beside_kernels(rounds: int) -> Iterator[tuple[str, float, float]]:
    """Yield (what, microseconds of a call, of its plan alone) of small compiled calls."""
    a, b = tangrad.rand(16), tangrad.rand(16)
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(5)))
    x = tangrad.rand(1, 4)

    def small(a: Any, b: Any) -> Any:
        return (a + b) * a

    def inferred(x: Any) -> Any:
        with tangrad.no_grad():
            return model(x)

    for name, function, args in (
        ("a fused kernel", small, (a, b)),
        ("ten parameters", inferred, (x,)),
    ):
        fast = tangrad.compile(function, **ALONE)
        for _ in range(3):
            fast(*args)
        executable = fast.compiled.executables[0]
        given = executable.fits(args, {})
        inputs = executable._inputs(given)
        program = executable.plans[0].program
        whole = [per_call(lambda f=fast, a=args: f(*a)) for _ in range(rounds)]
        alone = [per_call(lambda p=program, i=inputs: p.run(i)) for _ in range(rounds)]
        yield name, min(whole), min(alone)


def per_call(function: Callable[[], Any], times: int = 500) -> float:
    """Return the microseconds of a call, the loop's own aside."""
    nothing = lambda: None  # noqa: E731
    spent = []
    for call in (function, nothing):
        start = time.process_time()
        for _ in range(times):
            call()
        spent.append(time.process_time() - start)
    return 1e6 * (spent[0] - spent[1]) / times


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="how often each is taken")
    parser.add_argument("--only", default="", help="programs, calls: those whose names begin so")
    given = parser.parse_args()
    for kind in ("pointwise", "mixed", "training"):
        if not kind.startswith(given.only):
            continue
        fresh(kind, 0)  # has Python keep what it compiles
        made = [fresh(kind, seed) for seed in range(given.rounds)]
        files = sorted({file for one in made for file in one["files"]})
        middle = statistics.median(one["ms"] for one in made)
        least = min(one["ms"] for one in made)
        modules = made[0]["modules"]
        ours = sum(name.startswith("tangrad") for name in modules)
        print(
            f"{kind:10} first {middle:7.1f} ms (least {least:.1f}; goal {FIRST:g}), "
            f"{len(modules)} modules imported, {ours} of them tangrad's; "
            f"written to disk: {', '.join(files) or 'nothing'}"
        )
        found = warm(kind, given.rounds)
        print(
            f"{kind:10} warm  {found['ms']:7.1f} ms (least {found['least']:.1f}; goal {WARM:g}), "
            f"{found['nodes']:g} nodes"
        )
        for name, spent in sorted(found["stages"].items(), key=lambda item: -item[1]):
            print(f"{'':10}       {spent:7.2f} ms {name}")
    if "calls".startswith(given.only):
        for name, whole, alone in beside_kernels(given.rounds):
            print(
                f"{name:15} {whole:6.2f} us a call, its plan {alone:.2f}: "
                f"{whole - alone:.2f} beside (goal {CALL:g})"
            )


if __name__ == "__main__":
    main()
