"""Events as objects, and their averages."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tangrad_profiler.table import lines_of, time_text
from tangrad_profiler.trace import NODE, OP, RANGE, Trace, op_name


@dataclass
class Interval:
    """From `start` to `end`, in microseconds since the profile began."""

    start: float
    end: float

    def elapsed_us(self) -> float:
        """Return the length in microseconds."""
        return self.end - self.start


def _older(name: str) -> Any:
    """Return a property that reads another one, whose older name it has."""

    def read(self: Any) -> Any:
        warnings.warn(f"use {name} instead", FutureWarning, stacklevel=2)
        return getattr(self, name)

    return property(read)


class _Times:
    """What events and averages both tell of their times."""

    count: int
    cpu_time_total: float
    self_cpu_time_total: float
    device_time_total: float
    self_device_time_total: float
    self_device_memory_usage: int
    is_legacy = False
    overload_name = ""
    use_device: str | None = None

    @property
    def device_time(self) -> float:
        """Microseconds that devices worked for one call, on average."""
        return self.device_time_total / self.count if self.count else 0.0

    @property
    def device_time_str(self) -> str:
        """The same with a unit."""
        return time_text(self.device_time)

    @property
    def device_time_total_str(self) -> str:
        """Microseconds that devices worked for all calls, with a unit."""
        return time_text(self.device_time_total)

    @property
    def self_device_time_total_str(self) -> str:
        """The same, outside of others within."""
        return time_text(self.self_device_time_total)

    @property
    def device_type(self) -> Any:
        """Where it was measured: by the host's clock."""
        from tangrad.autograd import DeviceType

        return DeviceType.CPU

    cuda_time = _older("device_time")
    cuda_time_total = _older("device_time_total")
    self_cuda_time_total = _older("self_device_time_total")
    self_cuda_memory_usage = _older("self_device_memory_usage")

    @property
    def cpu_time(self) -> float:
        """Microseconds of one call, on average."""
        return self.cpu_time_total / self.count if self.count else 0.0

    @property
    def cpu_time_str(self) -> str:
        """The same with a unit."""
        return time_text(self.cpu_time)

    @property
    def cpu_time_total_str(self) -> str:
        """Microseconds of all calls, with a unit."""
        return time_text(self.cpu_time_total)

    @property
    def self_cpu_time_total_str(self) -> str:
        """Microseconds of all calls outside of others within, with a unit."""
        return time_text(self.self_cpu_time_total)


class Kernel(NamedTuple):
    """A device's work for an event: name, number of the device, and microseconds."""

    name: str
    device: int
    duration: float


@dataclass
class FunctionEvent(_Times):
    """One call of an op, one step of backward or one named range.

    Attributes:
        id: the event's number in the profile.
        name: such as "aten::mm", "MulBackward0" or what `record_function` was given.
        time_range: when. thread: by the number that Python gives it.
        cpu_parent, cpu_children: what it is within, and what is within it.
        input_shapes, concrete_inputs: of its arguments, if they were recorded.
        stack: lines of the program, innermost first, if they were recorded.
        sequence_nr: of the step of backward that the op recorded or that this is; else -1.
        scope: 0 for ops, 1 for steps of backward, 7 for ranges.
    """

    id: int
    name: str
    thread: int
    time_range: Interval
    cpu_time_total: float
    self_cpu_time_total: float
    input_shapes: list[Any] = field(default_factory=list)
    concrete_inputs: list[Any] = field(default_factory=list)
    stack: list[str] = field(default_factory=list)
    scope: int = 0
    sequence_nr: int = -1
    cpu_memory_usage: int = 0
    self_cpu_memory_usage: int = 0
    flops: int = 0
    is_user_annotation: bool = False
    module_path: str = ""
    fwd_thread: int | None = None
    cpu_parent: FunctionEvent | None = None
    cpu_children: list[FunctionEvent] = field(default_factory=list, repr=False)
    count: int = 1
    node_id: int = -1
    is_async: bool = False
    is_remote: bool = False
    device_index: int = -1
    device_memory_usage: int = 0
    self_device_memory_usage: int = 0
    device_time_total: float = 0.0
    self_device_time_total: float = 0.0

    kernels: list[Kernel] = field(default_factory=list)
    input_dtypes: list[str] = field(default_factory=list)
    is_python_function = False

    @property
    def key(self) -> str:
        """The name by which averages group it."""
        return self.name

    trace_name = key

    def append_kernel(self, name: str, device: int, duration: float) -> None:
        """Add a piece of work of a device, of so many microseconds."""
        self.kernels.append(Kernel(name, device, duration))

    def append_cpu_child(self, child: FunctionEvent) -> None:
        """Add an event within this one."""
        self.cpu_children.append(child)

    def set_cpu_parent(self, parent: FunctionEvent) -> None:
        """Say what this event is within."""
        self.cpu_parent = parent


