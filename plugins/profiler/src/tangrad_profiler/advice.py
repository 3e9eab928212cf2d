"""What a trace suggests to do, each with its figures; silent where nothing stands out."""

from __future__ import annotations

import os
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from tangrad import nn
from tangrad_profiler import habits
from tangrad_profiler.evidence import Advice, Evidence, percent, span
from tangrad_profiler.memory import KINDS
from tangrad_profiler.roofline import kind_of
from tangrad_profiler.trace import ELSEWHERE, MODULE, NODE, OP, RANGE, Trace
from tangrad_profiler.views import lines_table, own_frame

WORTHWHILE = 16 << 20  # bytes: less is no reason to compute again
# What processes that train together do, named "engine:collective".
COLLECTIVES = {
    "all_reduce", "reduce", "broadcast", "all_gather", "gather", "scatter", "reduce_scatter",
    "all_to_all", "all_to_all_single", "barrier",
}  # fmt: skip
SMALL = 5_000  # nanoseconds: in shorter calls, most is the launch


def advice(evidence: Evidence) -> list[Advice]:
    """Return what stands out, the largest share first."""
    if not len(evidence.trace):
        return []
    found = [a for rule in RULES for a in rule(evidence)]
    # Time first: a share of the peak is no share of the time.
    return sorted(found, key=lambda a: (a.view == "Memory", -a.share))


def _main(trace: Trace) -> Any:
    """Return which events are of the thread that began first, in this process."""
    return trace.events["thread"] == (trace.threads[0] if trace.threads else 0)


def _waiting_for_data(evidence: Evidence) -> list[Advice]:
    trace, wall = evidence.trace, evidence.wall
    loads = np.array([n.startswith("enumerate(DataLoader)") for n in trace.names] or [False])
    mine = (trace.events["kind"] == RANGE) & loads[trace.events["name"]] & _main(trace)
    waited = int(trace.duration[mine].sum())
    if waited < 0.1 * wall:
        return []
    text = (
        f"{percent(waited / wall)} of the time ({span(waited)} of {span(wall)}) the loop waits "
        f"for data, {span(waited / max(int(mine.sum()), 1))} a batch. "
    )
    workers = trace.events["first_step"] == ELSEWHERE
    workers &= trace.events["kind"] == RANGE
    if workers.any():
        count = len(np.unique(trace.events["thread"][workers]))
        busy = trace.duration[workers].sum() / (count * wall)
        text += (
            f"Its {count} worker processes are busy {percent(busy)} of the time: "
            + ("more of them, or less work for a sample, would help."
               if busy > 0.6 else "a larger prefetch_factor or smaller batches would help.")
        )  # fmt: skip
    else:
        text += (
            "It loads in the training process: num_workers=2 would do so beside it, and at best "
            f"take {percent(waited / wall)} off."
        )
    return [Advice(text, waited / wall, "Timeline")]


def _waiting_for_ranks(evidence: Evidence) -> list[Advice]:
    trace, wall, e = evidence.trace, evidence.wall, evidence.trace.events
    named = lambda test: np.array([test(n) for n in trace.names] or [False])[e["name"]]  # noqa: E731
    phases, main = e["kind"] == RANGE, _main(trace)
    work = phases & named(lambda n: n.partition(":")[2] in COLLECTIVES)
    waits = main & phases & named(lambda n: n.startswith("wait for "))
    taken = int(trace.duration[work].sum())
    # A wait within a wait is one.
    outer = e["parent"]
    inside = (outer >= 0) & waits[outer]
    exposed = int(trace.duration[(waits & ~inside) | (work & main)].sum())
    if exposed < 0.1 * wall or not taken:
        return []
    hidden = max(0.0, 1 - exposed / taken)
    return [Advice(
        f"{percent(exposed / wall)} of the time ({span(exposed)} of {span(wall)}) this rank "
        f"waits for other ranks: {int(work.sum())} collectives take {span(taken)}, of which "
        f"{percent(hidden)} are hidden behind its own work. More work on each rank between two "
        "of them, buckets of another size, or a hook that compresses gradients would help.",
        exposed / wall, "Timeline",
    )]  # fmt: skip


def _no_op_running(evidence: Evidence) -> list[Advice]:
    trace, wall, e = evidence.trace, evidence.wall, evidence.trace.events
    main = _main(trace)
    # Ops and steps of backward, and phases of the core; own ranges and modules are the program's.
    known = (e["kind"] != RANGE) | (e["first_step"] == 3)
    outer = trace.inherited(np.where(known, np.arange(len(trace)), -1))
    parent = e["parent"]
    top = known & main & ~((parent >= 0) & (outer[parent] >= 0))
    idle = 1 - int(trace.duration[top].sum()) / wall if wall else 0
    if idle < 0.3:
        return []
    return [Advice(
        f"{percent(idle)} of the time ({span(idle * wall)} of {span(wall)}) no op was running: "
        "Python between the ops, input and output, or waiting. Put record_function around your own "
        "steps to see which.", idle, "Timeline",
    )]  # fmt: skip


