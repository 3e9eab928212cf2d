"""One page that shows a profile: data and code in one file, without a server or a network."""

from __future__ import annotations

import json
import linecache
import os
from pathlib import Path
from typing import Any

import numpy as np

from tangrad_profiler.averages import averages_of
from tangrad_profiler.exports import open_text
from tangrad_profiler.trace import NODE, OP, Trace

# Of more events the shortest are left out of the timeline; sums have all of them.
MOST_EVENTS = 200_000
MOST_CHANGES = 20_000


def write_page(trace: Trace, path: str | os.PathLike[str], title: str = "tangrad profile") -> None:
    """Write the page.

    Raises:
        OSError: the file cannot be written; what was profiled is kept.
    """
    template = Path(__file__).with_name("page.html").read_text("utf-8")
    data = json.dumps(page_data(trace, title), separators=(",", ":"))
    # Within a script no text may end the script.
    with open_text(path) as file:
        file.write(template.replace("/*DATA*/null", data.replace("</", "<\\/")))


def page_data(trace: Trace, title: str) -> dict[str, Any]:
    """Return all that the page shows."""
    return {
        "title": title,
        "partial": trace.partial,
        "ops": _ops(trace),
        "timeline": _timeline(trace),
        "modules": _tree(trace, [_module_of(trace, i) for i in range(len(trace))]),
        "flames": _tree(trace, [_stack_of(trace, i) for i in range(len(trace))]),
        "lines": _lines(trace),
        "memory": _memory(trace),
        "advice": advice(trace),
    }


def _ops(trace: Trace) -> list[list[Any]]:
    rows = sorted(averages_of(trace), key=lambda r: -r.self_cpu_time_total)
    return [
        [
            r.key,
            r.count,
            round(r.self_cpu_time_total, 1),
            round(r.cpu_time_total, 1),
            r.self_cpu_memory_usage,
            r.flops,
        ]
        for r in rows
    ]


def _timeline(trace: Trace) -> dict[str, Any]:
    e = trace.events
    chosen = np.arange(len(trace))
    if len(chosen) > MOST_EVENTS:
        chosen = np.sort(np.argsort(-trace.duration)[:MOST_EVENTS])
    names: dict[str, int] = {}
    threads = {int(t): k for k, t in enumerate(dict.fromkeys(e["thread"].tolist()))}
    rows = [
        [
            names.setdefault(trace.name(i), len(names)),
            threads[int(e["thread"][i])],
            int(trace.depth[i]),
            int(e["start"][i]),
            int(trace.duration[i]),
        ]
        for i in chosen.tolist()
    ]
    return {
        "names": list(names),
        "threads": list(threads),
        "events": rows,
        "left_out": len(trace) - len(chosen),
    }


def _module_of(trace: Trace, i: int) -> tuple[str, ...]:
    path = trace.module_path(i)
    return (*(path.split(".") if path else ()), trace.name(i))


def _stack_of(trace: Trace, i: int) -> tuple[str, ...]:
    frames = reversed(trace.frames(i))
    return (
        *(f"{name} ({os.path.basename(file)}:{line})" for file, name, line in frames),
        trace.name(i),
    )


def _tree(trace: Trace, paths: list[tuple[str, ...]]) -> list[Any]:
    """Sum own times and memory over paths: [name, nanoseconds, bytes, children]."""
    root: list[Any] = ["", 0, 0, {}]
    for i, path in enumerate(paths):
        own, memory, node = int(trace.own[i]), int(trace.own_memory[i]), root
        for part in ("", *path):
            if part:
                node = node[3].setdefault(part, [part, 0, 0, {}])
            node[1] += own
            node[2] += memory
    return _listed(root)


def _listed(node: list[Any]) -> list[Any]:
    children = sorted(node[3].values(), key=lambda child: -child[1])
    return [node[0], node[1], node[2], [_listed(child) for child in children]]


