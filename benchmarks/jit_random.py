"""Time random fused groups beside C that is written for each of them, in turn.

The C is what one would write: a loop over a row's columns for each pass, folds in 64 lanes, kept
values in a buffer of a row. Its scalar functions are those of the definitions, rendered as
tangrad-cpu's kernels are; gcc -O3 -march=native compiles it. Processor time, in turn.

    python benchmarks/jit_random.py [--groups N] [--first SEED] [--threads N] [--rounds N]
"""

from __future__ import annotations

import argparse
import ctypes
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "backend_cpu"))

from jit import BOUNDS, machine, paired  # noqa: E402
from render.dialect import cpu_dialect  # noqa: E402

import tangrad  # noqa: E402
from tangrad.plugin.render import folds, pointwise_ops, prelude  # noqa: E402
from tangrad_jit.codegen import Const, Group, GroupInput, Step, compile_group  # noqa: E402

DIALECT = cpu_dialect()
UNARY = ("relu", "neg", "abs", "square", "sigmoid", "tanh", "exp", "silu", "gelu_none", "gelu_tanh")
UNARY += ("sqrt", "reciprocal", "hardswish", "log1p", "erf", "softsign", "leaky_relu")
BINARY = (
    "add_plain",
    "sub_plain",
    "mul",
    "maximum",
    "minimum",
    "true_divide",
    "tanh_backward(self)",
)
FOLDS = ("sum", "mean", "amax")
LANES = 64


def known() -> dict[str, Any]:
    """Return what ops compute, by key."""
    return {d.key: d for d in (*pointwise_ops(), *folds())}


def make(seed: int, ops: dict[str, Any]) -> Group:
    """Return a random group of float32: chains, broadcast patterns, folds, several results."""
    rng = random.Random(seed)
    patterns = [
        "full",
        *rng.choices(("full", "full", "row", "column", "scalar"), k=rng.randint(0, 3)),
    ]
    kinds = list(patterns)
    steps: list[Step] = []

    def late() -> int:
        return len(kinds) - 1 - min(int(rng.expovariate(0.6)), len(kinds) - 1)

    def append(key: str, *args: int | Const) -> None:
        steps.append(Step(ops[key], "float32", args, dict.fromkeys(ops[key].params, 0.5)))
        found = {kinds[a] for a in args if isinstance(a, int)} - {"scalar"}
        full = "full" in found or len(found) > 1
        kinds.append("row" if key in FOLDS else "full" if full else next(iter(found), "scalar"))

    for _ in range(rng.randint(2, 10)):
        chance, full = rng.random(), [k for k, kind in enumerate(kinds) if kind == "full"]
        if chance < 0.12:
            append(rng.choice(FOLDS), full[-1])
        elif chance < 0.2:
            append(rng.choice(BINARY[:3]), late(), Const(rng.choice((0.5, 1.5, -2.0))))
        elif chance < 0.6:
            append(rng.choice([b for b in BINARY if b in ops]), late(), full[-1])
        else:
            append(rng.choice([u for u in UNARY if u in ops]), late())
    first = len(patterns)
    fulls = [k for k in range(first, len(kinds)) if kinds[k] == "full"]
    if not fulls:
        append("add_plain", 0, len(kinds) - 1)
        fulls = [len(kinds) - 1]
    outputs = sorted({fulls[-1], rng.choice(fulls)})
    inputs = tuple(GroupInput("float32", pattern) for pattern in patterns)  # type: ignore[arg-type]
    return Group(inputs, tuple(steps), tuple(outputs))


