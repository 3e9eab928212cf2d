"""A history of memory: what was allocated and released by which line, while the program goes on.

PyTorch's `torch.cuda.memory._record_memory_history` and its kin, for the memory of every device.
While one is recorded, an error for want of memory names the lines that hold most.
"""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tangrad.plugin import accounts_of_memory, allocator_of, allocators
from tangrad_profiler import _record
from tangrad_profiler.machine import this_machine
from tangrad_profiler.memory import FOREVER, KINDS, Blocks, blocks_of
from tangrad_profiler.page import write_page
from tangrad_profiler.recording import Recording
from tangrad_profiler.trace import Frame, Trace
from tangrad_profiler.views import own_frame

_SHOWN = 5
_recording: list[Recording] = []
_most: list[int] = []


def record_memory_history(
    enabled: str | None = "all", *, max_entries: int = sys.maxsize, stacks: bool = True
) -> None:
    """Begin to record what the calling thread and those it starts allocate, or stop.

    Args:
        enabled: "all" or "state" begins, None stops and forgets.
        max_entries: how many of the latest changes `memory_snapshot` tells; the record itself
            keeps a few bytes for each.
        stacks: record the lines of the program, too.

    Raises:
        ValueError: `enabled` is something else.
        RuntimeError: a profiler is running, which records memory itself (`profile_memory=True`).
    """
    if enabled not in ("all", "state", None):
        raise ValueError(
            f"record_memory_history: enabled={enabled!r}; 'all' or 'state' begins, None stops"
        )
    _stop()
    if enabled is None:
        return
    recording = Recording(memory=True, stacks=stacks, modules=True, kernels=False)
    recording.begin()
    _recording.append(recording)
    _most.append(max_entries)
    accounts_of_memory.append(_account)


def _stop() -> None:
    if _recording:
        accounts_of_memory.remove(_account)
        _most.clear()
        _recording.pop().halt()


def _trace() -> Trace:
    if not _recording:
        raise RuntimeError(
            "no history of memory is recorded; call tangrad.profiler.record_memory_history() "
            "before what you want to know of"
        )
    recording = _recording[-1]
    recording.drain()
    return Trace.of_records(
        recording._kept,
        _record.tables(),
        _record.clock(),
        recording.options,
        machine=this_machine(),
    )


def memory_snapshot() -> dict[str, Any]:
    """Return what all allocators hold, and the changes so far, in PyTorch's format.

    Returns:
        {"segments": segments, each with its blocks, "device_traces": a list for each device of
        changes, each with "action" ("alloc" or "free_completed"), "addr", "size", "time_us",
        "frames" (innermost first) and "op"}. Of a history that is not recorded the traces are
        empty.
    """
    devices = sorted(allocators().items(), key=lambda pair: str(pair[1]))
    segments = []
    for _, device in devices:
        allocator = allocator_of(device)
        if allocator is not None:
            segments += [{"device": str(device), **row} for row in allocator.snapshot()]
    if not _recording:
        return {"segments": segments, "device_traces": [[] for _ in devices]}
    trace = _trace()
    told = [_changes(trace, number)[-_most[-1] :] for number, _ in devices]
    return {"segments": segments, "device_traces": told}


def _changes(trace: Trace, number: int) -> list[dict[str, Any]]:
    c, found = trace.changes, []
    for k in np.flatnonzero(c["allocator"] == number).tolist():
        event, nbytes = int(c["event"][k]), int(c["nbytes"][k])
        found.append({
            "action": "alloc" if nbytes > 0 else "free_completed",
            "addr": int(c["address"][k]),
            "size": abs(nbytes),
            "time_us": int(c["time"][k]) // 1000,
            "frames": [_told(frame) for frame in trace.frames(event)] if event >= 0 else [],
            "op": trace.name(event) if event >= 0 else "",
        })  # fmt: skip
    return found


def _told(frame: Frame) -> dict[str, Any]:
    file, function, line = frame
    return {"filename": file, "name": function, "line": line}


def dump_memory_snapshot(path: str | os.PathLike[str] = "dump_snapshot.pickle") -> None:
    """Write a snapshot: as a page of HTML that needs nothing else, or pickled as PyTorch does.

    Args:
        path: a file; a page if its name ends with ".html".

    Raises:
        RuntimeError: a page is asked for, and no history is recorded.
        OSError: the file cannot be written.
    """
    if Path(path).suffix == ".html":
        write_page(_trace(), path, "tangrad memory", first="Memory")
        return
    with open(path, "wb") as file:
        pickle.dump(memory_snapshot(), file)


def holders(device: Any) -> list[tuple[int, str, str]]:
    """Return what holds a device's memory, the largest first: (bytes, kind, made by what).

    Args:
        device: whose memory.

    Raises:
        RuntimeError: no history is recorded.
    """
    trace = _trace()
    blocks = blocks_of(trace)
    numbers = [number for number, own in allocators().items() if own == device]
    alive = np.flatnonzero((blocks.end == FOREVER) & np.isin(blocks.allocator, numbers))
    sums: dict[tuple[str, str], int] = {}
    for i in alive.tolist():
        key = KINDS[blocks.kind[i]], _made_by(trace, blocks, i)
        sums[key] = sums.get(key, 0) + int(blocks.nbytes[i])
    rows = [(nbytes, kind, place) for (kind, place), nbytes in sums.items()]
    return sorted(rows, key=lambda row: (-row[0], row[2]))


def _made_by(trace: Trace, blocks: Blocks, i: int) -> str:
    event = int(blocks.event[i])
    if event < 0:
        return "outside of ops" if blocks.start[i] >= 0 else "before the history"
    path, frame = trace.module_path(event), own_frame(trace.frames(event))
    place = f" at {frame[0]}:{frame[2]}" if frame else ""
    return trace.name(event) + (f" in {path}" if path else "") + place


def _account(device: Any) -> list[str]:
    """Return the sentence that an error for want of memory adds."""
    rows = [
        f"{nbytes:,} bytes of {kind} by {place}" for nbytes, kind, place in holders(device)[:_SHOWN]
    ]
    return [f"Largest by line: {'; '.join(rows)}."] if rows else []