def _lines(trace: Trace) -> list[list[Any]]:
    """Sum own times over the innermost lines outside of this framework, with their text."""
    found: dict[tuple[str, int], list[int]] = {}
    core = os.sep + "tangrad" + os.sep
    for i in range(len(trace)):
        frames = trace.frames(i)
        own = next((f for f in frames if core not in f[0]), frames[0] if frames else None)
        if own is not None:
            row = found.setdefault((own[0], own[2]), [0, 0])
            row[0] += int(trace.own[i])
            row[1] += 1
    return [
        [file, line, ns, count, linecache.getline(file, line).strip()]
        for (file, line), (ns, count) in sorted(found.items(), key=lambda item: -item[1][0])
    ]


def _memory(trace: Trace) -> dict[str, Any]:
    c = trace.changes
    order = np.argsort(c["time"], kind="stable")
    held: dict[int, int] = {}
    curve: list[list[int]] = []
    total = peak = 0
    for i in order.tolist():
        allocator, now = int(c["allocator"][i]), int(c["allocated"][i])
        total += now - held.get(allocator, 0)
        held[allocator] = now
        peak = max(peak, total)
        curve.append([int(c["time"][i]), total])
    step = max(1, len(curve) // MOST_CHANGES)
    # Of each stretch the highest point stays, so that the peak is on the curve.
    curve = [max(curve[k : k + step], key=lambda p: p[1]) for k in range(0, len(curve), step)]
    return {"curve": curve, "peak": peak, "at_peak": _at_peak(trace)}


def _at_peak(trace: Trace) -> list[list[Any]]:
    """Return what was held at the peak, by the op that it was made in."""
    c = trace.changes
    order = np.argsort(c["time"], kind="stable")
    sizes = np.cumsum(c["nbytes"][order])
    if not len(sizes):
        return []
    live: dict[tuple[int, int], tuple[int, int]] = {}
    for i in order[: int(np.argmax(sizes)) + 1].tolist():
        key = (int(c["allocator"][i]), int(c["address"][i]))
        if c["nbytes"][i] > 0:
            live[key] = (int(c["nbytes"][i]), int(c["event"][i]))
        else:
            live.pop(key, None)
    found: dict[str, int] = {}
    for nbytes, event in live.values():
        name = trace.name(event) if event >= 0 else "outside of ops"
        found[name] = found.get(name, 0) + nbytes
    return [[name, nbytes] for name, nbytes in sorted(found.items(), key=lambda item: -item[1])]


def advice(trace: Trace) -> list[str]:
    """Return what the data suggest, each with its figures; nothing where nothing stands out."""
    e, found = trace.events, []
    if not len(trace):
        return []
    top = (trace.depth == 0) & (e["kind"] != 0)
    wall = int(e["end"].max() - e["start"].min())
    busy = int(trace.duration[top].sum())
    if wall and busy < 0.7 * wall:
        found.append(
            f"{100 * (1 - busy / wall):.0f} % of the time ({(wall - busy) / 1e6:.1f} of "
            f"{wall / 1e6:.1f} ms) no op was running: Python, data loading or waiting."
        )
    ops = np.flatnonzero((e["kind"] == OP) | (e["kind"] == NODE))
    small = ops[trace.own[ops] < 5_000]
    share = trace.own[small].sum() / max(int(trace.own[ops].sum()), 1)
    if len(ops) and share > 0.5:
        found.append(
            f"{100 * share:.0f} % of the ops' time is in {len(small)} calls of less than 5 us "
            "each: larger batches, or fewer and fused ops, would help."
        )
    found += _hot_line(trace)
    return found


def _hot_line(trace: Trace) -> list[str]:
    lines = _lines(trace)
    total = sum(row[2] for row in lines)
    if not lines or lines[0][2] < 0.3 * total:
        return []
    file, line, ns, count, text = lines[0]
    return [
        f"{100 * ns / total:.0f} % of the time ({ns / 1e6:.1f} ms in {count} calls) comes from one "
        f"line, {os.path.basename(file)}:{line}: {text}"
    ]
