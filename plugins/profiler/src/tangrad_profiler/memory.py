"""What memory is for: blocks, their lives, and their kinds over time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tangrad_profiler.recording import GRADIENT, OPTIMIZER_STATE, PARAMETER
from tangrad_profiler.trace import NODE, OP, PHASE, RANGE, Trace

# In PyTorch's order of its memory timeline, with what that has no name for at the end.
KINDS = (
    "parameter",
    "optimizer state",
    "input",
    "workspace",
    "activation",
    "gradient",
    "before the profile",
)
_NUMBER = {name: k for k, name in enumerate(KINDS)}
_OF_MARK = {
    PARAMETER: _NUMBER["parameter"],
    GRADIENT: _NUMBER["gradient"],
    OPTIMIZER_STATE: _NUMBER["optimizer state"],
}
FOREVER = np.iinfo(np.int64).max


@dataclass
class Blocks:
    """Blocks of memory, a column each.

    Attributes:
        allocator, nbytes: where and how large. start, end: its life in nanoseconds; -1 is before
            the profile, FOREVER is after. event: that it was made in, -1 for none.
        kind: number in `KINDS`.
    """

    allocator: Any
    address: Any
    nbytes: Any
    start: Any
    end: Any
    event: Any
    kind: Any

    @cached_property
    def steps(self) -> tuple[Any, Any, Any, Any]:
        """All changes in order: (times, bytes that came or went, kinds, all bytes afterwards)."""
        came, went = self.start >= 0, self.end < FOREVER
        times = np.concatenate([np.full((~came).sum(), -1), self.start[came], self.end[went]])
        sizes = np.concatenate([self.nbytes[~came], self.nbytes[came], -self.nbytes[went]])
        kinds = np.concatenate([self.kind[~came], self.kind[came], self.kind[went]])
        # What goes at the very time at which something comes goes first, as in the allocator.
        order = np.lexsort((sizes, times))
        return times[order], sizes[order], kinds[order], np.cumsum(sizes[order])

    @cached_property
    def peak(self) -> tuple[int, int]:
        """When most was held at once, and how much; (0, 0) if nothing was."""
        times, _, _, total = self.steps
        if not len(total):
            return 0, 0
        at = int(np.argmax(total))
        return int(times[at]), int(total[at])

    @cached_property
    def at_peak(self) -> Any:
        """The numbers of the blocks that were held then."""
        when = self.peak[0]
        return np.flatnonzero((self.start <= when) & (self.end > when))


def blocks_of(trace: Trace) -> Blocks:
    """Return the blocks of a trace, with what was held before it began."""
    paired = _paired(trace)
    kinds = _kinds(trace, paired)
    return _with_the_rest(trace, paired, kinds)


def _paired(trace: Trace) -> Blocks:
    """Pair what came with what went, address by address."""
    c = trace.changes
    number = np.arange(len(c["time"]))
    order = np.lexsort((number, c["time"], c["address"], c["allocator"]))
    column = {name: c[name][order] for name in c}
    same = np.zeros(len(order), bool)
    same[1:] = (column["address"][1:] == column["address"][:-1]) & (
        column["allocator"][1:] == column["allocator"][:-1]
    )
    came = column["nbytes"] > 0
    followed = np.append(same[1:] & came[:-1] & ~came[1:], False) if len(order) else came
    preceded = np.zeros(len(order), bool)
    preceded[1:] = followed[:-1]
    born = np.flatnonzero(came)
    end = np.full(len(order), FOREVER)
    end[:-1][followed[:-1]] = column["time"][1:][followed[:-1]]
    older = np.flatnonzero(~came & ~preceded)  # it went, and had come before the profile
    rows = np.concatenate([born, older])
    return Blocks(
        allocator=column["allocator"][rows],
        address=column["address"][rows],
        nbytes=np.abs(column["nbytes"][rows]),
        start=np.concatenate([column["time"][born], np.full(len(older), -1)]),
        end=np.concatenate([end[born], column["time"][older]]),
        event=np.concatenate([column["event"][born], np.full(len(older), -1)]),
        kind=np.zeros(len(rows), np.int64),
    )


def _kinds(trace: Trace, b: Blocks) -> Any:
    """Tell kinds by where blocks were made and how long they lived; marks come on top."""
    e = trace.events
    kind = np.full(len(b.nbytes), _NUMBER["before the profile"])
    new = b.start >= 0
    kind[new & (b.event < 0)] = _NUMBER["input"]
    made = new & (b.event >= 0)
    if not made.any():
        return kind
    event = b.event[made]
    index = np.arange(len(trace))
    parent_is_op = (e["parent"] >= 0) & (e["kind"][e["parent"]] == OP)
    outermost = trace.inherited(np.where((e["kind"] == OP) & ~parent_is_op, index, -1))
    phases = (e["kind"] == RANGE) & (e["first_step"] == PHASE)
    around = trace.inherited(np.where((e["kind"] == NODE) | phases, index, -1))
    top, stretch = outermost[event], around[event]
    found = np.full(len(event), _NUMBER["activation"])
    backward = (stretch >= 0) & (e["kind"][stretch] == NODE)
    found[backward] = _NUMBER["gradient"]
    optimizers = np.array([n.startswith("Optimizer.step#") for n in trace.names] or [False])
    phase = (stretch >= 0) & ~backward
    stepping = phase & optimizers[e["name"][stretch]]
    found[stepping] = _NUMBER["optimizer state"]
    found[phase & ~stepping] = _NUMBER["input"]
    # What does not outlive its op, its step of backward or its step of the optimizer.
    for holder, matters in ((top, top >= 0), (stretch, backward | stepping)):
        short = matters & (b.end[made] <= e["end"][holder])
        found[short] = _NUMBER["workspace"]
    kind[made] = found
    return kind


def _with_the_rest(trace: Trace, b: Blocks, kind: Any) -> Blocks:
    """Let marks tell kinds, and add what was held before the profile and never changed."""
    lives: dict[tuple[int, int], list[int]] = {}
    m = trace.marks
    marked = {(int(a), int(p)) for a, p in zip(m["allocator"], m["address"], strict=True)}
    for i in np.flatnonzero(np.isin(b.address, m["address"])).tolist():
        key = (int(b.allocator[i]), int(b.address[i]))
        if key in marked:
            lives.setdefault(key, []).append(i)
    older: dict[tuple[int, int], tuple[int, int]] = {}
    rows = zip(*(m[n].tolist() for n in ("time", "allocator", "address", "nbytes", "purpose")),
               strict=True)  # fmt: skip
    for time, allocator, address, nbytes, purpose in rows:
        mine = lives.get((allocator, address), ())
        for i in mine:
            if b.start[i] <= time < b.end[i]:
                kind[i] = _OF_MARK[purpose]
                break
        else:
            older.setdefault((allocator, address), (nbytes, _OF_MARK[purpose]))
    extra = [(a, p, n, k) for (a, p), (n, k) in older.items()]
    for allocator, held in _held_before(trace).items():
        known = sum(n for a, _, n, _ in extra if a == allocator)
        known += int(b.nbytes[(b.start < 0) & (b.allocator == allocator)].sum())
        if held > known:
            extra.append((allocator, 0, held - known, _NUMBER["before the profile"]))
    table = np.array(extra, np.int64).reshape(-1, 4)
    count = len(table)
    return Blocks(
        allocator=np.concatenate([b.allocator, table[:, 0]]),
        address=np.concatenate([b.address, table[:, 1]]),
        nbytes=np.concatenate([b.nbytes, table[:, 2]]),
        start=np.concatenate([b.start, np.full(count, -1)]),
        end=np.concatenate([b.end, np.full(count, FOREVER)]),
        event=np.concatenate([b.event, np.full(count, -1)]),
        kind=np.concatenate([kind, table[:, 3]]),
    )


def _held_before(trace: Trace) -> dict[int, int]:
    """Return the bytes of each allocator before its first change."""
    c, found = trace.changes, {}
    order = np.argsort(c["time"], kind="stable")
    allocators, first = np.unique(c["allocator"][order], return_index=True)
    for allocator, k in zip(allocators.tolist(), order[first].tolist(), strict=True):
        found[allocator] = int(c["allocated"][k] - c["nbytes"][k])
    return found


def held_by_kind(b: Blocks) -> tuple[Any, Any]:
    """Return the times of all changes, and the bytes of each kind after each: (times, kinds)."""
    times, sizes, kinds, _ = b.steps
    table = np.zeros((len(times), len(KINDS)), np.int64)
    table[np.arange(len(times)), kinds] = sizes
    return times, np.cumsum(table, axis=0)
