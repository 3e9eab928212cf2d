"""Sums of a trace by op, module, stack and line: what pages and advice show."""

from __future__ import annotations

import linecache
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

import tangrad
from tangrad_profiler.averages import averages_of
from tangrad_profiler.trace import Trace

# Frames that are not the program's: of this framework, and of what runs a program for it.
_PACKAGES = tuple(
    os.path.dirname(os.path.abspath(f)) + os.sep for f in (tangrad.__file__, __file__)
)
_INSTALLED = f"{os.sep}site-packages{os.sep}tangrad"
_RUNNERS = ("<frozen runpy>",)


def is_own(file: str) -> bool:
    """Return whether a file is the program's."""
    return not (file.startswith(_PACKAGES) or _INSTALLED in file or file in _RUNNERS)


@dataclass
class Group:
    """Events of one name, stack and module.

    Attributes:
        first: number of one of them. count, own, memory: how many, nanoseconds and bytes of all.
    """

    first: int
    count: int
    own: int
    memory: int


def groups(trace: Trace) -> list[Group]:
    """Return the groups of a trace, in the order of their first events."""
    if not len(trace):
        return []
    e, module = trace.events, trace.module
    path = np.where(module >= 0, e["name"][module], -1)
    keys = np.zeros(len(trace), np.int64)
    for column in (e["name"], e["kind"], trace.stack, path):
        _, column = np.unique(column, return_inverse=True)
        keys = np.unique(keys * (int(column.max()) + 1) + column, return_inverse=True)[1]
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    count = np.bincount(inverse)
    own, memory = np.zeros(len(first), np.int64), np.zeros(len(first), np.int64)
    np.add.at(own, inverse, trace.own)
    np.add.at(memory, inverse, trace.own_memory)
    return [
        Group(*map(int, row))
        for row in sorted(zip(first, count, own, memory, strict=True), key=lambda row: row[0])
    ]


OUTSIDE = "outside of ops"  # what Python does between them


def ops_table(trace: Trace) -> list[list[Any]]:
    """Return rows of [name, calls, own and whole microseconds, own bytes, operations]."""
    rows: list[list[Any]] = [
        [
            r.key,
            r.count,
            round(r.self_cpu_time_total, 1),
            round(r.cpu_time_total, 1),
            r.self_cpu_memory_usage,
            r.flops,
        ]
        for r in averages_of(trace)
    ]
    if trace.outside:
        passed = round(trace.outside / 1e3, 1)
        rows.append([OUTSIDE, 1, passed, passed, 0, 0])
    return sorted(rows, key=lambda row: -row[2])


def module_tree(trace: Trace, found: list[Group]) -> list[Any]:
    """Return the modules as a tree: [name with its class, nanoseconds, bytes, children]."""
    kinds = dict(n.rpartition("|")[::2] for n in trace.names if "|" in n)
    paths = []
    for group in found:
        parts = path.split(".") if (path := trace.module_path(group.first)) else []
        above = (".".join(parts[: n + 1]) for n in range(len(parts)))
        shown = (
            f"{p} ({kinds[a]})" if a in kinds else p for p, a in zip(parts, above, strict=True)
        )
        paths.append((*shown, trace.name(group.first)))
    return _tree(found, paths, trace.outside)


def flame_tree(trace: Trace, found: list[Group]) -> list[Any]:
    """Return the program's frames as a tree, outermost first, the event last."""
    paths = []
    for group in found:
        frames = (f for f in reversed(trace.frames(group.first)) if is_own(f[0]))
        lines = (f"{name} ({os.path.basename(file)}:{line})" for file, name, line in frames)
        paths.append((*lines, trace.name(group.first)))
    return _tree(found, paths, trace.outside)


def _tree(found: list[Group], paths: list[tuple[str, ...]], outside: int) -> list[Any]:
    root: list[Any] = ["", 0, 0, {}]
    if outside:
        found, paths = [*found, Group(-1, 1, outside, 0)], [*paths, (OUTSIDE,)]
    for group, path in zip(found, paths, strict=True):
        node = root
        for part in ("", *path):
            if part:
                node = node[3].setdefault(part, [part, 0, 0, {}])
            node[1] += group.own
            node[2] += group.memory
    return _listed(root)


def _listed(node: list[Any]) -> list[Any]:
    children = sorted(node[3].values(), key=lambda child: -child[1])
    return [node[0], node[1], node[2], [_listed(child) for child in children]]


def own_frame(frames: tuple[Any, ...]) -> Any:
    """Return the innermost frame outside of this framework, None where there are none."""
    return next((f for f in frames if is_own(f[0])), frames[0] if frames else None)


def lines_table(trace: Trace, found: list[Group]) -> list[list[Any]]:
    """Return rows of [file, line, nanoseconds, calls, text, bytes], the slowest line first."""
    rows: dict[tuple[str, int], list[int]] = {}
    for group in found:
        own = own_frame(trace.frames(group.first))
        if own is not None:
            row = rows.setdefault((own[0], own[2]), [0, 0, 0])
            row[0] += group.own
            row[1] += group.count
            row[2] += group.memory
    return [
        [file, line, ns, count, linecache.getline(file, line).strip(), memory]
        for (file, line), (ns, count, memory) in sorted(rows.items(), key=lambda r: -r[1][0])
    ]


def sources(lines: list[list[Any]], most: int = 6) -> dict[str, list[str]]:
    """Return the text of the files that most time is spent for."""
    time: dict[str, int] = {}
    for file, _, ns, *_ in lines:
        time[file] = time.get(file, 0) + ns
    files = sorted(time, key=lambda f: -time[f])[:most]
    return {f: [text.rstrip("\n") for text in linecache.getlines(f)][:5000] for f in files}
