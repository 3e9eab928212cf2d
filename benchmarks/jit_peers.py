"""Time compiled functions of fused groups here, by PyTorch's Inductor and by XLA, in turn.

The functions are those of the random groups of `jit_random.py` and of the hand-written ones of
`jit.py`, written as Python for each framework. What is timed is a whole call, with its guards and
new memory for its results; `kernel` is ours alone. A peer that is not installed is said. Inductor
takes seconds for a group, so its 200 take the better part of an hour on one core.

    python benchmarks/jit_peers.py [--groups N] [--first SEED] [--threads N] [--size ROWSxCOLUMNS]
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import jit
import jit_random
import numpy
from jit_steps import options_of, ratio, tell_absent
from measure import frameworks
from measuring.paired import OURS, Pace, Program, Samples, measure_programs

from tangrad_jit.codegen import Const, Group, compile_group

GOALS = {"inductor": 0.5, "jax": 0.8}
HANDWRITTEN = {
    "pointwise chain": jit.chain,
    "bias, gelu, dropout, residual": jit.gelu,
    "add, layer_norm": jit.layer_norm,
    "softmax": jit.softmax,
    "adam": jit.adam,
}
HANDWRITTEN_SIZES = ((256, 768), (64, 65), (4096, 1000))
SHAPES: dict[str, Callable[[int, int], tuple[int, ...]]] = {
    "full": lambda rows, columns: (rows, columns),
    "row": lambda rows, columns: (rows, 1),
    "column": lambda rows, columns: (columns,),
    "scalar": lambda rows, columns: (),
}

OPERATORS = {
    "neg": "-{0}", "square": "{0} * {0}", "reciprocal": "1 / {0}",
    "add_plain": "{0} + {1}", "sub_plain": "{0} - {1}", "mul": "{0} * {1}",
    "true_divide": "{0} / {1}", "tanh_backward(self)": "{0} * (1 - {1} * {1})",
}  # fmt: skip
AS_IN_TORCH = {
    **{key: f"{{0}}.{key}()" for key in
       ("relu", "abs", "sigmoid", "tanh", "exp", "sqrt", "rsqrt", "log1p", "erf")},
    **{key: f"functional.{key}({{0}})" for key in ("silu", "hardswish", "softsign")},
    "gelu_none": "functional.gelu({0})",
    "gelu_tanh": "functional.gelu({0}, approximate='tanh')",
    "leaky_relu": "functional.leaky_relu({0}, 0.5)",
    "maximum": "fw.maximum({0}, {1})", "minimum": "fw.minimum({0}, {1})",
    "sum": "{0}.sum(-1, keepdim=True)", "mean": "{0}.mean(-1, keepdim=True)",
    "amax": "{0}.amax(-1, keepdim=True)",
}  # fmt: skip
AS_IN_JAX = {
    **{key: f"numpy.{key}({{0}})" for key in ("abs", "tanh", "exp", "sqrt", "log1p")},
    **{key: f"nn.{key}({{0}})" for key in ("relu", "sigmoid", "silu")},
    "rsqrt": "lax.rsqrt({0})", "erf": "lax.erf({0})",
    "hardswish": "nn.hard_swish({0})", "softsign": "nn.soft_sign({0})",
    "gelu_none": "nn.gelu({0}, approximate=False)", "gelu_tanh": "nn.gelu({0})",
    "leaky_relu": "nn.leaky_relu({0}, 0.5)",
    "maximum": "numpy.maximum({0}, {1})", "minimum": "numpy.minimum({0}, {1})",
    "sum": "{0}.sum(-1, keepdims=True)", "mean": "{0}.mean(-1, keepdims=True)",
    "amax": "{0}.max(-1, keepdims=True)",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A group, and the sizes of its space."""

    name: str
    group: Group
    rows: int
    columns: int

    def arrays(self) -> list[numpy.ndarray]:
        """Return its operands that are tensors."""
        rng = numpy.random.default_rng(0)
        found = []
        for given in self.group.inputs:
            if given.pattern != "number":
                values = rng.random(SHAPES[given.pattern](self.rows, self.columns))
                found.append(values < 0.8 if given.dtype == "bool" else numpy.float32(values))
        return found

    def numbers(self) -> list[float]:
        """Return its operands that are numbers."""
        return jit.ADAM[: sum(given.pattern == "number" for given in self.group.inputs)]


def source(case: Case, forms: dict[str, str]) -> str:
    """Return a group as the text of a Python function of its tensors; numbers stand in it."""
    group, numbers = case.group, iter(case.numbers())
    names = [
        repr(next(numbers)) if given.pattern == "number" else f"x{k}"
        for k, given in enumerate(group.inputs)
    ]
    lines = [f"def run({', '.join(name for name in names if name.isidentifier())}):"]
    for step in group.steps:
        args = [repr(a.value) if isinstance(a, Const) else names[a] for a in step.args]
        key = step.described.key
        lines.append(f"    v{len(names)} = {(OPERATORS | forms)[key].format(*args)}")
        names.append(f"v{len(names)}")
    lines.append(f"    return {', '.join(names[o] for o in group.outputs)}")
    return "\n".join(lines) + "\n"


def function(text: str, **names: Any) -> Callable[..., Any]:
    """Return the function of a text."""
    exec(compile(text, "<group>", "exec"), names)
    return names["run"]


