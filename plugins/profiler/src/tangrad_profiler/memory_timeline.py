"""Memory over time, in the files that PyTorch writes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import numpy as np

from tangrad_profiler.exports import open_text
from tangrad_profiler.memory import KINDS, blocks_of
from tangrad_profiler.page import write_page
from tangrad_profiler.trace import Trace

__all__ = ["memory_timeline"]


def memory_timeline(trace: Trace, path: str | os.PathLike[str], device: str | None = None) -> None:
    """Write memory over time, as PyTorch does.

    `.html` gives the page's view of memory. `.raw.json` and `.raw.json.gz` give rows of
    (nanoseconds, action, bytes, kind): action 1 is held before, 2 comes, 4 goes; kinds are
    PyTorch's numbers. Other names give [microseconds, bytes by kind], the kinds in PyTorch's order
    behind a zero, packed if they end in `.gz`.

    Args:
        device: such as "cpu"; of all devices by default.

    Raises:
        RuntimeError: memory was not recorded.
    """
    if not trace.options.get("memory"):
        raise RuntimeError(
            "export_memory_timeline: the profile has no memory; give profile_memory=True"
        )
    name = os.fspath(path)
    if name.endswith(".html"):
        write_page(trace, path, "memory", first="Memory")
        return
    rows = list(_raw_rows(trace, device))
    with open_text(path) as file:
        json.dump(rows if ".raw.json" in name else _coalesced(rows), file)


# Numbers of kinds in PyTorch's files; 7 is none of them.
_CATEGORY_OF_KIND = {
    "parameter": 0,
    "optimizer state": 1,
    "input": 2,
    "workspace": 3,
    "activation": 4,
    "gradient": 5,
    "before the profile": 7,
}
_PREEXISTING, _CREATE, _DESTROY = 1, 2, 4


def _raw_rows(trace: Trace, device: str | None) -> Iterator[tuple[int, int, int, int]]:
    blocks = blocks_of(trace)
    if device is not None:
        wanted = str(device).partition(":")[0]
        for number in np.unique(blocks.allocator).tolist():
            if trace.devices.get(number, "?").partition(":")[0] != wanted:
                blocks.nbytes[blocks.allocator == number] = 0
    times, sizes, kinds, _ = blocks.steps
    for when, nbytes, kind in zip(times.tolist(), sizes.tolist(), kinds.tolist(), strict=True):
        if nbytes:
            action = _PREEXISTING if when < 0 else _CREATE if nbytes > 0 else _DESTROY
            yield when, action, nbytes, _CATEGORY_OF_KIND[KINDS[kind]]


def _coalesced(rows: list[tuple[int, int, int, int]]) -> tuple[list[int], list[list[int]]]:
    times: list[int] = []
    sizes: list[list[int]] = []
    first = next((row[0] // 1000 for row in rows if row[0] >= 0), 0)
    for when, _, nbytes, category in rows:
        us = when // 1000 if when >= 0 else first
        if not times or us != times[-1]:
            times.append(us)
            sizes.append(list(sizes[-1]) if sizes else [0] * 9)
        sizes[-1][category + 1] += nbytes
    return times, sizes
