"""Record files: a profile on disk, written while the program runs, that survives its end.

The format is told in docs/profiling.md. Everything is in blocks with checksums, so that of a file
that was cut off all whole blocks are read.
"""

from __future__ import annotations

import io
import json
import os
import struct
import threading
import time
import warnings
import zlib
from types import TracebackType
from typing import IO, Any

import numpy as np

from tangrad_profiler import _record
from tangrad_profiler.machine import this_machine
from tangrad_profiler.recording import WRITER, Recording
from tangrad_profiler.trace import Trace

MAGIC = b"TGPROF"
VERSION = 2  # 2 has records of other processes, of purposes of memory and of kernels
_HEAD = struct.Struct("<6sHI")  # magic, version, bytes of the header's JSON
_BLOCK = struct.Struct("<BqII")  # type, thread, bytes, checksum
RECORDS, TABLES, CLOCK, TOTALS, END, COLUMNS = 1, 2, 3, 4, 5, 6

# In the order of their blocks; files of version 1 have the first two.
_COLUMNS_OF = (
    ("events", _record.EVENT_COLUMNS),
    ("changes", _record.CHANGE_COLUMNS),
    ("marks", _record.MARK_COLUMNS),
    ("kernels", _record.KERNEL_COLUMNS),
)


class RecordError(ValueError):
    """Raised for a file that holds no record, or one of a newer format."""


def _write_head(file: IO[bytes], options: dict[str, Any], machine: str) -> None:
    told = {"options": options, "pid": os.getpid(), "time": time.time(), "machine": machine}
    head = json.dumps(told).encode()
    file.write(_HEAD.pack(MAGIC, VERSION, len(head)) + head)


def _write_block(file: IO[bytes], kind: int, data: bytes, thread: int = 0) -> int:
    packed = zlib.compress(data, 1)
    file.write(_BLOCK.pack(kind, thread, len(packed), zlib.crc32(packed)) + packed)
    return _BLOCK.size + len(packed)


class record:
    """Record the calling thread into a file, as a context manager.

    At most the last `interval` is lost if the process is killed. A file grows up to `max_bytes`:
    from then on only sums by name are kept, which stand in for the events in `key_averages`.

    Args:
        path: the file, which is replaced.
        interval: seconds between two writes.
        max_bytes: of records.
        record_shapes, profile_memory, with_stack, with_modules: as those of `profile`.

    Raises:
        OSError: the file cannot be made (when it is entered).
        RuntimeError: another profiler is running (the same).
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        interval: float = 0.5,
        max_bytes: int = 40 << 20,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_modules: bool = False,
    ) -> None:
        self.path, self.interval, self.max_bytes = os.fspath(path), interval, max_bytes
        self._options = (record_shapes, profile_memory, with_stack, with_modules)

    def _begin(self, recording: Recording, file: IO[bytes]) -> None:
        self._recording, self._file = recording, file
        self._written = 0
        self._told: tuple[int, ...] = (0, 0, 0)
        self._adder: Any = None
        self._failure: OSError | None = None
        self._pid, self._began, self._summed = os.getpid(), time.monotonic(), 0.0
        head = io.BytesIO()
        _write_head(head, recording.options, this_machine())
        self._append(head)

    def __enter__(self) -> record:
        # Before the file is opened, and so emptied: it may be the one that a profiler writes now.
        recording = Recording(*self._options)
        recording.begin()
        try:
            # Without a buffer: a child that was forked while it holds bytes would write them, too.
            self._begin(recording, open(self.path, "wb", buffering=0))
        except BaseException:
            recording.halt()
            raise
        self._ended = threading.Event()
        self._writer = threading.Thread(target=self._write, name=WRITER, daemon=True)
        self._writer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        if os.getpid() != self._pid:  # a child that was forked: the file is its parent's
            return
        self._ended.set()
        self._writer.join()
        self._recording.halt()
        self._flush(last=True)
        try:
            self._file.close()
        except OSError as failure:
            self._failure = self._failure or failure
        if self._failure is not None:
            warnings.warn(
                f"the profile in {self.path} is partial: {self._failure}",
                RuntimeWarning,
                stacklevel=2,
            )

    def _write(self) -> None:
        while not self._ended.wait(self.interval):
            self._flush()

    def _flush(self, last: bool = False) -> None:
        if self._failure is not None:
            _record.drain()
            return
        try:
            blocks = io.BytesIO()
            self._add_blocks(blocks, last)
        except OSError as error:  # of reading back
            self._failure = error
        else:
            self._append(blocks)

    def _append(self, data: io.BytesIO) -> None:
        """Write to the file, which has no buffer and takes as much at once as it likes."""
        rest: bytes | memoryview = data.getbuffer()
        try:
            while rest:
                rest = rest[os.write(self._file.fileno(), rest) :]
        except OSError as error:
            self._failure = error

    def _add_blocks(self, blocks: IO[bytes], last: bool) -> None:
        pieces, clock = _record.drain(), _record.clock()
        tables = _record.tables()
        counts = tuple(map(len, tables))
        if counts != self._told:
            rows = [t[n:m] for t, n, m in zip(tables, self._told, counts, strict=True)]
            _write_block(blocks, TABLES, json.dumps(rows).encode())
            self._told = counts
        if self._adder is None and self._written > self.max_bytes:
            self._adder = _record.Adder((clock[3] - clock[1]) / max(clock[2] - clock[0], 1))
            self._read_back()
        for ident, data in pieces:
            if self._adder is not None:
                self._adder.feed(ident, data)
            else:
                self._written += _write_block(blocks, RECORDS, data, ident)
        _write_block(blocks, CLOCK, json.dumps(clock).encode())
        if self._adder is not None and (last or self._sums_are_due()):
            _write_block(blocks, TOTALS, json.dumps(self._adder.totals()).encode())
        if last:
            _write_block(blocks, END, b"")

    def _read_back(self) -> None:
        """Add up what the file holds, in the order of its writing."""
        for kind, thread, data in _blocks(self.path)[1]:
            if kind == RECORDS:
                self._adder.feed(thread, data)

    def _sums_are_due(self) -> bool:
        now = time.monotonic()
        if now - self._summed < max(10.0, (now - self._began) / 50):
            return False
        self._summed = now
        return True


def save(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write what was recorded in memory into a file that `load` reads."""
    with open(path, "wb") as file:
        _write_head(file, trace.options, trace.machine)
        tables = [trace.names, trace.signatures, trace.stacks]
        _write_block(file, TABLES, json.dumps(tables).encode())
        for table, names in _COLUMNS_OF:
            rows = np.stack([getattr(trace, table)[name] for name in names], axis=1)
            # Neighbours differ little: their differences pack well.
            deltas = np.diff(rows, axis=0, prepend=0)
            _write_block(file, COLUMNS, np.ascontiguousarray(deltas.T).tobytes())
        clock = [0, trace.began, trace.length, trace.began + trace.length]
        _write_block(file, CLOCK, json.dumps(clock).encode())
        if trace.partial:
            _write_block(file, TOTALS, json.dumps(list(trace.totals)).encode())
        _write_block(file, END, trace.partial.encode())


