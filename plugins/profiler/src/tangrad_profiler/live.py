"""A view of a running program in the terminal: what it spends its time for, now and in all.

With rich it is a table that is drawn over; without, or where there is no terminal, a few lines now
and then. Recording goes on as always: what the view reads is kept for the profile.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import IO, Any, NamedTuple

from tangrad_profiler import _record
from tangrad_profiler.counting import Counters, counters
from tangrad_profiler.recording import WRITER, Recording
from tangrad_profiler.trace import OP, op_name

_ROWS = 15


class Row(NamedTuple):
    """An op, step of backward or range: calls, seconds of its own in all, and its share since."""

    name: str
    calls: int
    seconds: float
    recently: float


class Live:
    """Show a recording while it runs, as a context manager around it.

    Args:
        recording: that has begun.
        interval: seconds between two looks; ten times that where there is no terminal.
        file: where to show it, standard error by default.
    """

    def __init__(
        self, recording: Recording, interval: float = 0.5, file: IO[str] | None = None
    ) -> None:
        self.recording, self.file = recording, sys.stderr if file is None else file
        self.terminal = self.file.isatty()
        self.interval = interval if self.terminal else 10 * interval
        self._before: dict[int, float] = {}
        self._ended = threading.Event()
        self._adder: Any = None
        self._shown: Any = None

    def __enter__(self) -> Live:
        self._began = self._looked = time.perf_counter()
        self._counted = counters()
        self._shown = _rich_view(self.file) if self.terminal else None
        if self._shown is not None:
            self._shown.start()
        self._thread = threading.Thread(target=self._run, name=WRITER, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        self._thread.join()
        self._look()
        if self._shown is not None:
            self._shown.stop()

    def _run(self) -> None:
        while not self._ended.wait(self.interval):
            self._look()

    def _look(self) -> None:
        """Read what was recorded since, and show it."""
        rows, now = self.rows(), time.perf_counter()
        counted = counters()
        head = _head(now - self._began, now - self._looked, counted - self._counted)
        self._looked, self._counted = now, counted
        try:
            if self._shown is not None:
                self._shown.update(_rich_table(head, rows), refresh=True)
            else:
                self.file.write(_plain(head, rows))
                self.file.flush()
        except (OSError, ValueError):
            self._ended.set()  # a closed terminal is no reason to end the program

    def rows(self) -> list[Row]:
        """Return what most time went to since the last look, all of it since the beginning."""
        clock = _record.clock()
        if self._adder is None:
            self._adder = _record.Adder((clock[3] - clock[1]) / max(clock[2] - clock[0], 1))
        for ident, data in self.recording.drain():
            self._adder.feed(ident, data)
        names, found, recent = _record.tables()[0], [], {}
        for kind, name, count, _, own in self._adder.totals():
            key = kind << 32 | name
            recent[key] = own / 1e9 - self._before.get(key, 0.0)
            self._before[key] = own / 1e9
            told = names[name].rpartition("|")[2]
            told = op_name(told) if kind == OP else told
            found.append((told, count, own / 1e9, recent[key]))
        whole = max(sum(recent.values()), 1e-12)
        rows = [Row(n, c, s, r / whole) for n, c, s, r in found]
        return sorted(rows, key=lambda row: (-row.recently, -row.seconds))[:_ROWS]


def _head(passed: float, since: float, counted: Counters) -> str:
    rate = counted.ops / max(since, 1e-9)
    return (
        f"{passed:.1f} s   {rate:,.0f} ops/s   memory {counted.live_bytes / 2**20:.1f} MiB, "
        f"peak {counted.peak_bytes / 2**20:.1f}   {counted.device_allocations} blocks from the "
        f"device   {counted.fallbacks} fallbacks"
    )


def _plain(head: str, rows: list[Row]) -> str:
    lines = [
        f"{100 * r.recently:5.1f} %  {r.seconds:9.3f} s  {r.calls:>9}  {r.name}\n" for r in rows
    ]
    return head + "\n" + "".join(lines[:5])


def _rich_view(file: IO[str]) -> Any:
    """Return rich's live view, None where rich is not installed."""
    try:
        from rich.console import Console
        from rich.live import Live as View
    except ImportError:
        return None
    return View(console=Console(file=file), auto_refresh=False, transient=False)


def _rich_table(head: str, rows: list[Row]) -> Any:
    from rich.table import Table

    table = Table(title=head, title_justify="left", expand=True)
    table.add_column("what", ratio=1, no_wrap=True)
    for name in ("now", "own time", "calls"):
        table.add_column(name, justify="right")
    for r in rows:
        share = "#" * round(20 * r.recently)
        table.add_row(
            r.name, f"{share} {100 * r.recently:.1f} %", f"{r.seconds:.3f} s", f"{r.calls:,}"
        )
    return table