def ours(case: Case, fw: Any) -> Iterator[tuple[str, Program]]:
    """Yield our call, and our kernel alone."""
    plain = function(source(case, AS_IN_TORCH), fw=fw, functional=fw.nn.functional)
    run = fw.compile(plain, fullgraph=True, options={"measure": False})
    given = [fw.tensor(array) for array in case.arrays()]
    yield OURS, Program("run(*given)", {"run": run, "given": given})
    kernel, outs = compile_group(case.group), run(*given)
    made = [fw.empty_like(t) for t in (outs if isinstance(outs, tuple) else (outs,))]
    names = {"run": kernel.run, "outs": made, "ins": [*given, *case.numbers()]}
    yield "kernel", Program(f"run(outs, ins, {case.rows}, {case.columns})", names)


def by_inductor(case: Case, torch: Any) -> Program:
    """Return the call of what Inductor compiles."""
    torch._dynamo.reset()
    plain = function(source(case, AS_IN_TORCH), fw=torch, functional=torch.nn.functional)
    given = [torch.from_numpy(numpy.asarray(array)) for array in case.arrays()]
    run = torch.compile(plain, fullgraph=True, dynamic=False)
    return Program("run(*given)", {"run": run, "given": given})


def by_jax(case: Case) -> Program:
    """Return the call of what XLA compiles.

    Raises:
        ImportError: jax is not installed.
    """
    import jax

    plain = function(source(case, AS_IN_JAX), numpy=jax.numpy, nn=jax.nn, lax=jax.lax)
    names = {
        "run": jax.jit(plain),
        "given": [jax.numpy.asarray(array) for array in case.arrays()],
        "ready": jax.block_until_ready,
    }
    return Program("ready(run(*given))", names)


def programs(case: Case, fws: dict[str, Any]) -> dict[str, Program]:
    """Return the programs of a case by whom they are."""
    found = dict(ours(case, fws[OURS]))
    if "torch" in fws:
        found["inductor"] = by_inductor(case, fws["torch"])
    with suppress(ImportError):
        found["jax"] = by_jax(case)
    return found


def odd(found: dict[str, Program]) -> str:
    """Return whose results are others than ours, in words, or ""."""
    results = {}
    for name, program in found.items():
        if name != "kernel":
            made = program.names["run"](*program.names["given"])
            made = made if isinstance(made, tuple) else (made,)
            results[name] = [numpy.asarray(one) for one in made]
    mine = results.pop(OURS)
    others = [
        name
        for name, theirs in results.items()
        if not all(
            numpy.allclose(a, b, rtol=1e-3, atol=1e-4, equal_nan=True)
            for a, b in zip(theirs, mine, strict=True)
        )
    ]
    return f"other results: {', '.join(others)}" if others else ""


def cases(options: argparse.Namespace) -> Iterator[Case]:
    """Yield the hand-written cases, then the random ones."""
    for name, make in HANDWRITTEN.items():
        for rows, columns in HANDWRITTEN_SIZES:
            yield Case(f"{name} {rows}x{columns}", make(), rows, columns)
    rows, columns = map(int, options.size.split("x"))
    known = jit_random.known()
    for seed in range(options.first, options.first + options.groups):
        yield Case(f"seed {seed}", jit_random.make(seed, known), rows, columns)


def line(case: Case, samples: Samples, remark: str) -> str:
    """Return what is told of a case."""
    medians = samples.medians()
    cells = [
        f"{medians[name]:10.1f}" if name in medians else f"{'–':>10}"
        for name in (OURS, "kernel", *GOALS)
    ]
    ratios = [ratio(samples, OURS, name) for name in GOALS]
    told = [f"{'–':>10}" if r is None else f"{r:10.2f}" for r in ratios]
    return f"{case.name:42}{''.join(cells)}{''.join(told)}  {remark}".rstrip()


def summary(kind: str, found: list[dict[str, float]]) -> Iterator[str]:
    """Yield a line for each peer: the geometric mean of our times over its."""
    for name, goal in GOALS.items():
        ratios = [one[name] for one in found if name in one]
        if ratios:
            mean = math.exp(statistics.fmean(map(math.log, ratios)))
            yield (
                f"{kind} of {name}: geometric mean {mean:.2f} of {len(ratios)} (goal {goal}), "
                f"most {max(ratios):.2f}"
            )


def main() -> None:
    """Print a line for each case, and the geometric means."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", type=int, default=40, help="how many random ones")
    parser.add_argument("--first", type=int, default=0, help="the first one's seed")
    parser.add_argument("--size", default="128x1000", help="of the random ones")
    parser.add_argument("--only", default="", help="cases that have this in their names")
    options = options_of(parser, rounds=7)
    fws = frameworks(options.threads)
    pace = Pace(rounds=options.rounds, timing=0.01, row=20.0, clock=options.clock)
    heads = "".join(f"{name:>10}" for name in (OURS, "kernel", *GOALS, "/inductor", "/jax"))
    print(f"{f'us a call, {options.threads} threads':42}{heads}")
    found: dict[str, list[dict[str, float]]] = {"hand-written": [], "random": []}
    for case in cases(options):
        if options.only not in case.name:
            continue
        made = programs(case, fws)
        remark = odd(made)
        samples = measure_programs(made, pace)
        ratios = {name: ratio(samples, OURS, name) for name in GOALS}
        kind = "random" if case.name.startswith("seed") else "hand-written"
        found[kind].append({name: r for name, r in ratios.items() if r is not None})
        print(line(case, samples, remark), flush=True)
    for kind, ratios in found.items():
        for told in summary(kind, ratios):
            print(told)
    tell_absent()


if __name__ == "__main__":
    main()
