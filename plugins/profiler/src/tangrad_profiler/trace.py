"""What was recorded, as columns: events, changes of memory, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from tangrad_profiler import _record

OP, NODE, RANGE = 2, 4, 5  # tags of records
USER, STEP, MODULE, PHASE, ELSEWHERE = 0, 1, 2, 3, 4

# What stands in a record between the name of a range and its argument.
ARGUMENT = "\x1f"

Frame = tuple[str, str, int]

# Ops that PyTorch calls otherwise.
_CALLED = {"true_divide": "div"}


def op_name(name: str) -> str:
    """Return the name of an op as PyTorch's profiler writes it."""
    return "aten::" + _CALLED.get(name, name)


class Trace:
    """Events in the order of their beginning, a column each; times in nanoseconds.

    Attributes:
        events: structured by name: kind, name, thread, start, end, parent, signature, stack,
            first_step, last_step. Numbers refer to `names`, `signatures` and `stacks`, -1 is none.
        changes: of memory: thread, time, allocator, address, nbytes, allocated, event.
        marks: what blocks of memory are for: time, allocator, address, nbytes, purpose.
        kernels: what devices did by their own clocks: thread, event, allocator, stream, start, end.
        arguments: of ranges that have one, by the number of the event.
        partial: what is missing, or "".
        totals: of a run too long to keep, (kind, name, count, nanoseconds, own nanoseconds).
        length: nanoseconds from the beginning of the recording to its end.
        machine: what it was recorded on, in words; "" where that is not known.
    """

    def __init__(
        self,
        events: dict[str, Any],
        changes: dict[str, Any],
        names: Sequence[str],
        signatures: Sequence[Any],
        stacks: Sequence[tuple[Frame, ...]],
        options: dict[str, bool],
        partial: str = "",
        began: int = 0,
        totals: Sequence[tuple[int, int, int, int, int]] = (),
        marks: dict[str, Any] | None = None,
        kernels: dict[str, Any] | None = None,
        length: int = 0,
        machine: str = "",
    ) -> None:
        self.marks = marks if marks is not None else _columns(b"", _record.MARK_COLUMNS)
        self.kernels = kernels if kernels is not None else _columns(b"", _record.KERNEL_COLUMNS)
        self.events, self.changes = events, changes
        self.names, self.signatures, self.stacks = names, signatures, stacks
        self.options, self.partial, self.began = options, partial, began
        self.totals, self.length = totals, length
        self.machine = machine
        self.devices = _devices()
        self.arguments = self._taken_from_names()

    @classmethod
    def of_records(
        cls,
        records: Iterable[tuple[int, bytes]],
        tables: tuple[list[Any], ...],
        clock: tuple[int, int, int, int],
        options: dict[str, bool],
        partial: str = "",
        totals: Sequence[tuple[int, int, int, int, int]] = (),
        machine: str = "",
    ) -> Trace:
        """Read the records of a session.

        Args:
            records: (thread, bytes) in the order of their writing.
            tables: names, signatures and stacks, of which copies are kept.
            clock: ticks and nanoseconds at the beginning and at the end.
            machine: what they were recorded on, in words.
        """
        ticks0, ns0, ticks1, ns1 = clock
        names, signatures, stacks = tables
        scale = (ns1 - ns0) / (ticks1 - ticks0) if ticks1 > ticks0 else 1.0
        decoder = _record.Decoder(ticks0, scale)
        for ident, data in records:
            try:
                decoder.feed(ident, data)
            except _record.DamagedRecord as error:
                partial = partial or f"records of thread {ident} are damaged: {error}"
        event_rows, change_rows, unfinished = decoder.finish(ticks1)
        events = _columns(event_rows, _record.EVENT_COLUMNS)
        if unfinished and not partial:
            partial = f"{unfinished} events had not ended when the recording did"
        return cls(
            events,
            _columns(change_rows, _record.CHANGE_COLUMNS),
            list(names),
            list(signatures),
            list(stacks),
            options=options,
            partial=partial,
            began=ns0,
            totals=totals,
            marks=_columns(_packed(decoder.marks), _record.MARK_COLUMNS),
            kernels=_resolved(
                _columns(_packed(decoder.kernels), _record.KERNEL_COLUMNS), events["thread"]
            ),
            length=ns1 - ns0,
            machine=machine,
        )

    def _taken_from_names(self) -> dict[int, str]:
        """Let ranges that differ in their argument alone have one name; return the arguments."""
        split = {n: text.partition(ARGUMENT) for n, text in enumerate(self.names)}
        long = [n for n, (_, mark, _) in split.items() if mark]
        if not long:
            return {}
        self.names, column = list(self.names), self.events["name"].copy()
        found = {}
        for n in long:
            plain, _, argument = split[n]
            if plain not in self.names:
                self.names.append(plain)
            at = np.flatnonzero((self.events["name"] == n) & (self.events["kind"] == RANGE))
            column[at] = self.names.index(plain)
            found.update(dict.fromkeys(at.tolist(), argument))
        self.events = self.events | {"name": column}
        return found

    def __len__(self) -> int:
        return len(self.events["kind"])

    @cached_property
    def threads(self) -> list[int]:
        """The threads of this process in the order of their first events: the program's first."""
        e = self.events
        here = np.flatnonzero(e["thread"] >= 0)
        order = here[np.argsort(e["start"][here], kind="stable")]
        return list(dict.fromkeys(e["thread"][order].tolist()))

    @cached_property
    def duration(self) -> Any:
        """Time from the beginning of each event to its end."""
        return self.events["end"] - self.events["start"]

    @cached_property
    def own(self) -> Any:
        """Time of each event that is in none of the events within it."""
        own, parent = self.duration.copy(), self.events["parent"]
        inner = parent >= 0
        np.subtract.at(own, parent[inner], self.duration[inner])
        return own

    @cached_property
    def outside(self) -> int:
        """Nanoseconds of the recording in none of the events of the program's thread.

        With the own times of its events they add up to the length of the recording.
        """
        if self.totals:
            return max(0, self.length - sum(own for *_, own in self.totals))
        e = self.events
        mine = (e["parent"] < 0) & (e["thread"] == (self.threads[0] if self.threads else 0))
        return max(0, self.length - int(self.duration[mine].sum()))

    @cached_property
    def depth(self) -> Any:
        """How many events each is within."""
        parent = self.events["parent"]
        depth, at = np.zeros(len(parent), np.int64), parent.copy()
        while (inner := at >= 0).any():
            depth[inner] += 1
            at[inner] = parent[at[inner]]
        return depth

    @cached_property
    def own_memory(self) -> Any:
        """Bytes that came less those that went while an event, and none within it, was running."""
        return self._changed(np.ones(len(self.changes["event"]), bool))

    @cached_property
    def memory(self) -> Any:
        """The same with the events within."""
        return self._summed(self.own_memory)

    @cached_property
    def own_device_memory(self) -> Any:
        """What of `own_memory` is not the host's."""
        host = [n for n, device in self.devices.items() if device.partition(":")[0] == "cpu"]
        return self._changed(~np.isin(self.changes["allocator"], host))

    @cached_property
    def device_memory(self) -> Any:
        """The same with the events within."""
        return self._summed(self.own_device_memory)

    @property
    def other_devices(self) -> set[str]:
        """Devices other than the host of which something was recorded."""
        numbers = {*self.kernels["allocator"].tolist(), *self.changes["allocator"].tolist()}
        names = {self.devices.get(n, "device") for n in numbers}
        return {name for name in names if name.partition(":")[0] != "cpu"}

    def _changed(self, chosen: Any) -> Any:
        """Add up the chosen changes of memory by the innermost event that was running."""
        own = np.zeros(len(self), np.int64)
        event = self.changes["event"]
        within = chosen & (event >= 0)
        np.add.at(own, event[within], self.changes["nbytes"][within])
        return own

    @cached_property
    def own_device(self) -> Any:
        """Nanoseconds that devices worked for each event, and for none within it."""
        own = np.zeros(len(self), np.int64)
        k = self.kernels
        within = k["event"] >= 0
        np.add.at(own, k["event"][within], (k["end"] - k["start"])[within])
        return own

    @cached_property
    def device_time(self) -> Any:
        """The same with the events within."""
        return self._summed(self.own_device)

    @cached_property
    def flops(self) -> Any:
        """Floating-point operations of each op that has a formula, and is in none that has one."""
        from tangrad_profiler.flops import flops_of

        known: dict[tuple[int, int], int] = {}
        found = np.zeros(len(self), np.int64)
        events = self.events
        for i in np.flatnonzero((events["kind"] == OP) & (events["signature"] >= 0)):
            key = (int(events["name"][i]), int(events["signature"][i]))
            if key not in known:
                known[key] = flops_of(self.names[key[0]], self.signatures[key[1]])
            found[i] = known[key]
        within = np.zeros(len(self), bool)  # one that is counted
        for level in range(1, int(self.depth.max(initial=0)) + 1):
            at = self.depth == level
            above = events["parent"][at]
            within[at] = within[above] | (found[above] > 0)
        found[within] = 0
        return found

    @cached_property
    def forward(self) -> Any:
        """The op that recorded the step of backward that each event is, or is within; else -1."""
        events = self.events
        made = (events["kind"] == OP) & (events["last_step"] > events["first_step"])
        numbers = np.where(events["kind"] == NODE, events["first_step"], 0)
        found = np.full(len(self), -1, np.int64)
        if made.any() and numbers.any():
            base = int(events["first_step"][made].min())
            owner = np.full(int(events["last_step"][made].max()) - base + 1, -1, np.int64)
            for i in np.flatnonzero(made):  # what is within comes later, and is the nearer
                owner[events["first_step"][i] - base + 1 : events["last_step"][i] - base + 1] = i
            inside = (numbers > base) & (numbers - base < len(owner))
            found[inside] = owner[numbers[inside] - base]
        return self.inherited(found)

    @cached_property
    def stack(self) -> Any:
        """The number of each event's stack: its own, of what it is in, or of its forward op."""
        found = self.inherited(self.events["stack"].copy())
        linked = (found < 0) & (self.forward >= 0)
        found[linked] = found[self.forward[linked]]
        return found

    @cached_property
    def module(self) -> Any:
        """The event of the innermost module of each event, in backward that of its forward op."""
        events = self.events
        mine = (events["kind"] == RANGE) & (events["first_step"] == MODULE)
        found = np.where(mine, np.arange(len(self)), -1)
        found = self.inherited(found)
        linked = (found < 0) & (self.forward >= 0)
        found[linked] = found[self.forward[linked]]
        return found

    def name(self, i: int) -> str:
        """Return an event's name, as PyTorch would write it."""
        text = self.names[self.events["name"][i]]
        if self.events["kind"][i] == OP:
            return op_name(text)
        if self.events["kind"][i] == RANGE and self.events["first_step"][i] == MODULE:
            path, _, kind = text.rpartition("|")
            return f"nn.Module: {kind}" + (f" ({path})" if path else "")
        return text

    def module_path(self, i: int) -> str:
        """Return the path of the module that an event belongs to, "" for the outermost or none."""
        at = self.module[i]
        return self.names[self.events["name"][at]].rpartition("|")[0] if at >= 0 else ""

    def frames(self, i: int) -> tuple[Frame, ...]:
        """Return the stack of an event, innermost frame first; () where none was recorded."""
        at = self.stack[i]
        return self.stacks[at] if at >= 0 else ()

    def stack_lines(self, i: int) -> list[str]:
        """Return the stack of an event as text, innermost frame first."""
        return [f"{file}({line}): {function}" for file, function, line in self.frames(i)]

    def sequence_number(self, i: int) -> int:
        """Return the number of the step of backward that an event is or recorded, or -1."""
        e = self.events
        if e["kind"][i] == NODE:
            return int(e["first_step"][i]) or -1
        if e["kind"][i] == OP and e["last_step"][i] > e["first_step"][i]:
            return int(e["last_step"][i])
        return -1

    def _summed(self, own: Any) -> Any:
        """Add up a column over the events within each event."""
        total, depth, parent = own.copy(), self.depth, self.events["parent"]
        for level in range(int(depth.max(initial=0)), 0, -1):
            at = np.flatnonzero(depth == level)
            np.add.at(total, parent[at], total[at])
        return total

    def inherited(self, column: Any) -> Any:
        """Let events that have no value have that of what they are in."""
        depth, parent = self.depth, self.events["parent"]
        for level in range(1, int(depth.max(initial=0)) + 1):
            at = np.flatnonzero((depth == level) & (column < 0))
            column[at] = column[parent[at]]
        return column


def _columns(rows: bytes, names: Sequence[str]) -> dict[str, Any]:
    table = np.frombuffer(rows, np.int64).reshape(-1, len(names))
    return {name: np.ascontiguousarray(table[:, k]) for k, name in enumerate(names)}


def _packed(rows: list[Any]) -> bytes:
    return np.array([[_signed(v) for v in row] for row in rows], np.int64).tobytes()


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 and value > 0 else value


def _resolved(kernels: dict[str, Any], threads: Any) -> dict[str, Any]:
    """Let kernels name the events that launched them, which records count thread by thread."""
    for ident in np.unique(kernels["thread"]):
        mine = kernels["thread"] == ident
        own = np.append(np.flatnonzero(threads == ident), -1)
        kernels["event"][mine] = own[np.minimum(kernels["event"][mine], len(own) - 1)]
    return kernels


def _devices() -> dict[int, str]:
    from tangrad.plugin import allocators

    return {number: str(device) for number, device in allocators().items()}