def _blocks(path: str) -> tuple[dict[str, Any], list[tuple[int, int, bytes]], str]:
    """Return the header, the whole blocks, and what is wrong behind them."""
    with open(path, "rb") as file:
        head = file.read(_HEAD.size)
        if len(head) < _HEAD.size or head[:6] != MAGIC:
            raise RecordError(
                f"{path} is no record of tangrad.profiler: it begins with {head[:6]!r}"
            )
        _, version, size = _HEAD.unpack(head)
        if version > VERSION:
            raise RecordError(
                f"{path} has version {version} of the format, this tangrad-profiler reads up to "
                f"{VERSION}: upgrade tangrad-profiler"
            )
        try:
            header = json.loads(file.read(size))
            header["options"].items()
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise RecordError(f"{path}: the header is damaged") from error
        found: list[tuple[int, int, bytes]] = []
        while True:
            row = file.read(_BLOCK.size)
            if not row:
                return header, found, ""
            if len(row) < _BLOCK.size:
                return header, found, "the file is cut off"
            kind, thread, nbytes, checksum = _BLOCK.unpack(row)
            packed = file.read(nbytes)
            if len(packed) < nbytes:
                return header, found, "the file is cut off"
            if zlib.crc32(packed) != checksum:
                return header, found, f"block {len(found)} is damaged"
            try:
                found.append((kind, thread, zlib.decompress(packed)))
            except zlib.error:
                return header, found, f"block {len(found)} is not packed as a block is"


def read(path: str) -> Trace:
    """Read a record file, as `tangrad.profiler.load` does.

    Raises:
        RecordError: this is no record file, or one of a newer format.
    """
    header, blocks, wrong = _blocks(path)
    try:
        trace = _trace_of(header, blocks, wrong)
        _check_numbers(trace)
        return trace
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise RecordError(
            f"{path} holds what no tangrad-profiler writes, under checksums that are right: "
            f"{type(error).__name__}: {error}"
        ) from error


def _check_numbers(trace: Trace) -> None:
    """Refuse events that name what is in no table.

    Raises:
        ValueError: there are some.
    """
    for column, table in (("name", "names"), ("signature", "signatures"), ("stack", "stacks")):
        numbers, known = trace.events[column], len(getattr(trace, table))
        if len(numbers) and not -1 <= numbers.min() <= numbers.max() < known:
            raise ValueError(f"an event has {column} {numbers.max()}, of {known}")


def _trace_of(header: dict[str, Any], blocks: list[tuple[int, int, bytes]], wrong: str) -> Trace:
    tables: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
    machine = str(header.get("machine", ""))
    clock, totals, records, columns, ended = (0, 0, 1, 1), [], [], [], False
    for kind, thread, data in blocks:
        if kind == RECORDS:
            records.append((thread, data))
        elif kind == TABLES:
            for table, rows in zip(tables, json.loads(data), strict=True):
                table.extend(rows)
        elif kind == CLOCK:
            clock = tuple(json.loads(data))
        elif kind == TOTALS:
            totals = [tuple(row) for row in json.loads(data)]
        elif kind == COLUMNS:
            columns.append(data)
        elif kind == END:
            ended, wrong = True, data.decode() or wrong
    if not ended and not wrong:
        wrong = "the program ended before its profile did"
    tables[2][:] = [tuple(tuple(frame) for frame in stack) for stack in tables[2]]
    if totals and not wrong:
        wrong = f"of the run after its first {sum(len(d) for _, d in records)} bytes there are sums"
    if not columns:
        return Trace.of_records(records, tables, clock, header["options"], wrong, totals, machine)
    trace = Trace.of_records([], tables, clock, header["options"], wrong, totals, machine)
    for (name, names), data in zip(_COLUMNS_OF, columns, strict=False):
        rows = np.frombuffer(data, np.int64).reshape(len(names), -1).cumsum(axis=1)
        setattr(trace, name, {n: rows[k].copy() for k, n in enumerate(names)})
    return trace
