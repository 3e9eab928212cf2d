"""Advice about what programs do without need: numbers read one by one, batches of one, graphs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from tangrad_profiler.evidence import Advice, Evidence, percent, span
from tangrad_profiler.trace import NODE, OP, RANGE, Trace
from tangrad_profiler.views import own_frame

READ = "aten::item"
LAYERS = {"linear", "addmm", "bilinear", "conv1d", "conv2d", "conv3d", "conv_transpose2d"}
OFTEN = 100  # reads of a number
FEW = 50  # calls of layers, or ops that record steps: of fewer nothing is said


def _named(trace: Trace, names: set[str]) -> Any:
    """Return which events have one of some names."""
    return np.array([name in names for name in trace.names] or [False])[trace.events["name"]]


def _place(trace: Trace, chosen: Any) -> str:
    """Return the line of the program that most of some events come from, or ""."""
    frames = [own_frame(trace.frames(i)) for i in chosen[:10_000].tolist()]
    places = Counter((os.path.basename(f[0]), f[2]) for f in frames if f is not None)
    if not places:
        return ""
    (file, line), _ = places.most_common(1)[0]
    return f" at {file}:{line}"


def _numbers_read(evidence: Evidence) -> list[Advice]:
    trace = evidence.trace
    reads = np.flatnonzero((trace.events["kind"] == RANGE) & _named(trace, {READ}))
    if len(reads) < OFTEN:
        return []
    spent = int(trace.duration[reads].sum())
    return [Advice(
        f"A number is read from a tensor {len(reads):,} times ({span(spent)})"
        f"{_place(trace, reads)}: by .item(), float() or a condition. Each time the program waits "
        "for what computes it, and a compiled function ends there. Add such numbers "
        "up as tensors, and read them once in many steps.", spent / max(evidence.wall, 1), "Lines",
    )]  # fmt: skip


def _batch_of_one(evidence: Evidence) -> list[Advice]:
    trace, e = evidence.trace, evidence.trace.events
    layers = np.flatnonzero((e["kind"] == OP) & (e["signature"] >= 0) & _named(trace, LAYERS))
    firsts: list[Any] = [next(iter(s[0]), ()) if s else () for s in trace.signatures]
    one = np.array([len(f) > 1 and f[0] == 1 for f in firsts] or [False])
    alone = layers[one[e["signature"][layers]]]
    if len(alone) < FEW or len(alone) < 0.8 * len(layers):
        return []
    spent = int(trace.duration[alone].sum())
    return [Advice(
        f"{len(alone):,} of {len(layers):,} calls of layers{_place(trace, alone)} have a batch of "
        f"one ({span(spent)}). The price of a call is paid for each sample: a larger "
        "batch_size, or inputs stacked to one tensor, would share it.",
        spent / max(evidence.wall, 1), "Ops",
    )]  # fmt: skip


def _graphs_for_nothing(evidence: Evidence) -> list[Advice]:
    """Find ops that record steps of backward of which none runs."""
    trace, e = evidence.trace, evidence.trace.events
    made = (e["kind"] == OP) & (e["last_step"] > e["first_step"])
    parent = e["parent"]
    outer = np.flatnonzero(made & ~((parent >= 0) & made[parent]))
    ran = np.unique(e["first_step"][e["kind"] == NODE])
    runs_after = np.searchsorted(ran, e["last_step"][outer], "right")
    idle = outer[runs_after == np.searchsorted(ran, e["first_step"][outer], "right")]
    spent = int(trace.duration[idle].sum())
    share = spent / max(evidence.wall, 1)
    if len(idle) < FEW or spent < 0.1 * int(trace.own[e["kind"] != RANGE].sum()):
        return []
    return [Advice(
        f"{percent(share)} of the time ({span(spent)}) is in {len(idle):,} ops"
        f"{_place(trace, idle)} that keep what backward needs, and no backward runs them. An "
        "evaluation in `with no_grad():` or `inference_mode()` takes less memory, and less time.",
        share, "Lines",
    )]  # fmt: skip


RULES: tuple[Callable[[Evidence], list[Advice]], ...] = (
    _numbers_read,
    _batch_of_one,
    _graphs_for_nothing,
)