def _bound_by_launches(evidence: Evidence) -> list[Advice]:
    trace, e = evidence.trace, evidence.trace.events
    ops = np.flatnonzero((e["kind"] == OP) | (e["kind"] == NODE))
    small = ops[trace.own[ops] < SMALL]
    total = max(int(trace.own[ops].sum()), 1)
    spent = int(trace.own[small].sum())
    if not len(ops) or spent < 0.4 * total:
        return []
    return [Advice(
        f"{percent(spent / total)} of the ops' time ({span(spent)}) is in {len(small):,} "
        f"calls of less than {SMALL // 1000} us each: the price of a call, not of its work. "
        "Larger batches, or fewer and fused ops, would help.", spent / max(evidence.wall, 1), "Ops",
    )]  # fmt: skip


def _hot_line(evidence: Evidence) -> list[Advice]:
    lines = lines_table(evidence.trace, evidence.groups)
    total = sum(row[2] for row in lines)
    if not lines or lines[0][2] < 0.3 * total:
        return []
    file, line, ns, count, text, _ = lines[0]
    return [Advice(
        f"{percent(ns / total)} of the ops' time ({span(ns)} in {count:,} calls) comes from one "
        f"line, {os.path.basename(file)}:{line}: {text}", ns / max(evidence.wall, 1), "Lines",
    )]  # fmt: skip


def _hot_module(evidence: Evidence) -> list[Advice]:
    """Find the program's own kind of module that most time is spent in, its members aside."""
    trace, e = evidence.trace, evidence.trace.events
    spent: dict[str, list[Any]] = {}
    total = max(int(trace.own.sum()), 1)
    for group in evidence.groups:
        at = int(trace.module[group.first])
        if at >= 0:
            path, _, kind = trace.names[e["name"][at]].rpartition("|")
            if hasattr(nn, kind):  # what it is made of
                continue
            row = spent.setdefault(kind, [0, set()])
            row[0] += group.own
            row[1].add(path)
    if not spent:
        return []
    kind, (ns, paths) = max(spent.items(), key=lambda item: item[1][0])
    if ns < 0.1 * total:
        return []
    named = [path or "the model itself" for path in sorted(paths)[:3]]
    some = ", ".join(named) + (", ..." if len(paths) > 3 else "")
    count = f"{len(paths)} module{'s' * (len(paths) > 1)}"
    return [Advice(
        f"{percent(ns / evidence.wall)} of the time ({span(ns)}), forward and backward, is spent "
        f"in {count} of the kind {kind} ({some}).", ns / evidence.wall, "Modules",
    )]  # fmt: skip


def _fusible_chains(evidence: Evidence) -> list[Advice]:
    """Find runs of pointwise ops, one after the other, on tensors of one shape."""
    trace, e = evidence.trace, evidence.trace.events
    chosen = np.flatnonzero((e["kind"] == OP) & (e["signature"] >= 0))
    pointwise = np.array([kind_of(n) == "pointwise" for n in trace.names] or [False])
    shapes = [_largest(s) for s in trace.signatures]
    chains: dict[tuple[Any, ...], list[Any]] = {}
    run: list[int] = []

    def close() -> None:
        if len(run) > 1:
            where = own_frame(trace.frames(run[0]))
            names = tuple(trace.names[e["name"][i]] for i in run)
            key = names, shapes[e["signature"][run[0]]], where
            chains.setdefault(key, []).append(trace.duration[run])
        run.clear()

    parent = e["parent"]
    outer = chosen[~((parent[chosen] >= 0) & (e["kind"][parent[chosen]] == OP))]
    for i in outer[:200_000].tolist():
        fits = pointwise[e["name"][i]]
        if run and not (
            fits
            and e["thread"][i] == e["thread"][run[0]]
            and parent[i] == parent[run[0]]
            and shapes[e["signature"][i]] == shapes[e["signature"][run[0]]]
        ):
            close()
        if fits:
            run.append(i)
    close()
    found = []
    for (names, shape, where), times in chains.items():
        # The longest op stays. By medians: one that was interrupted is not the longest.
        each, spent, count = np.median(times, axis=0), float(np.sum(times)), len(times)
        gain = spent * float(1 - each.max() / max(each.sum(), 1))
        share = gain / max(evidence.wall, 1)
        if gain > 0.04 * int(trace.own.sum() - trace.own[e["kind"] == RANGE].sum()):
            place = f" at {os.path.basename(where[0])}:{where[2]}" if where else ""
            told = " + ".join(names[:6]) + (f" + {len(names) - 6} more" if len(names) > 6 else "")
            found.append(Advice(
                f"{told}{place}, on {list(shape)}, are {len(names)} passes over memory, {count:,} "
                f"times, {span(spent)} in all; as one fused op they would save about "
                f"{span(gain)} ({percent(share)} of the time).", share, "Lines",
            ))  # fmt: skip
    return sorted(found, key=lambda a: -a.share)[:3]