class Source:
    """The C of one group.

    Attributes:
        name: of the function.
        group: what it computes.
        kinds: of each value: "full", "row", "column" or "scalar".
        passes: of each value, the pass over the columns that computes it; -1 before all.
    """

    def __init__(self, name: str, group: Group) -> None:
        self.name, self.group = name, group
        self.kinds = [given.pattern for given in group.inputs]
        self.passes = [-1] * len(self.kinds)
        for step in group.steps:
            args = [a for a in step.args if isinstance(a, int)]
            found = {self.kinds[a] for a in args} - {"scalar"}
            varies = "full" in found or len(found) > 1
            fold = step.described.key in FOLDS
            kind = "row" if fold else "full" if varies else next(iter(found), "scalar")
            after = [self.passes[a] + (self.kinds[a] in ("row", "scalar")) for a in args]
            when = (
                max(after)
                if fold or kind in ("full", "column")
                else max(self.passes[a] for a in args)
            )
            self.passes.append(max(0, when) if fold or kind in ("full", "column") else when)
            self.kinds.append(kind)

    def step_of(self, value: int) -> Step:
        """Return the step that makes a value."""
        return self.group.steps[value - len(self.group.inputs)]

    def moves(self, value: int) -> bool:
        """Tell whether a value differs between columns."""
        return self.kinds[value] in ("full", "column")

    def element(self, value: int) -> str:
        """Return an input's element."""
        index = {"full": "r * columns + c", "row": "r", "column": "c", "scalar": "0"}
        return f"in{value}[{index[self.kinds[value]]}]"

    def scalar(self, value: int) -> str:
        """Return the statement that computes a value of a step."""
        step = self.step_of(value)
        args = [f"v{a}" if isinstance(a, int) else f"{a.value!r}f" for a in step.args]
        used = step.typed().program
        names = [a for n, a in zip(step.described.inputs, args, strict=True) if n in used.inputs]
        names += ["0.5f" for _ in used.params]
        return (
            f"float v{value}; {function_name(step.described)}({', '.join([*names, f'&v{value}'])});"
        )

    def needed(self, wanted: list[int], number: int) -> list[int]:
        """Return what a pass computes for some values, operands first."""
        order: list[int] = []

        def visit(value: int) -> None:
            if value in order or not self.moves(value):
                return
            if value >= len(self.group.inputs) and self.passes[value] == number:
                for arg in self.step_of(value).args:
                    if isinstance(arg, int):
                        visit(arg)
            order.append(value)

        for value in wanted:
            visit(value)
        return order

    def text(self) -> str:
        """Return the function."""
        n = len(self.group.inputs)
        count = len(self.kinds)
        last = max(self.passes) + 1
        folds_ = [v for v in range(n, count) if self.step_of(v).described.key in FOLDS]
        kept: set[int] = set()
        bodies = []
        for number in reversed(range(last)):
            wanted = [v for v in self.group.outputs if self.passes[v] == number]
            mine = [f for f in folds_ if self.passes[f] == number]
            sources = [self.step_of(f).args[0] for f in mine]
            later = [v for v in sorted(kept) if self.passes[v] == number]
            order = self.needed([*wanted, *sources, *later], number)
            kept |= {v for v in order if v >= n and self.passes[v] < number}
            bodies.insert(0, (number, wanted, mine, order))
        params = [f"float *restrict out{k}" for k in range(len(self.group.outputs))]
        params += [f"const float *restrict in{k}" for k in range(n)]
        lines = [f"void {self.name}({', '.join([*params, 'long rows', 'long columns'])})", "{"]
        lines += [f"    float keep{v}[columns];" for v in sorted(kept)]
        lines.append("    for (long r = 0; r < rows; r++) {")
        lines += [
            f"        const float v{k} = {self.element(k)};" for k in range(n) if not self.moves(k)
        ]
        lines += self.rest(-1)
        for number, wanted, mine, order in bodies:
            lines += self.loop(number, wanted, mine, order, kept)
            lines += self.rest(number)
        return "\n".join([*lines, "    }", "}", ""])

    def rest(self, number: int) -> list[str]:
        """Return what is the same for all columns and known after a pass."""
        n = len(self.group.inputs)
        same = [
            v for v in range(n, len(self.kinds)) if not self.moves(v) and self.passes[v] == number
        ]
        return [
            "        " + self.scalar(v) for v in same if self.step_of(v).described.key not in FOLDS
        ]

    def loop(
        self, number: int, wanted: list[int], mine: list[int], order: list[int], kept: set[int]
    ) -> list[str]:
        """Return the loop of a pass, and the results of its folds."""
        n = len(self.group.inputs)
        body = []
        for v in order:
            if v < n:
                body.append(f"const float v{v} = {self.element(v)};")
            elif self.passes[v] < number:
                body.append(f"const float v{v} = keep{v}[c];")
            else:
                body.append(self.scalar(v))
                body += [f"keep{v}[c] = v{v};"] * (v in kept)
        body += [f"out{self.group.outputs.index(v)}[r * columns + c] = v{v};" for v in wanted]
        if not mine:
            return [
                "        for (long c = 0; c < columns; c++) {",
                *[f"            {b}" for b in body],
                "        }",
            ]
        start = {"amax": "-INFINITY"}
        lines = []
        for f in mine:
            begin = start.get(self.step_of(f).described.key, "0.0f")
            lines.append(f"        float lane{f}[{LANES}];")
            lines.append(f"        for (int k = 0; k < {LANES}; k++) lane{f}[k] = {begin};")

        def fold(f: int, to: str, other: str) -> str:
            if self.step_of(f).described.key == "amax":
                return f"{to} = {other} != {other} || {other} > {to} ? {other} : {to};"
            return f"{to} += {other};"

        inner = [*body, *[fold(f, f"lane{f}[k]", f"v{self.step_of(f).args[0]}") for f in mine]]
        tail = [*body, *[fold(f, f"lane{f}[0]", f"v{self.step_of(f).args[0]}") for f in mine]]
        lines += [
            f"        long at{number} = 0;",
            f"        for (; at{number} + {LANES} <= columns; at{number} += {LANES})",
            f"            for (int k = 0; k < {LANES}; k++) {{ const long c = at{number} + k;",
            *[f"                {b}" for b in inner],
            "            }",
            f"        for (long c = at{number}; c < columns; c++) {{",
            *[f"            {b}" for b in tail],
            "        }",
        ]
        for f in mine:
            lines.append(
                f"        for (int k = 1; k < {LANES}; k++) {fold(f, f'lane{f}[0]', f'lane{f}[k]')}"
            )
            mean = " / columns" if self.step_of(f).described.key == "mean" else ""
            lines.append(f"        const float v{f} = lane{f}[0]{mean};")
        return lines


