"""Time whole training steps, eager and compiled, here and by the peers, in turn.

Each form has a model and an optimizer of its own, of the same numbers. `default` and `fullgraph`
are ours; a step that reads its loss has no graph, and its default form is queued. torch.compile
gets the whole step, as `default` does, and jax.jit a perceptron's. A peer that is not installed is
said and left out.

    python benchmarks/jit_steps.py [--only MLP] [--threads N] [--rounds N] [--clock cpu]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy
from measure import frameworks
from measuring.paired import CLOCKS, Pace, Program, Samples, measure_programs
from measuring.supervise import environment
from workloads import networks, training
from workloads.workload import integers, normal

Step = Callable[[], Any]
FORMS = ("torch", "eager", "default", "fullgraph", "inductor", "jax")
WARM = 40  # calls in which everybody compiles, and ours are measured against eager
RATES = {"SGD": 0.1, "Adam": 1e-3, "AdamW": 1e-3}


@dataclass(frozen=True)
class Case:
    """A training step.

    Attributes:
        prepare: as a workload's.
        widths: of a perceptron, for jax. optimizer: its name.
        reads: whether the step ends by reading the loss, which no graph can.
        goals: the most that "default" and "fullgraph" may take of torch's eager time.
        random: whether the losses of frameworks differ by what they draw.
    """

    prepare: Callable[[Any], dict[str, Any]]
    widths: tuple[int, ...] = ()
    optimizer: str = ""
    reads: bool = False
    goals: tuple[float, float] | None = None
    random: bool = False


def perceptron(optimizer: str, *widths: int, reads: bool = False) -> Case:
    """Return the case of a perceptron on a batch of 64 digits."""
    prepare = training.classifying(
        lambda fw: networks.perceptron(fw, *widths),
        training.DIGITS,
        optimizer,
        lr=RATES[optimizer],
    )
    return Case(prepare, () if reads else widths, optimizer, reads, (0.35, 0.2))


def dropping(fw: Any) -> Any:
    """Return a perceptron with dropout."""
    nn = fw.nn
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10))


CASES = {
    "MLP 64-64-10, SGD": perceptron("SGD", 64, 64, 10),
    "MLP 64-64-10, Adam": perceptron("Adam", 64, 64, 10),
    "MLP 64-128-10, SGD": perceptron("SGD", 64, 128, 10),
    "MLP 64-128-10, Adam": perceptron("Adam", 64, 128, 10),
    "MLP 64-128-10, AdamW": perceptron("AdamW", 64, 128, 10),
    "MLP 64-128-10, SGD, loss read": perceptron("SGD", 64, 128, 10, reads=True),
    "MLP 64-128-10, AdamW, loss read": perceptron("AdamW", 64, 128, 10, reads=True),
    "MLP 64-128-10, dropout, AdamW": Case(
        training.classifying(dropping, training.DIGITS, "AdamW"), random=True, goals=(0.35, 0.2)
    ),
    "LeNet, b64, Adam": Case(training.classifying(networks.lenet, training.PICTURES, "Adam")),
    "VAE 784-400-20, b128, Adam": Case(training.autoencoding, random=True),
    "char-GPT 4×128, b8, T128, AdamW": Case(training.predicting(networks.gpt, 8, 128, "AdamW")),
}


def reading(step: Step) -> Step:
    """Return a step that returns its loss as a number."""
    return lambda: step().item()


def steps_of(case: Case, fws: dict[str, Any]) -> dict[str, Step]:
    """Return a step for each form of a case that there is."""

    def new(fw: Any) -> Step:
        step: Step = case.prepare(fw)["step"]
        return reading(step) if case.reads else step

    ours, torch = fws["tangrad"], fws.get("torch")
    found: dict[str, Step] = {"eager": new(ours), "default": ours.compile(new(ours))}
    if not case.reads:
        found["fullgraph"] = ours.compile(new(ours), fullgraph=True, options={"measure": False})
    if torch is not None:
        found["torch"] = new(torch)
        found["inductor"] = torch.compile(new(torch))
    if case.widths:
        with suppress(ImportError):
            found["jax"] = by_jax(case.widths, case.optimizer)
    return {form: found[form] for form in FORMS if form in found}


def by_jax(widths: Sequence[int], optimizer: str) -> Step:
    """Return a perceptron's training step by jax.jit, whose state it is given to write over.

    Raises:
        ImportError: jax is not installed.
    """
    import jax
    from jax import numpy as jnp

    rate = RATES[optimizer]
    pool = normal((1 << 20,))
    weights = []
    for inside, outside in pairwise(widths):
        scale = numpy.float32(inside**-0.5)
        weight = numpy.resize(pool, inside * outside).reshape(outside, inside) * scale
        weights.append((jnp.asarray(weight), jnp.asarray(pool[:outside] * numpy.float32(0.01))))

    def loss_of(weights: Any, x: Any, labels: Any) -> Any:
        for weight, bias in weights[:-1]:
            x = jax.nn.relu(x @ weight.T + bias)
        weight, bias = weights[-1]
        chances = jax.nn.log_softmax(x @ weight.T + bias)
        return -jnp.mean(jnp.take_along_axis(chances, labels[:, None], 1))

    def adam(p: Any, g: Any, m: Any, v: Any, count: Any) -> tuple[Any, Any, Any]:
        p = p * (1 - rate * 0.01) if optimizer == "AdamW" else p
        m, v = m * 0.9 + g * 0.1, v * 0.999 + g * g * 0.001
        below = jnp.sqrt(v / (1 - 0.999**count)) + 1e-8
        return p - rate * (m / (1 - 0.9**count)) / below, m, v

    def trained(state: Any, x: Any, labels: Any) -> tuple[Any, Any]:
        weights, first, second, count = state
        loss, grads = jax.value_and_grad(loss_of)(weights, x, labels)
        if optimizer == "SGD":
            made = jax.tree.map(lambda p, g: p - rate * g, weights, grads)
            return (made, first, second, count), loss
        count = count + 1
        rows = zip(*map(jax.tree.leaves, (weights, grads, first, second)), strict=True)
        new = zip(*(adam(*row, count) for row in rows), strict=True)
        form = jax.tree.structure(weights)
        return (*(jax.tree.unflatten(form, leaves) for leaves in new), count), loss

    compiled = jax.jit(trained, donate_argnums=0)
    zeros = [jax.tree.map(jnp.zeros_like, weights) for _ in range(2)]
    state = [(weights, *zeros, jnp.float32(0.0))]
    x, labels = jnp.asarray(normal(training.DIGITS)), jnp.asarray(integers(10, (64,)))

    def step() -> Any:
        state[0], loss = compiled(state[0], x, labels)
        return loss.block_until_ready()

    return step


def warmed(steps: dict[str, Step], random: bool) -> str:
    """Call each step until it is compiled; return a remark where losses differ, or ""."""
    last = {}
    for form, step in steps.items():
        for _ in range(WARM):
            result = step()
        last[form] = float(result.detach() if hasattr(result, "detach") else result)
    wanted = last.get("torch", last["eager"])
    odd = [f for f, loss in last.items() if abs(loss - wanted) > 1e-2 * abs(wanted) + 1e-3]
    return f"other losses: {', '.join(odd)}" if odd and not random else ""


def ratio(samples: Samples, one: str, other: str) -> float | None:
    """Return the median of the ratios of two forms' times, paired by round."""
    mine, theirs = (samples.by_framework.get(form) for form in (one, other))
    if mine is None or theirs is None:
        return None
    return statistics.median(a / b for a, b in zip(mine, theirs, strict=True))