@dataclass
class FunctionEventAvg(_Times):
    """What events of one key have in sum; attributes as those of `FunctionEvent`."""

    key: str = ""
    count: int = 0
    cpu_time_total: float = 0.0
    self_cpu_time_total: float = 0.0
    cpu_memory_usage: int = 0
    self_cpu_memory_usage: int = 0
    flops: int = 0
    input_shapes: Any = None
    stack: list[str] = field(default_factory=list)
    scope: int = 0
    is_user_annotation: bool = False
    device_time_total: float = 0.0
    self_device_time_total: float = 0.0
    device_memory_usage: int = 0
    self_device_memory_usage: int = 0
    node_id: int = -1
    is_async: bool = False
    is_remote: bool = False

    cpu_parent: FunctionEvent | None = None
    cpu_children: list[FunctionEvent] = field(default_factory=list, repr=False)

    @property
    def name(self) -> str:
        """The key."""
        return self.key

    def add(self, other: FunctionEvent | FunctionEventAvg) -> FunctionEventAvg:
        """Add an event, or the average of others, to this one, and return it."""
        self.key = self.key or other.key
        for name in SUMMED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self

    __iadd__ = add


SUMMED = (
    "count",
    "cpu_time_total",
    "self_cpu_time_total",
    "cpu_memory_usage",
    "self_cpu_memory_usage",
    "device_memory_usage",
    "self_device_memory_usage",
    "device_time_total",
    "self_device_time_total",
    "flops",
)


def events_of(trace: Trace) -> EventList:
    """Return every event of a trace as an object."""
    e, scopes = trace.events, {OP: 0, NODE: 1, RANGE: 7}
    made: list[FunctionEvent] = []
    for i in range(len(trace)):
        kind = int(e["kind"][i])
        shapes: Any = ([], [], [])
        if e["signature"][i] >= 0:
            shapes = trace.signatures[e["signature"][i]]
        parent = int(e["parent"][i])
        event = FunctionEvent(
            id=i,
            name=trace.name(i),
            thread=int(e["thread"][i]),
            time_range=Interval(e["start"][i] / 1e3, e["end"][i] / 1e3),
            cpu_time_total=trace.duration[i] / 1e3,
            self_cpu_time_total=trace.own[i] / 1e3,
            input_shapes=shapes[0],
            concrete_inputs=shapes[2],
            stack=trace.stack_lines(i),
            scope=scopes[kind],
            sequence_nr=trace.sequence_number(i),
            cpu_memory_usage=int(trace.memory[i] - trace.device_memory[i]),
            self_cpu_memory_usage=int(trace.own_memory[i] - trace.own_device_memory[i]),
            device_memory_usage=int(trace.device_memory[i]),
            self_device_memory_usage=int(trace.own_device_memory[i]),
            is_user_annotation=kind == RANGE,
            module_path=trace.module_path(i),
            cpu_parent=made[parent] if parent >= 0 else None,
            device_time_total=trace.device_time[i] / 1e3,
            self_device_time_total=trace.own_device[i] / 1e3,
            input_dtypes=shapes[1],
        )
        if trace.forward[i] >= 0:
            event.fwd_thread = int(e["thread"][trace.forward[i]])
        if event.cpu_parent is not None:
            event.cpu_parent.cpu_children.append(event)
        made.append(event)
    k = trace.kernels
    for j in np.flatnonzero(k["event"] >= 0).tolist():
        event = made[k["event"][j]]
        duration = (k["end"][j] - k["start"][j]) / 1e3
        event.append_kernel(event.name, int(k["allocator"][j]), duration)
    return EventList(made, trace=trace)