def function_name(described: Any) -> str:
    """Return a C name for an op's scalar function."""
    return "op_" + "".join(c if c.isalnum() else "_" for c in described.key)


def library(groups: list[Group], folder: Path) -> ctypes.CDLL:
    """Compile the C of all groups."""
    used = {s.described.key: s for g in groups for s in g.steps if s.described.key not in FOLDS}
    scalars = "\n".join(
        s.typed().render(function_name(s.described), DIALECT) for s in used.values()
    )
    functions = "\n".join(Source(f"group{k}", group).text() for k, group in enumerate(groups))
    text = prelude(DIALECT, scalars) + BOUNDS + scalars
    text = text.replace("static inline", "static inline __attribute__((always_inline))") + functions
    source, target = folder / "groups.c", folder / "groups.so"
    source.write_text(text, "utf-8")
    native = ROOT / "backend_cpu/src/tangrad_cpu/native"
    flags = f"-O3 {machine()} -ffp-contract=off -fno-math-errno -fno-trapping-math -shared -fPIC -w"
    command = ["gcc", *flags.split(), f"-I{native}", "-o", str(target), str(source), "-lm"]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(target))


def calls(
    group: Group, function: Any, rows: int, columns: int
) -> tuple[Callable[..., Any], Callable[[], Any]]:
    """Return what runs a kernel on tensors, and what runs the C on the same."""
    shapes = {"full": (rows, columns), "row": (rows, 1), "column": (columns,), "scalar": ()}
    ins = [tangrad.rand(shapes[given.pattern]) for given in group.inputs]
    outs = [tangrad.empty(rows, columns) for _ in group.outputs]
    pointers = [ctypes.c_void_p(t.data_ptr()) for t in (*outs, *ins)]
    sizes = (ctypes.c_long(rows), ctypes.c_long(columns))
    return lambda kernel: kernel.run(outs, ins, rows, columns), lambda: function(*pointers, *sizes)


def main() -> None:
    """Print the ratios and their geometric means."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", default="128x1000")
    parser.add_argument("--show", type=int, default=5, help="how many of the slowest are listed")
    options = parser.parse_args()
    os.environ.setdefault("TANGRAD_NUM_THREADS", "1")
    tangrad.set_num_threads(1)
    rows, columns = map(int, options.size.split("x"))
    ops = known()
    groups = [make(seed, ops) for seed in range(options.first, options.first + options.groups)]
    found = []
    with tempfile.TemporaryDirectory() as folder:
        compiled = library(groups, Path(folder))
        for k, group in enumerate(groups):
            run, called = calls(group, getattr(compiled, f"group{k}"), rows, columns)
            kernel, frame = compile_group(group), compile_group(group, "tiles")
            ratio = paired(lambda run=run, kernel=kernel: run(kernel), called, options.rounds)[1]  # type: ignore[misc]
            tiles = paired(lambda run=run, frame=frame: run(frame), called, options.rounds)[1]  # type: ignore[misc]
            found.append((ratio, tiles, [s.described.key for s in group.steps], options.first + k))
    for name, place in (("emitted", 0), ("tiles", 1)):
        ratios = [f[place] for f in found]
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        over = sum(r > 1.15 for r in ratios)
        print(
            f"{name:8} of C: geometric mean {mean:.2f}, most {max(ratios):.2f},"
            f" {over} of {len(ratios)} above 1.15"
        )
    for ratio, tiles, names, seed in sorted(found, reverse=True)[: options.show]:
        print(f"{ratio:6.2f} {tiles:6.2f} seed {seed}: {' '.join(names)}")


if __name__ == "__main__":
    main()
