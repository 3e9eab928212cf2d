"""Files of events: TFRecords (a length, its checksum, the data, its checksum) of messages."""

from __future__ import annotations

import itertools
import os
import socket
import struct
import time
import weakref
from typing import Any

from tangrad.serialization import crc32c
from tangrad_tensorboard import proto

_FILE_VERSION = "brain.Event:2"
_numbers = itertools.count()  # two writers of one second have files of different names


def _masked(raw: bytes) -> int:
    """Return the checksum that TFRecords hold: rotated, for data that may hold checksums."""
    crc: int = crc32c(raw)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def record(raw: bytes) -> bytes:
    """Return `raw` as a TFRecord."""
    length = struct.pack("<Q", len(raw))
    return b"".join(
        [length, struct.pack("<I", _masked(length)), raw, struct.pack("<I", _masked(raw))]
    )


class FileWriter:
    """Append events to a new file in a directory, which is made if need be.

    Args:
        log_dir: the directory.
        max_queue: number of events that may wait to be written out.
        flush_secs: seconds that they may wait; looked at when the next event comes.
        filename_suffix: added to the file's name.
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str],
        max_queue: int = 10,
        flush_secs: float = 120,
        filename_suffix: str = "",
    ) -> None:
        self.log_dir = os.fspath(log_dir)
        self.max_queue, self.flush_secs, self.suffix = max_queue, flush_secs, filename_suffix
        self._file: Any = None
        self._open()

    def _open(self) -> None:
        os.makedirs(self.log_dir, exist_ok=True)
        now = time.time()
        name = (
            f"events.out.tfevents.{int(now):010d}.{socket.gethostname()}.{os.getpid()}."
            f"{next(_numbers)}{self.suffix}"
        )
        self._file = open(os.path.join(self.log_dir, name), "wb")  # noqa: SIM115
        # A program that forgets to close loses nothing, at its end neither.
        self._end = weakref.finalize(self, self._file.close)
        self._waiting, self._flushed = 0, now
        self._write(proto.data(3, _FILE_VERSION), None, now)
        self.flush()

    def get_logdir(self) -> str:
        """Return the directory."""
        return self.log_dir

    def _write(self, content: bytes, step: int | None, walltime: float | None) -> None:
        if self._file is None:
            self.reopen()
        now = time.time()
        event = proto.double(1, now if walltime is None else walltime)
        if step is not None:
            event += proto.integer(2, int(step))
        self._file.write(record(event + content))
        self._waiting += 1
        if self._waiting > self.max_queue or now - self._flushed > self.flush_secs:
            self.flush()

    def add_summary(
        self, summary: bytes, global_step: int | None = None, walltime: float | None = None
    ) -> None:
        """Append a summary.

        Args:
            summary: the encoded message.
            global_step: the step that it belongs to.
            walltime: seconds since 1970; now by default.
        """
        self._write(proto.data(5, summary), global_step, walltime)

    def add_graph(self, graph: bytes, walltime: float | None = None) -> None:
        """Append an encoded `GraphDef`."""
        self._write(proto.data(4, graph), None, walltime)

    def flush(self) -> None:
        """Write out what waits."""
        if self._file is not None:
            self._file.flush()
            self._waiting, self._flushed = 0, time.time()

    def close(self) -> None:
        """Write out what waits and close the file; a later event opens another."""
        if self._file is not None:
            self._end()
            self._file = None

    def reopen(self) -> None:
        """Open another file after `close`."""
        if self._file is None:
            self._open()