class EventList(list[Any]):
    """Events, or averages of them.

    Args:
        items: `FunctionEvent` or `FunctionEventAvg` objects.
        trace: what they were read from.
    """

    def __init__(self, items: Any = (), *, trace: Trace | None = None, **options: Any) -> None:
        super().__init__(items)
        self.trace = trace

    def __str__(self) -> str:
        return self.table()

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds in all events, each counted once."""
        return float(sum(item.self_cpu_time_total for item in self))

    def key_averages(
        self,
        group_by_input_shapes: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList:
        """Return the averages by name, and by input shapes and the innermost lines if asked."""
        if self.trace is None:
            raise RuntimeError("key_averages: these are averages already, or of no profile")
        return averages_of(self.trace, group_by_input_shapes, group_by_stack_n)

    def total_average(self) -> FunctionEventAvg:
        """Return all events in one sum."""
        total = FunctionEventAvg("Total")
        for item in self:
            total.add(item)
        return total

    def supported_export_stacks_metrics(self) -> list[str]:
        """Return what `export_stacks` may be asked for."""
        from tangrad_profiler.exports import METRICS

        return list(METRICS)

    def export_chrome_trace(self, path: str) -> None:
        """Write the events for Chrome's and Perfetto's viewers."""
        from tangrad_profiler.exports import chrome_trace

        if self.trace is None:
            raise RuntimeError("export_chrome_trace: averages have no times to draw")
        chrome_trace(self.trace, path)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Write a line per stack for flame graphs."""
        from tangrad_profiler.exports import stacks

        if self.trace is None:
            raise RuntimeError("export_stacks: averages have no stacks")
        stacks(self.trace, path, metric)

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int = 75,
        max_name_column_width: int = 55,
        max_shapes_column_width: int = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
        time_unit: str | None = None,
    ) -> str:
        """Return a table for people.

        Args:
            sort_by: an attribute, such as "cpu_time_total", "self_cpu_time_total", "cpu_time",
                "cpu_memory_usage", "self_cpu_memory_usage" or "count"; largest first.
            row_limit: how many rows; -1 for all.
            header: a line above.
            top_level_events_only: leave out what is within other events.
            time_unit: "us", "ms" or "s" for all times.

        Raises:
            AttributeError: there is no such attribute to sort by.
        """
        if not self and not (self.trace is not None and self.trace.partial):
            return ""
        rows = list(self)
        if sort_by is not None:
            for device in ("cuda", "xpu", "privateuse1"):
                sort_by = sort_by.replace(device, "device")
            rows.sort(key=lambda r: getattr(r, sort_by), reverse=True)
        if top_level_events_only:
            rows = [r for r in rows if getattr(r, "cpu_parent", None) is None]
        if row_limit >= 0:
            rows = rows[:row_limit]
        headers = [] if header is None else [header]
        if top_level_events_only:
            headers.append("This report only display top-level ops statistics")
        widths = max_name_column_width, max_shapes_column_width, max_src_column_width
        return "\n".join(lines_of(self, rows, headers, time_unit, widths)) + "\n"


def averages_of(trace: Trace, by_shapes: bool = False, stack_n: int = 0) -> EventList:
    """Return the sums of a trace by name, and by input shapes and the innermost lines if asked."""
    if trace.totals and not by_shapes and stack_n == 0:
        return _averages_of_totals(trace)
    e = trace.events
    keys = [e["kind"], e["name"], np.where(e["kind"] == RANGE, e["first_step"], 0)]
    if by_shapes:
        keys.append(e["signature"])
    if stack_n > 0:
        keys.append(_shortened(trace, stack_n))
    if not len(trace):
        return EventList([], trace=trace)
    _, first, group = np.unique(np.stack(keys), axis=1, return_index=True, return_inverse=True)
    group = group.reshape(-1)

    def summed(column: Any) -> Any:
        total = np.zeros(len(first), np.int64)
        np.add.at(total, group, column)
        return total

    columns = [np.ones(len(trace), np.int64), trace.duration, trace.own, trace.memory,
               trace.own_memory, trace.device_memory, trace.own_device_memory,
               trace.flops if trace.options.get("flops") else 0,
               trace.device_time, trace.own_device]  # fmt: skip
    (count, whole, own, memory, own_memory, device_memory, own_device_memory, flops, device,
     own_device) = map(summed, columns)  # fmt: skip
    made = []
    for g in np.argsort(first, kind="stable"):
        i = int(first[g])
        shapes: Any = [] if by_shapes else None
        if by_shapes and e["signature"][i] >= 0:
            shapes = trace.signatures[e["signature"][i]][0]
        made.append(
            FunctionEventAvg(
                key=trace.name(i),
                count=int(count[g]),
                cpu_time_total=whole[g] / 1e3,
                self_cpu_time_total=own[g] / 1e3,
                cpu_memory_usage=int(memory[g] - device_memory[g]),
                self_cpu_memory_usage=int(own_memory[g] - own_device_memory[g]),
                device_memory_usage=int(device_memory[g]),
                self_device_memory_usage=int(own_device_memory[g]),
                flops=int(flops[g]),
                device_time_total=device[g] / 1e3,
                self_device_time_total=own_device[g] / 1e3,
                input_shapes=shapes,
                stack=trace.stack_lines(i)[:stack_n] if stack_n > 0 else [],
                is_user_annotation=bool(e["kind"][i] == RANGE),
            )
        )
    return EventList(made, trace=trace)


def _averages_of_totals(trace: Trace) -> EventList:
    """Return the averages of a run of which only the sums were kept."""
    return EventList(
        [
            FunctionEventAvg(
                key=op_name(told) if kind == OP else told,
                count=count,
                cpu_time_total=whole / 1e3,
                self_cpu_time_total=own / 1e3,
                is_user_annotation=kind == RANGE,
            )
            for kind, name, count, whole, own in trace.totals
            for told in (trace.names[name].rpartition("|")[2],)
        ],
        trace=trace,
    )


def _shortened(trace: Trace, n: int) -> Any:
    """Number the stacks by their innermost `n` frames."""
    known: dict[Any, int] = {}
    of_stack = np.array(
        [known.setdefault(stack[:n], len(known)) for stack in trace.stacks] + [-1], np.int64
    )
    return of_stack[trace.stack]
