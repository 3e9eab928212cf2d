"""The peak memory of compiled training steps beside eager ones: `python benchmarks/jit_memory.py`.

A peak is what tangrad's allocator has handed out at most during a step, beyond the parameters, the
optimizer's state and the batch; gradients count, and the arena of a compiled step. Nothing is
timed, so other programs on the machine do not matter.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable
from typing import Any

from workloads import networks, training

import tangrad
from tangrad import nn
from tangrad.plugin import allocator_of

GOAL = 0.8


STEPS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "MLP 64-128-10, b64, SGD": training.classifying(
        training.mlp, training.DIGITS, "SGD", lr=0.05, momentum=0.9
    ),
    "MLP 64-128-10, b64, Adam": training.classifying(training.mlp, training.DIGITS, "Adam"),
    "char-GPT 4×128, b8, 128 tokens": training.predicting(networks.gpt, 8, 128, "AdamW"),
    "LeNet, b64": training.classifying(networks.lenet, training.PICTURES, "Adam"),
    "VAE 784-400-20, b128": training.autoencoding,
}


def peak_of(step: Callable[[], Any], before: int, times: int = 3) -> int:
    """Return the most bytes beyond `before` that some steps hold."""
    allocator = allocator_of("cpu")
    allocator.reset_peak_memory_stats()
    for _ in range(times):
        step()
    return int(allocator.memory_stats()["allocated_bytes.all.peak"]) - before


def peaks(prepare: Callable[[Any], dict[str, Any]], fullgraph: bool) -> tuple[int, int, Any]:
    """Return eager's peak, the compiled step's, and the compiled step."""
    step = prepare(tangrad)["step"]
    fast = tangrad.compile(step, fullgraph=fullgraph, options={"measure": False})
    step()  # fills the optimizer's state
    for held in gc.get_objects():
        if isinstance(held, nn.Parameter):
            held.grad = None
    gc.collect()
    before = int(allocator_of("cpu").memory_stats()["allocated_bytes.all.current"])
    eager = peak_of(step, before)
    for _ in range(4):
        fast()
    gc.collect()
    return eager, peak_of(fast, before), fast


def main() -> None:
    """Print a line for each step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--default", action="store_true", help="the form that is no `fullgraph`")
    parser.add_argument("--only", default="", help="steps whose names begin so")
    given = parser.parse_args()
    for name, prepare in STEPS.items():
        if not name.startswith(given.only):
            continue
        eager, compiled, fast = peaks(prepare, not given.default)
        arena = [plan.arena_bytes for e in fast.compiled.executables for plan in e.plans]
        ratio = compiled / eager
        print(
            f"{name:32} eager {eager / 1e6:8.3f} MB  compiled {compiled / 1e6:8.3f} MB  "
            f"ratio {ratio:.2f} {'' if ratio <= GOAL else f'above {GOAL}'}  arena {arena}"
        )


if __name__ == "__main__":
    main()
