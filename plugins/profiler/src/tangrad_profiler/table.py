"""The table of averages, laid out as PyTorch's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tangrad_profiler.trace import Trace


def time_text(us: float) -> str:
    """Return microseconds with a unit that suits them."""
    if us >= 1e6:
        return f"{us / 1e6:.3f}s"
    if us >= 1e3:
        return f"{us / 1e3:.3f}ms"
    return f"{us:.3f}us"


def _memory_text(nbytes: int) -> str:
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if abs(nbytes) >= size:
            return f"{nbytes / size:.2f} {unit}"
    return f"{nbytes} B"


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.2f}%" if whole else "0.00%"


class _Column(NamedTuple):
    """A column of the table: title, narrowest width, and the text of a row, or its lines."""

    title: str
    width: int
    text: Callable[[Any], Any]


_UNITS = {"us": 1.0, "ms": 1e3, "s": 1e6}
_NARROWEST = 12  # as PyTorch's: programs cut its tables by columns


def _in_unit(unit: str | None) -> Callable[[float], str]:
    if unit is None:
        return time_text
    if unit not in _UNITS:
        raise ValueError(f"table: time_unit must be one of {', '.join(_UNITS)}, not {unit!r}")
    return lambda us: f"{us / _UNITS[unit]:.3f}{unit}"


def _columns_of(
    everything: Any,
    unit: str | None,
    name_width: int | None,
    shapes_width: int | None,
    source_width: int | None,
) -> list[_Column]:
    time, trace = _in_unit(unit), everything.trace
    total = everything.self_cpu_time_total
    columns: list[_Column] = []

    def add(title: str, text: Callable[[Any], Any], width: int = _NARROWEST) -> None:
        columns.append(_Column(title, width, text))

    longest = max((len(r.key) for r in everything), default=0) + 4
    add("Name", lambda r: _name(r.key, name_width), _least(longest, name_width))
    add("Self CPU %", lambda r: _share(r.self_cpu_time_total, total))
    add("Self CPU", lambda r: time(r.self_cpu_time_total))
    add("CPU total %", lambda r: _share(r.cpu_time_total, total))
    add("CPU total", lambda r: time(r.cpu_time_total))
    add("CPU time avg", lambda r: time(r.cpu_time))
    device = _device_name(trace)
    device_total = float(sum(r.self_device_time_total for r in everything))
    if device_total:
        add(f"Self {device}", lambda r: time(r.self_device_time_total))
        add(f"Self {device} %", lambda r: _share(r.self_device_time_total, device_total))
        add(f"{device} total", lambda r: time(r.device_time_total))
        add(f"{device} time avg", lambda r: time(r.device_time))
    if trace is not None and trace.options.get("memory"):
        add("CPU Mem", lambda r: _memory_text(r.cpu_memory_usage))
        add("Self CPU Mem", lambda r: _memory_text(r.self_cpu_memory_usage))
        if any(r.self_device_memory_usage > 0 for r in everything):
            add(f"{device} Mem", lambda r: _memory_text(r.device_memory_usage))
            add(f"Self {device} Mem", lambda r: _memory_text(r.self_device_memory_usage))
    add("# of Calls", lambda r: str(r.count))
    if any(r.input_shapes for r in everything):
        longest = max(len(str(r.input_shapes)) for r in everything) + 4
        width = _least(longest, shapes_width)
        add("Input Shapes", lambda r: str(r.input_shapes)[:width], width)
    if any(r.stack for r in everything):
        longest = max(len(line) for r in everything for line in r.stack) + 4
        most = _least(longest, source_width)
        add("Source Location", lambda r: [_end_of(line, most) for line in r.stack], most)
    if least := min((r.flops for r in everything if r.flops > 0), default=0):
        power = min(int(math.log10(least) / 3), len(_FLOPS) - 1)
        add(f"Total {_FLOPS[power]}", lambda r: f"{r.flops / 1e3**power:.3f}" if r.flops else "--")
    return columns


_FLOPS = ("FLOPs", "KFLOPs", "MFLOPs", "GFLOPs", "TFLOPs", "PFLOPs")


def _least(width: int, most: int | None) -> int:
    return width if most is None else min(width, most)


def _name(text: str, width: int | None) -> str:
    return text if width is None or len(text) < width - 3 else text[: width - 3] + "..."


def _end_of(path: str, width: int) -> str:
    return path if len(path) <= width else "..." + path[len(path) - width + 3 :]


def lines_of(
    everything: Any,
    rows: list[Any],
    headers: list[str],
    unit: str | None,
    widths: tuple[int | None, int | None, int | None],
) -> Iterator[str]:
    """Yield the lines of the table of some rows, with sums of all events.

    Args:
        everything: the `EventList`. widths: the most of names, shapes and source lines.
    """
    columns = _columns_of(everything, unit, *widths)
    yield from _ruled(_cells(rows, columns), columns, headers)
    yield from _sums(everything, unit)


def _cells(rows: list[Any], columns: list[_Column]) -> list[list[str]]:
    cells: list[list[str]] = []
    for r in rows:
        texts = [column.text(r) for column in columns]
        # A line for each frame of the stack, and an empty one below.
        high = max((max(len(t), 1) + 1 for t in texts if isinstance(t, list)), default=1)
        for k in range(high):
            cells.append([_part(t, k) for t in texts])
    return cells


def _part(text: str | list[str], k: int) -> str:
    parts = [text] if isinstance(text, str) else text
    return parts[k] if k < len(parts) else ""


def _ruled(cells: list[list[str]], columns: list[_Column], headers: list[str]) -> Iterator[str]:
    titles = [column.title for column in columns]
    widths = [
        max(column.width, *(len(row[k]) for row in [titles, *cells]))
        for k, column in enumerate(columns)
    ]
    rule = "  ".join("-" * w for w in widths) + "  "
    for header in headers:
        yield "=" * (len(rule) - 2)
        yield header
    yield rule
    for n, row in enumerate([titles, *cells]):
        yield "".join(
            (cell.ljust(w) if title == "Source Location" else cell.rjust(w)) + "  "
            for cell, w, title in zip(row, widths, titles, strict=True)
        )
        if n == 0:
            yield rule
    yield rule


def _sums(everything: Any, unit: str | None) -> list[str]:
    """Return what stands below the table."""
    time, trace = _in_unit(unit), everything.trace
    told = [f"Self CPU time total: {time(everything.self_cpu_time_total)}"]
    device_total = float(sum(r.self_device_time_total for r in everything))
    if device_total:
        told.append(f"Self {_device_name(trace)} time total: {time(device_total)}")
    if trace is not None and trace.partial:
        told.append(f"Partial: {trace.partial}")
    return told


def _device_name(trace: Trace | None) -> str:
    """Return what the columns of devices other than the host are called."""
    found = set() if trace is None else trace.other_devices
    types = {device.partition(":")[0] for device in found}
    return types.pop().upper() if len(types) == 1 else "device"