def line(name: str, case: Case, samples: Samples, remark: str) -> str:
    """Return what is told of a case."""
    medians = samples.medians()
    cells = [f"{medians[f]:10.1f}" if f in medians else f"{'–':>10}" for f in FORMS]
    found = {
        form: (ratio(samples, form, "torch"), ratio(samples, "eager", form))
        for form in ("default", "fullgraph")
    }
    found["jax"] = (ratio(samples, "fullgraph", "jax"), None)
    found["inductor"] = (ratio(samples, "fullgraph", "inductor"), None)
    told = []
    for k, form in enumerate(("default", "fullgraph")):
        of_torch, times = found[form]
        over = case.goals is not None and of_torch is not None and of_torch > case.goals[k]
        told.append(f"{of_torch:7.2f}{'!' if over else ' '}" if of_torch else f"{'–':>7} ")
        told.append(f"{times:6.2f}×" if times else f"{'–':>7}")
    told += [f"{r[0]:7.2f}" if r[0] else f"{'–':>7}" for r in (found["inductor"], found["jax"])]
    return f"{name:33}{''.join(cells)}  {''.join(told)}  {remark}".rstrip()


def in_an_environment_of(threads: int) -> None:
    """Start this program anew where the peers are told other numbers of threads."""
    wanted = environment(threads)
    if any(os.environ.get(key) != value for key, value in wanted.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], wanted)


def options_of(parser: argparse.ArgumentParser, rounds: int) -> argparse.Namespace:
    """Return what the command line says, how to measure among it, in the environment for that.

    Args:
        parser: has the options of the benchmark's own.
        rounds: how many there are where nothing is said.
    """
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", choices=sorted(CLOCKS), default="wall")
    options = parser.parse_args()
    in_an_environment_of(options.threads)
    warnings.simplefilter("ignore")
    return options


def tell_absent() -> None:
    """Name the peers that were not there."""
    for name in ("torch", "jax"):
        if name not in sys.modules:
            print(f"{name} is not installed")


def main() -> None:
    """Print a line for each step."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="steps that have this in their names")
    options = options_of(parser, rounds=9)
    fws = frameworks(options.threads)
    pace = Pace(rounds=options.rounds, timing=0.05, row=60.0, clock=options.clock)
    print(f"us a step, {options.threads} threads; of torch, and times as fast as our eager")
    heads = "".join(f"{form:>10}" for form in FORMS)
    print(f"{'':33}{heads}  {'default':>14} {'fullgraph':>14} {'/induct':>7}{'/jax':>7}")
    for name, case in CASES.items():
        if options.only.lower() not in name.lower():
            continue
        steps = steps_of(case, fws)
        remark = warmed(steps, case.random)
        kept = getattr(steps["default"], "compiled", None)
        if kept is not None and kept.off:
            remark += f" default: {kept.off}"
        programs = {form: Program("step()", {"step": step}) for form, step in steps.items()}
        print(line(name, case, measure_programs(programs, pace), remark), flush=True)
    tell_absent()


if __name__ == "__main__":
    main()
