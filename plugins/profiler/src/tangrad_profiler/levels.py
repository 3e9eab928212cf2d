"""The timeline at several levels of detail, so that ten million events can be looked at.

Level 0 is drawn at once and goes into the page as it is. A level has cells of time; what is longer
than a cell stands for itself, what is shorter is added up cell by cell. Behind the levels, all
events lie in chunks by time, packed, which the page unpacks where somebody looks closely.
"""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np

from tangrad_profiler.exports import thread_name
from tangrad_profiler.trace import Trace

CELLS = (1_000, 16_000)  # of the levels
CHUNK = 50_000  # events
MOST_EVENTS = 12_000_000  # of more, the shortest are in the levels only


class Timeline:
    """Rectangles: row, name, start and length, in nanoseconds since the first.

    Attributes:
        rows: (track, depth) of each row. tracks, names: what they are called.
        row, name, start, length: columns, ordered by start.
    """

    def __init__(self, trace: Trace) -> None:
        e, k = trace.events, trace.kernels
        names, name = np.unique(_name_keys(trace), return_inverse=True)
        first = np.zeros(len(names), np.int64)
        first[name] = np.arange(len(trace))
        self.names = [trace.name(int(i)) for i in first] if len(trace) else []
        tracks: dict[Any, int] = {}
        # The thread that began first is the program's; others are told by their order.
        called: dict[int | None, str] = {
            t: f"thread {k + 1}" if k else "main thread" for k, t in enumerate(trace.threads)
        }
        for t in np.unique(e["thread"][e["thread"] < 0]).tolist():
            first_there = int(np.argmax(e["thread"] == t))
            called[t] = f"{trace.name(first_there)} (process {-t})"
        track = _numbered(e["thread"], tracks, lambda t: thread_name(int(t), called))
        stream = k["allocator"] * 1_000_003 + k["stream"]
        lanes = _numbered(stream, tracks, lambda s: _lane(trace, int(s)))
        known = k["event"] >= 0
        depth = np.concatenate([trace.depth, np.zeros(len(stream), np.int64)])
        self.tracks = list(tracks)
        start = np.concatenate([e["start"], k["start"]])
        length = np.concatenate([trace.duration, k["end"] - k["start"]])
        kernel_names = np.zeros(len(stream), np.int64)
        kernel_names[known] = name[k["event"][known]]
        name = np.concatenate([name, kernel_names])
        keys = np.concatenate([track, lanes]) * 4096 + np.minimum(depth, 4095)
        found, row = np.unique(keys, return_inverse=True)
        self.rows = [(int(key) // 4096, int(key) % 4096) for key in found]
        order = np.argsort(start, kind="stable")
        self.began = int(start.min()) if len(start) else 0
        self.row, self.name = row[order], name[order]
        self.start, self.length = start[order] - self.began, length[order]
        self.span = int((self.start + self.length).max()) if len(start) else 1

    def __len__(self) -> int:
        return len(self.start)


def _name_keys(trace: Trace) -> Any:
    e = trace.events
    return (e["name"] * 8 + e["kind"]) * 8 + np.where(e["kind"] == 5, e["first_step"], 0)


def _lane(trace: Trace, key: int) -> str:
    allocator, stream = divmod(key, 1_000_003)
    return f"{trace.devices.get(allocator, 'device')} stream {stream}"


def _numbered(values: Any, known: dict[Any, int], name: Any) -> Any:
    """Number values in the order of their appearance, by their names."""
    found, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    numbers = np.zeros(len(found), np.int64)
    for k in np.argsort(first).tolist():
        numbers[k] = known.setdefault(name(found[k]), len(known))
    return numbers[inverse]


def level(t: Timeline, cells: int) -> dict[str, Any]:
    """Return the columns of a level: row, name, start, length, and how many events each is."""
    cell = max(1, -(-t.span // cells))
    long = t.length >= cell
    short = np.flatnonzero(~long)
    places = t.row[short] * (cells + 1) + t.start[short] // cell
    # In each cell: all lengths, how many, and the name of the longest.
    order = np.lexsort((t.length[short], places))
    places, short = places[order], short[order]
    ends = np.flatnonzero(np.append(places[1:] != places[:-1], True)) if len(places) else places
    begins = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
    sums = np.add.reduceat(t.length[short], begins) if len(begins) else begins
    columns = {
        "row": np.concatenate([t.row[long], places[ends] // (cells + 1)]),
        "name": np.concatenate([t.name[long], t.name[short[ends]]]),
        "start": np.concatenate([t.start[long], (places[ends] % (cells + 1)) * cell]),
        "length": np.concatenate([t.length[long], np.minimum(sums, cell)]),
        "count": np.concatenate([np.ones(int(long.sum()), np.int64), ends - begins + 1]),
    }
    order = np.argsort(columns["start"], kind="stable")
    return {"cell": cell, **{key: column[order] for key, column in columns.items()}}


def listed(columns: dict[str, Any]) -> dict[str, Any]:
    """Return a level as lists."""
    return {k: v if isinstance(v, int) else v.tolist() for k, v in columns.items()}


def packed(columns: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return (what a reader needs to know, text) of columns ordered by start.

    The text is base64 of zlib of columns of 32 unsigned bits: starts as differences in units.
    """
    start, length = columns["start"], columns["length"]
    base = int(start[0]) if len(start) else 0
    widest = max(int(start[-1]) - base, int(length.max())) if len(start) else 0
    unit = max(1, -(-widest // (2**32 - 1)))
    steps = np.diff((start - base) // unit, prepend=0)
    names = [n for n in ("row", "name", "count") if n in columns]
    table = np.stack([steps, length // unit, *(columns[n] for n in names)]).astype("<u4")
    text = base64.b64encode(zlib.compress(table.tobytes(), 6)).decode()
    end = int((start + length).max()) if len(start) else 0
    head = {"base": base, "unit": unit, "size": len(start), "end": end, "columns": names}
    return head, text


def chunks(t: Timeline) -> tuple[list[dict[str, Any]], list[str], int]:
    """Return (heads, texts) of all events by time, and how many were left out."""
    chosen = np.arange(len(t))
    if len(t) > MOST_EVENTS:
        chosen = np.sort(np.argpartition(-t.length, MOST_EVENTS)[:MOST_EVENTS])
    heads, texts = [], []
    for at in range(0, len(chosen), CHUNK):
        part = chosen[at : at + CHUNK]
        columns = {"start": t.start[part], "length": t.length[part],
                   "row": t.row[part], "name": t.name[part]}  # fmt: skip
        head, text = packed(columns)
        heads.append(head)
        texts.append(text)
    return heads, texts, len(t) - len(chosen)