def _largest(signature: tuple[Any, ...]) -> tuple[int, ...]:
    shapes = [s for s, d in zip(*signature[:2], strict=False) if d and not any(map(_is_list, s))]
    return tuple(max(shapes, key=lambda s: prod(s), default=()))


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _recomputation(evidence: Evidence) -> list[Advice]:
    """Find the module whose activations at the peak cost least to compute again."""
    trace, blocks = evidence.trace, evidence.blocks
    if blocks is None or not blocks.peak[1]:
        return []
    e, peak = trace.events, blocks.peak[1]
    held = blocks.at_peak
    held = held[(blocks.kind[held] == KINDS.index("activation")) & (blocks.event[held] >= 0)]
    modules = (e["kind"] == RANGE) & (e["first_step"] == MODULE)
    bytes_of: dict[str, int] = {}
    for i in held.tolist():
        at = int(trace.module[blocks.event[i]])
        if at >= 0:
            path = trace.names[e["name"][at]].rpartition("|")[0]
            for depth in range(1, path.count(".") + 2):
                outer = ".".join(path.split(".")[:depth]) if path else ""
                bytes_of[outer] = bytes_of.get(outer, 0) + int(blocks.nbytes[i])
    best: Advice | None = None
    for path, nbytes in bytes_of.items():
        named = [k for k, n in enumerate(trace.names) if n.rpartition("|")[0] == path and "|" in n]
        runs = modules & np.isin(e["name"], named)
        if not runs.any():  # a list of modules has no forward that could run again
            continue
        again = float(trace.duration[runs].sum())
        share, cost = nbytes / peak, again / max(evidence.wall, 1)
        if (
            path
            and nbytes >= WORTHWHILE
            and share > 0.1
            and cost < 0.3
            and (best is None or share - cost > best.share)
        ):
            best = Advice(
                f"At the peak of {peak / 2**20:.1f} MiB, {nbytes / 2**20:.1f} MiB "
                f"({percent(share)}) are activations of {path} that wait for backward. Computing "
                f"them again (utils.checkpoint) would free them for {percent(cost)} more time.",
                share - cost, "Memory",
            )  # fmt: skip
    return [best] if best is not None else []


def _far_from_the_limit(evidence: Evidence) -> list[Advice]:
    points = [p for p in evidence.points if p.seconds * 1e9 > 0.1 * evidence.wall]
    points = [p for p in points if p.share < 0.3 and p.seconds / p.calls > 20e-6]
    if not points:
        return []
    p = max(points, key=lambda p: p.lost)
    return [Advice(
        f"{p.name} on {p.shapes} takes {p.seconds / p.calls * 1e6:.0f} us a call, {p.calls:,} "
        f"times; {p.flops:,} operations on {p.nbytes:,} bytes need {p.least * 1e6:.0f} us on this "
        f"machine: it reaches {percent(p.share)} of the limit, and {span(1e9 * p.lost)} are "
        "lost.",
        1e9 * p.lost / max(evidence.wall, 1), "Roofline",
    )]  # fmt: skip


def _waiting_threads(evidence: Evidence) -> list[Advice]:
    trace, e = evidence.trace, evidence.trace.events
    main, found = _main(trace), []
    for thread in np.unique(e["thread"][~main & (e["thread"] >= 0)]).tolist():
        mine = (e["thread"] == thread) & (trace.depth == 0)
        alive = int(e["end"][mine].max() - e["start"][mine].min())
        busy = int(trace.duration[mine].sum())
        if alive > 0.2 * evidence.wall and busy < 0.5 * alive:
            found.append(Advice(
                f"Thread {thread} had no op running {percent(1 - busy / alive)} of its "
                f"{span(alive)}: it waits, for a lock, a queue, or the interpreter.",
                (alive - busy) / max(evidence.wall, 1) / 10, "Timeline",
            ))  # fmt: skip
    return found


def _idle_devices(evidence: Evidence) -> list[Advice]:
    k, found = evidence.trace.kernels, []
    for number in np.unique(k["allocator"]).tolist():
        mine = np.flatnonzero(k["allocator"] == number)
        order = mine[np.argsort(k["start"][mine])]
        ends = np.maximum.accumulate(k["end"][order])
        gaps = np.maximum(k["start"][order][1:] - ends[:-1], 0).sum()
        length = int(ends[-1] - k["start"][order][0])
        if length and gaps > 0.3 * length:
            device = evidence.trace.devices.get(number, "device")
            found.append(Advice(
                f"{device} had nothing to do {percent(gaps / length)} of {span(length)}: the "
                "host does not give it work fast enough.",
                float(gaps) / max(evidence.wall, 1), "Timeline",
            ))  # fmt: skip
    return found


RULES: tuple[Callable[[Evidence], list[Advice]], ...] = (
    _waiting_for_data,
    _waiting_for_ranks,
    _no_op_running,
    _bound_by_launches,
    _hot_line,
    _hot_module,
    _fusible_chains,
    _recomputation,
    _far_from_the_limit,
    _waiting_threads,
    _idle_devices,
    *habits.RULES,
)
