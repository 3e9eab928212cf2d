"""Write a trace for other programs: Chrome's viewer, flame graphs, speedscope."""

from __future__ import annotations

import gzip
import json
import os
import threading
from collections.abc import Iterator
from typing import IO, Any

from tangrad_profiler.trace import NODE, OP, RANGE, Trace

_CATEGORY = {OP: "cpu_op", NODE: "cpu_op", RANGE: "user_annotation"}
METRICS = ("self_cpu_time_total", "self_cuda_time_total", "self_device_time_total")


def open_text(path: str | os.PathLike[str]) -> IO[str]:
    """Open a file for writing, packed if its name ends in .gz."""
    name = os.fspath(path)
    if name.endswith(".gz"):
        return gzip.open(name, "wt", encoding="utf-8")
    return open(name, "w", encoding="utf-8")


def chrome_trace(trace: Trace, path: str | os.PathLike[str], metadata: Any = None) -> None:
    """Write the JSON of Chrome's trace viewer, which Perfetto reads, too.

    Args:
        metadata: further entries of the outermost object.

    Raises:
        OSError: the file cannot be written; what was profiled is kept.
    """
    with open_text(path) as file:
        options = {
            name: int(bool(trace.options.get(ours)))
            for name, ours in (("record_shapes", "shapes"), ("profile_memory", "memory"),
                               ("with_stack", "stacks"), ("with_modules", "modules"),
                               ("with_flops", "flops"))
        }  # fmt: skip
        head = {"schemaVersion": 1, "displayTimeUnit": "ms", "traceName": os.fspath(path),
                **options, **(metadata or {})}  # fmt: skip
        if trace.partial:
            head["partial"] = trace.partial
        file.write(json.dumps(head)[:-1] + ', "traceEvents": [\n')
        first = True
        for row in chrome_events(trace):
            file.write(("" if first else ",\n") + json.dumps(row, separators=(",", ":")))
            first = False
        file.write("\n]}\n")


def chrome_events(trace: Trace) -> Iterator[dict[str, Any]]:
    """Yield the entries of a trace for Chrome's viewer."""
    e, pid, linked = trace.events, os.getpid(), set()
    names = {t.ident: t.name for t in threading.enumerate()}
    yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": 0,
           "args": {"name": "python"}}  # fmt: skip
    for ident in sorted({int(t) for t in e["thread"]}):
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": ident, "ts": 0,
               "args": {"name": thread_name(ident, names)}}  # fmt: skip
    for i in range(len(trace)):
        kind, tid = int(e["kind"][i]), int(e["thread"][i])
        start = e["start"][i] / 1e3
        args: dict[str, Any] = {"External id": i, "Ev Idx": i}
        if (sequence := trace.sequence_number(i)) >= 0:
            args["Sequence number"] = sequence
        if e["signature"][i] >= 0:
            shapes, dtypes, numbers = trace.signatures[e["signature"][i]]
            args |= {"Input Dims": shapes, "Input type": dtypes, "Concrete Inputs": numbers}
        forward = int(trace.forward[i]) if kind == NODE else -1
        if forward >= 0:
            args |= {"Fwd thread id": int(e["thread"][forward]), "Forward op": forward}
        if i in trace.arguments:
            args["Concrete Inputs"] = [trace.arguments[i]]
        if path := trace.module_path(i):
            args["Module"] = path
        if lines := trace.stack_lines(i):
            args["Call stack"] = ";".join(lines)
        yield {"ph": "X", "cat": _CATEGORY[kind], "name": trace.name(i), "pid": pid, "tid": tid,
               "ts": start, "dur": trace.duration[i] / 1e3, "args": args}  # fmt: skip
        if forward >= 0:
            flow = {"cat": "fwdbwd", "name": "fwdbwd", "pid": pid, "id": forward}
            if forward not in linked:
                linked.add(forward)
                begun = {"tid": int(e["thread"][forward]), "ts": e["start"][forward] / 1e3}
                yield {"ph": "s", **begun, **flow}
            yield {"ph": "f", "bp": "e", "tid": tid, "ts": start, **flow}
    yield from _kernel_rows(trace, pid)
    c = trace.changes
    for i in range(len(c["time"])):
        device = trace.devices.get(int(c["allocator"][i]), "?")
        kind, index = _device_numbers(device)
        yield {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "pid": pid,
               "tid": int(c["thread"][i]), "ts": c["time"][i] / 1e3,
               "args": {"Bytes": int(c["nbytes"][i]), "Addr": int(c["address"][i]),
                        "Total Allocated": int(c["allocated"][i]), "Device": device,
                        "Device Type": kind, "Device Id": index}}  # fmt: skip


