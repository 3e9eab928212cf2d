"""One page that shows a profile: data and code in one file, without a server or a network."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from tangrad_profiler.advice import advice
from tangrad_profiler.evidence import Advice, Evidence, span
from tangrad_profiler.exports import open_text
from tangrad_profiler.levels import CELLS, Timeline, chunks, level, listed, packed
from tangrad_profiler.limits import Limits, limits
from tangrad_profiler.memory import KINDS, Blocks, blocks_of, held_by_kind
from tangrad_profiler.roofline import Point, roofline
from tangrad_profiler.trace import Trace
from tangrad_profiler.views import (
    flame_tree,
    groups,
    lines_table,
    module_tree,
    ops_table,
    own_frame,
    sources,
)

MOST_CHANGES = 8_000
MOST_POINTS = 300


def write_page(
    trace: Trace,
    path: str | os.PathLike[str],
    title: str = "tangrad profile",
    first: str = "",
) -> None:
    """Write the page.

    Args:
        first: the view that is shown at first; by default what there is advice for.

    Raises:
        OSError: the file cannot be written; what was profiled is kept.
    """
    here = Path(__file__).parent
    template = (here / "page.html").read_text("utf-8")
    data, texts = page_data(trace, title, first)
    # Within a script no text may end the script.
    told = json.dumps(data, separators=(",", ":")).replace("</", "<\\/")
    head, _, tail = template.partition("<!--chunks-->")
    with open_text(path) as file:
        file.write(head.replace("/*CODE*/", (here / "page.js").read_text("utf-8"), 1)
                   .replace("/*DATA*/null", told, 1))  # fmt: skip
        for name, text in texts.items():
            file.write(f'<script type="text/plain" id="{name}">{text}</script>\n')
        file.write(tail)


def page_data(trace: Trace, title: str, first: str = "") -> tuple[dict[str, Any], dict[str, str]]:
    """Return all that the page shows: what is drawn at once, and packed texts by their names."""
    evidence = _evidence(trace)
    found, blocks, points, known = evidence[1:]
    lines = lines_table(trace, found)
    timeline, texts = _timeline(trace)
    return {
        "title": title,
        "facts": _facts(trace),
        "partial": trace.partial,
        "first": first,
        "advice": [list(a) for a in advice(evidence)],
        "ops": ops_table(trace),
        "timeline": timeline,
        "modules": module_tree(trace, found),
        "flames": flame_tree(trace, found),
        "lines": [[_short(row[0]), *row[1:]] for row in lines],
        "sources": {_short(file): text for file, text in sources(lines).items()},
        "memory": _memory(trace, blocks),
        "roofline": _roofline(points, known),
    }, texts


def _facts(trace: Trace) -> str:
    """Return what was recorded, on what, and what percentages refer to."""
    e = trace.events
    lasted = span(int(e["end"].max() - e["start"].min())) if len(trace) else span(trace.length)
    here = len(trace.threads)
    others = len(np.unique(e["thread"][e["thread"] < 0]))
    who = f"{here} thread{'s' * (here != 1)}" + (f" and {others} other processes" if others else "")
    return (
        f"{lasted} from the first event to the last, of {who}; "
        f"{trace.machine or 'unknown machine'}. "
        "A percentage is of this time, unless its sentence names another whole."
    )


def _evidence(trace: Trace) -> Evidence:
    known = limits() if trace.options.get("shapes") else None
    return Evidence(
        trace,
        groups(trace),
        blocks_of(trace) if len(trace.changes["time"]) else None,
        roofline(trace, known) if known is not None else [],
        known,
    )


def _short(file: str) -> str:
    """Return a path as one would write it here."""
    here = os.getcwd() + os.sep
    return file.removeprefix(here)


def advice_of(trace: Trace) -> list[Advice]:
    """Return the advice that a page of a trace would show."""
    return advice(_evidence(trace))


def _timeline(trace: Trace) -> tuple[dict[str, Any], dict[str, str]]:
    t = Timeline(trace)
    fine, fine_text = packed(level_columns := level(t, CELLS[1]))
    heads, texts, left_out = chunks(t)
    return {
        "names": t.names,
        "tracks": t.tracks,
        "rows": t.rows,
        "span": t.span,
        "count": len(t),
        "left_out": left_out,
        "first": listed(level(t, CELLS[0])),
        "fine": {**fine, "cell": level_columns["cell"]},
        "chunks": heads,
    }, {"fine": fine_text, **{f"chunk{k}": text for k, text in enumerate(texts)}}


def _memory(trace: Trace, blocks: Blocks | None) -> dict[str, Any]:
    if blocks is None:
        return {"kinds": KINDS, "times": [], "held": [], "peak": 0, "when": 0, "at_peak": []}
    times, held = held_by_kind(blocks)
    begun = np.maximum(times, 0) - int(trace.events["start"].min() if len(trace) else 0)
    total = held.sum(axis=1)
    # Of each stretch the highest point stays, so that the peak is on the curve.
    step = max(1, len(total) // MOST_CHANGES)
    edges = np.arange(0, len(total), step)
    kept = np.array([a + int(np.argmax(total[a : a + step])) for a in edges.tolist()], np.int64)
    when, peak = blocks.peak
    return {
        "kinds": KINDS,
        "times": begun[kept].tolist(),
        "held": held[kept].tolist(),
        "peak": peak,
        "when": max(when, 0) - int(trace.events["start"].min() if len(trace) else 0),
        "at_peak": _at_peak(trace, blocks),
    }


def _at_peak(trace: Trace, blocks: Blocks) -> list[list[Any]]:
    """Return [what, bytes, kind, blocks] of what was held at the peak, by where it was made."""
    found: dict[tuple[str, str], list[int]] = {}
    for i in blocks.at_peak.tolist():
        event, kind = int(blocks.event[i]), KINDS[blocks.kind[i]]
        name = "outside of ops" if blocks.start[i] >= 0 else "before the profile"
        if event >= 0:
            frame = own_frame(trace.frames(event))
            place = f" at {os.path.basename(frame[0])}:{frame[2]}" if frame else ""
            path = trace.module_path(event)
            name = trace.name(event) + (f" in {path}" if path else "") + place
        row = found.setdefault((name, kind), [0, 0])
        row[0] += int(blocks.nbytes[i])
        row[1] += 1
    rows = [[name, nbytes, kind, count] for (name, kind), (nbytes, count) in found.items()]
    return sorted(rows, key=lambda row: -row[1])


def _roofline(points: list[Point], known: Limits | None) -> dict[str, Any]:
    if known is None:
        return {"points": [], "flops": 0, "bandwidth": [], "call": 0}
    return {
        "points": [
            [f"{p.name} {p.shapes}", p.calls, p.seconds, p.flops, p.nbytes, p.share, p.lost]
            for p in points[:MOST_POINTS]
        ],
        "flops": known.flops,
        "bandwidth": [list(row) for row in known.bandwidth],
        "call": known.call,
    }