def _device_numbers(device: str) -> tuple[int, int]:
    """Return PyTorch's numbers for a device: of its type, and its own (-1: the host)."""
    from tangrad.autograd import DeviceType

    kind, _, index = device.partition(":")
    known = {name.upper(): member.value for name, member in DeviceType.__members__.items()}
    number = known.get(kind.upper(), DeviceType.PrivateUse1.value)
    return number, int(index) if index.isdecimal() else -(number == DeviceType.CPU.value)


def _kernel_rows(trace: Trace, pid: int) -> Iterator[dict[str, Any]]:
    """Yield what devices did, a row per stream, with arrows from the launches."""
    e, k = trace.events, trace.kernels
    for j in range(len(k["start"])):
        event, stream = int(k["event"][j]), int(k["stream"][j])
        device = trace.devices.get(int(k["allocator"][j]), "device")
        name = trace.name(event) if event >= 0 else "kernel"
        tid = f"{device} stream {stream}"
        start = k["start"][j] / 1e3
        yield {"ph": "X", "cat": "kernel", "name": name, "pid": pid, "tid": tid, "ts": start,
               "dur": (k["end"][j] - k["start"][j]) / 1e3,
               "args": {"device": device, "stream": stream, "External id": event}}  # fmt: skip
        if event >= 0:
            flow = {"cat": "ac2g", "name": "ac2g", "pid": pid, "id": j}
            yield {"ph": "s", "tid": int(e["thread"][event]), "ts": e["start"][event] / 1e3, **flow}
            yield {"ph": "f", "bp": "e", "tid": tid, "ts": start, **flow}


def thread_name(ident: int, names: dict[int | None, str]) -> str:
    """Return what a thread is called; a negative number is another process's."""
    return names.get(ident, f"process {-ident}" if ident < 0 else f"thread {ident}")


def _flames(trace: Trace, metric: str) -> dict[tuple[str, ...], int]:
    """Return microseconds by stack, outermost frame first, the event last."""
    if metric not in METRICS:
        raise ValueError(f"metric should be one of: {', '.join(METRICS)}, not {metric!r}")
    found: dict[tuple[str, ...], int] = {}
    if metric != "self_cpu_time_total":
        return found
    for i in range(len(trace)):
        lines = trace.stack_lines(i)
        if lines:
            frames = (line.replace(" ", "_").replace(";", ":") for line in reversed(lines))
            key = (*frames, trace.name(i))
            found[key] = found.get(key, 0) + int(trace.own[i])
    return {key: ns // 1000 for key, ns in found.items()}


def stacks(trace: Trace, path: str | os.PathLike[str], metric: str = "self_cpu_time_total") -> None:
    """Write a line "frame;frame;op microseconds" per stack, as flame graph programs read them.

    Raises:
        ValueError: the metric is unknown.
    """
    flames = _flames(trace, metric)
    with open_text(path) as file:
        for key, us in flames.items():
            if us > 0:
                file.write(";".join(key) + f" {us}\n")


def speedscope(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write the file format of speedscope: an evented profile per thread."""
    frames: dict[str, int] = {}
    profiles = []
    e = trace.events
    for ident in sorted({int(t) for t in e["thread"]}):
        mine = [i for i in range(len(trace)) if e["thread"][i] == ident]
        opened: list[int] = []
        rows: list[dict[str, Any]] = []

        def close(until: int, opened: list[int] = opened, rows: list[Any] = rows) -> None:
            while opened and opened[-1] != until:
                i = opened.pop()
                frame = frames.setdefault(trace.name(i), len(frames))
                rows.append({"type": "C", "frame": frame, "at": e["end"][i] / 1e3})

        for i in mine:
            close(int(e["parent"][i]))
            rows.append({"type": "O", "frame": frames.setdefault(trace.name(i), len(frames)),
                         "at": e["start"][i] / 1e3})  # fmt: skip
            opened.append(i)
        close(-1)
        end = max((row["at"] for row in rows), default=0)
        profiles.append({"type": "evented", "name": f"thread {ident}", "unit": "microseconds",
                         "startValue": 0, "endValue": end, "events": rows})  # fmt: skip
    with open_text(path) as file:
        json.dump({"$schema": "https://www.speedscope.app/file-format-schema.json",
                   "shared": {"frames": [{"name": name} for name in frames]},
                   "profiles": profiles}, file)  # fmt: skip
