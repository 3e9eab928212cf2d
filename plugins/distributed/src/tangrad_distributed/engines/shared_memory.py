"""Ranks as processes of one machine, through memory that all of them map.

Every rank has a window, in two halves. A step of a collective is: write into a half, count up,
wait until all have counted as far, read from the others' halves. A half is written again two
steps later, when everybody has counted past the step between, and so has read it.
"""

from __future__ import annotations

import atexit
import mmap
import os
import struct
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import tangrad
from tangrad_distributed import _signal
from tangrad_distributed._signal import TEXT
from tangrad_distributed.communication.reductions import ReduceOp, fold
from tangrad_distributed.engine import (
    SIGNATURE,
    SMALL,
    Context,
    Round,
    Signature,
    Transfer,
    Waiting,
)
from tangrad_distributed.engines.chunks import CHUNK, Chunks
from tangrad_distributed.engines.direct import Direct
from tangrad_distributed.engines.rings import RING, Ring
from tangrad_distributed.engines.streams import Sink, Source, StreamEngine
from tangrad_distributed.engines.wait_for_graph import PATIENCE, WaitForGraph
from tangrad_distributed.errors import DistBackendError

PAGE = 4096
# Parts of a chunk, and behind them what was reduced of another.
HALF = 2 * CHUNK
SPINS = 3000
# The control page of a rank.
_STEP, _STATE, _WAITS, _EPOCH, _SIGNED, _SHOWN, _MESSAGE = 0, 64, 72, 80, 88, 128, 1536
_PID, _ADDRESS, _OPEN, _WRITES = 104, 96, 112, 120
_TOLD = SIGNATURE + TEXT
_ALIVE, _LEFT, _FAILED = range(3)
# Behind a half's table stands its content.
_TABLE = struct.Struct("<QQQ")


def machine() -> str:
    """Return a name that only processes of this machine, and of this container, have in common."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        boot = file.read().strip()
    return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"


def process_state(pid: int) -> str:
    """Return "" while a process runs, else what became of it."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state = file.read().rpartition(b")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "ended"
    return "ended" if state in (b"Z", b"X") else ""


class SharedMemory(StreamEngine):
    """Carry bytes between processes of one machine."""

    name = "local"
    rounds_agree = True
    small = SMALL

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._table_size = _TABLE.size * self.size
        self._half = HALF + PAGE * (1 + self._table_size // PAGE)
        self._window = 2 * self._half
        rings = self.size * self.size * RING
        self._total = self.size * (PAGE + self._window) + rings
        self._map = self._shared(context)
        self._bytes = memoryview(self._map)
        whole = tangrad.frombuffer(self._map, dtype=tangrad.uint8)
        self._whole, self._base = whole, whole.data_ptr()
        self._views: dict[tuple[int, int, Any], Any] = {}
        self.pids = [self._word(rank, _PID) for rank in range(self.size)]
        self._meeting = _signal.Meeting(self._base, PAGE, _SHOWN, self.rank, self.size)
        self._small: dict[Any, tuple[bytes, Any, list[Any]]] = {}
        self._chunks = Chunks(self)
        self._direct = Direct(self, _ADDRESS, _OPEN, _WRITES)
        known = (one.wait_for_graph for one in list(_open) if one.wait_for_graph.covers(self))
        found = next(known, None)
        self.wait_for_graph: WaitForGraph = found or WaitForGraph(self, _WAITS, _EPOCH, _SIGNED)
        self.wait_for_graph.join(self)
        _open.add(self)

    # The memory -------------------------------------------------------------------------------

    def _shared(self, context: Context) -> mmap.mmap:
        """Map memory without a name, which ends with the last process that has it."""
        store = context.store
        if self.rank == 0:
            descriptor = os.memfd_create("tangrad", os.MFD_CLOEXEC)
            os.ftruncate(descriptor, self._total)
            store.set("memory", f"/proc/{os.getpid()}/fd/{descriptor}")
        else:
            descriptor = os.open(store.get("memory").decode(), os.O_RDWR | os.O_CLOEXEC)
        try:
            mapped = mmap.mmap(descriptor, self._total)
            struct.pack_into("<Q", mapped, self._page(self.rank) + _PID, os.getpid())
            store.barrier("mapped", self.size)
        finally:
            os.close(descriptor)
        return mapped

    def _page(self, rank: int) -> int:
        return rank * PAGE

    def _half_of(self, rank: int, step: int) -> int:
        return self.size * PAGE + rank * self._window + (step & 1) * self._half

    def _ring(self, sender: int, receiver: int) -> int:
        windows = self.size * (PAGE + self._window)
        return windows + (sender * self.size + receiver) * RING

    def _word(self, rank: int, at: int) -> int:
        return struct.unpack_from("<Q", self._bytes, self._page(rank) + at)[0]

    def _set_word(self, at: int, value: int) -> None:
        struct.pack_into("<Q", self._bytes, self._page(self.rank) + at, value)

    def word_at(self, rank: int, at: int) -> int:
        """Return the address of a word of a rank's control page."""
        return self._base + self._page(rank) + at

    def view(self, offset: int, nbytes: int, dtype: Any) -> Any:
        """Return a part of the memory as a vector; those used before are kept."""
        key = (offset, nbytes, dtype)
        found = self._views.get(key)
        if found is None:
            if len(self._views) > 4096:
                self._views.clear()
            found = self._whole[offset : offset + nbytes].view(dtype)
            self._views[key] = found
        return found

    # Others -----------------------------------------------------------------------------------

    def lost(self) -> dict[int, str]:
        """Return the processes that ended, left the group or gave up."""
        gone = {}
        for rank in range(self.size):
            state = self._word(rank, _STATE)
            if state == _FAILED:
                start = self._page(rank) + _MESSAGE
                text = bytes(self._bytes[start : start + PAGE - _MESSAGE]).rstrip(b"\0")
                gone[rank] = f"gave up: {text.decode('utf-8', 'replace')}"
            elif state == _LEFT:
                gone[rank] = "left the group"
            elif what := process_state(self.pids[rank]):
                gone[rank] = what
        return gone

    def fail(self, message: str) -> None:
        """Tell the other processes."""
        super().fail(message)
        if self._word(self.rank, _STATE) == _ALIVE:
            text = message.encode()[: PAGE - _MESSAGE].ljust(PAGE - _MESSAGE, b"\0")
            start = self._page(self.rank) + _MESSAGE
            self._bytes[start : start + len(text)] = text
            self._set_word(_STATE, _FAILED)

    def close(self) -> None:
        """Leave the group; the memory goes when nothing of this process uses it."""
        if self in _open:
            _open.discard(self)
            self.wait_for_graph.leave(self)
            if self._word(self.rank, _STATE) == _ALIVE:
                self._set_word(_STATE, _LEFT)

    def told(self, rank: int) -> str:
        """Return what a process was last seen in."""
        step = self._word(rank, _STEP)
        text, _, line = self._told_at(rank, step)[SIGNATURE:].rstrip(b"\0").partition(b"\n")
        return f"{text.decode('utf-8', 'replace')} at {line.decode()}" if step else ""

    def _told_at(self, rank: int, step: int) -> bytes:
        start = self._page(rank) + _SHOWN + (step & 1) * _TOLD
        return bytes(self._bytes[start : start + _TOLD])

    # Collectives --------------------------------------------------------------------------------

    def meet(self, what: Signature, waiting: Waiting) -> None:
        """Meet all other processes in the current step, and see that they do the same."""
        if self._meeting.meet(self.steps, what, SPINS, 0.05):
            if self.waits_for >= 0:
                self.go_on()
        else:
            self._await(what, waiting)

    def _await(self, what: Signature, waiting: Waiting) -> None:
        """Go on waiting for those that are late, and see that all do the same."""
        step = self.steps
        while not _signal.wait_for_all(self._base, PAGE, self.size, step, SPINS, 0.05):
            late = [rank for rank in range(self.size) if self._word(rank, _STEP) < step]
            if late:
                self._look(late[0], waiting, partial(self._is_late, late[0], step))
                self.check(waiting, partial(list, late))
        self.go_on()
        if self._meeting.unlike(step, what) >= 0:
            for rank in range(self.size):
                self.compare(what, rank, self._told_at(rank, step))

    def _is_late(self, rank: int, step: int) -> bool:
        return self._word(rank, _STEP) < step

    def agree(self, what: Signature, timeout: float) -> None:
        """Meet all other processes and see that they do the same."""
        self.steps += 1
        self.meet(what, Waiting(what, timeout))

    def round(self, plan: Round, what: Signature, timeout: float) -> None:
        """Send and receive what a plan says, in pieces that fit into a half of a window."""
        waiting = Waiting(what, timeout)
        outgoing = {
            id(part): part.reshape(-1)
            for rank, part in enumerate(plan.sends)
            if rank != self.rank and part is not None
        }
        reader = _Reader(self, plan)
        passed = 0
        while True:
            self.steps += 1
            passed = self._write(plan.sends, outgoing, passed)
            self.meet(what, waiting)
            if not reader.read(self.steps):
                return

    def all_reduce(self, tensor: Any, op: ReduceOp, what: Signature, timeout: float) -> None:
        """Reduce a contiguous tensor, in place, on all ranks.

        A large one is reduced in all ranks' own memory, or chunk by chunk where Linux does not
        let ranks do that.
        """
        if tensor.numel() * tensor.element_size() <= SMALL:
            super().all_reduce(tensor, op, what, timeout)
            return
        flat = tensor.view(-1)
        if not self._direct.all_reduce(flat, op, what, timeout):
            self._chunks.all_reduce(flat, op, what, timeout)

    def content_of(self, rank: int, step: int) -> int:
        """Return where a rank's half of a window begins in which a step's content stands."""
        return self._half_of(rank, step) + self._half - HALF

    def all_reduce_small(self, tensor: Any, op: ReduceOp, what: Signature, timeout: float) -> None:
        """Reduce in one meeting: everybody writes a half of a window, and reads all others'."""
        self.steps = step = self.steps + 1
        key = (step & 1, tensor.shape, tensor.dtype)
        found = self._small.get(key)
        if found is None:
            if len(self._small) > 1024:
                self._small.clear()
            found = self._small[key] = self._place_of(step, tensor)
        table, mine, parts = found
        half = self._half_of(self.rank, step)
        mine.copy_(tensor)
        self._bytes[half : half + len(table)] = table
        if not self._meeting.meet(step, what, SPINS, 0.05):
            self._await(what, Waiting(what, timeout))
        parts[self.rank] = tensor
        fold(op, parts, tensor)
        parts[self.rank] = None

    def _place_of(self, step: int, tensor: Any) -> tuple[bytes, Any, list[Any]]:
        """Return the table that `_write` would write of a small tensor, and all ranks' views."""
        nbytes = tensor.numel() * tensor.element_size()
        parts = [
            self.view(self.content_of(rank, step), nbytes, tensor.dtype).view(tensor.shape)
            for rank in range(self.size)
        ]
        offset = self.content_of(self.rank, step)
        rows = [
            (0, 0, 0) if rank == self.rank else (offset, nbytes, 0) for rank in range(self.size)
        ]
        return b"".join(_TABLE.pack(*row) for row in rows), parts[self.rank], parts

    def _write(self, sends: Sequence[Any], flat: dict[int, Any], start: int) -> int:
        """Write the next piece of each tensor, and where it stands; return the bytes passed."""
        half = self._half_of(self.rank, self.steps)
        share = HALF // max(1, len(flat)) // 64 * 64
        content, places = half + self._half - HALF, {}
        for key, part in flat.items():
            size = part.element_size()
            count = min(share // size, max(0, part.numel() - start // size))
            if count:
                piece = part[start // size : start // size + count]
                self.view(content, count * size, part.dtype).copy_(piece)
            left = part.numel() * size - start - count * size
            places[key] = (content, count * size, max(0, left))
            content += share
        table = b"".join(
            _TABLE.pack(*places.get(id(part) if rank != self.rank else 0, (0, 0, 0)))
            for rank, part in enumerate(sends)
        )
        self._bytes[half : half + len(table)] = table
        return start + share

    def table_of(self, rank: int, step: int) -> Iterator[tuple[int, int, int]]:
        """Return (offset, bytes, bytes left) of what a rank wrote for each rank."""
        start = self._half_of(rank, step)
        return _TABLE.iter_unpack(self._bytes[start : start + self._table_size])

    # Messages between two ranks -----------------------------------------------------------------

    def source_of(self, peer: int) -> Source:
        """Return the ring that leads here from a rank."""
        return Ring(self._bytes, self._base, self._ring(peer, self.rank))

    def sink_of(self, peer: int) -> Sink:
        """Return the ring that leads to a rank."""
        return Ring(self._bytes, self._base, self._ring(self.rank, peer))

    def stuck(self, left: Sequence[Transfer], waiting: Waiting) -> None:
        """Look whether waiting is of any use; name a cycle of ranks that wait for each other."""
        if left[0].peer >= 0:
            self._look(left[0].peer, waiting, lambda: bool(self.pending(left[:1])))
        super().stuck(left, waiting)

    def _look(self, peer: int, waiting: Waiting, still: Callable[[], bool]) -> None:
        """Show others whom this rank waits for, after a while."""
        now = time.monotonic()
        if now - waiting.started > PATIENCE and now >= waiting.next_check:
            self.waits_for = peer
            self.wait_for_graph.look(self, peer, waiting.what, still)

    def go_on(self) -> None:
        """Wait for nobody any more."""
        if self.waits_for >= 0:
            self.waits_for = -1
            self.wait_for_graph.clear()

    def show_wait(self, text: str) -> None:
        """Write what this rank waits in."""
        start = self._page(self.rank) + _SHOWN + 2 * _TOLD
        self._bytes[start : start + TEXT] = text.encode()[:TEXT].ljust(TEXT, b"\0")

    def shown_wait(self, rank: int) -> str:
        """Return what a rank waits in."""
        start = self._page(rank) + _SHOWN + 2 * _TOLD
        return bytes(self._bytes[start : start + TEXT]).rstrip(b"\0").decode("utf-8", "replace")


class _Reader:
    """Take what others wrote for this rank, piece by piece."""

    def __init__(self, engine: SharedMemory, plan: Round) -> None:
        self.engine, self.plan = engine, plan
        own = plan.sends[engine.rank]
        self.own: Any = None if own is None else own.reshape(-1)
        self.targets: list[Any] = [
            None if part is None else part.reshape(-1) for part in plan.receives
        ]
        self.into: Any = None if plan.into is None else plan.into.reshape(-1)
        self.at = [0] * engine.size

    def read(self, step: int) -> bool:
        """Read the pieces of one step; tell whether anybody has more."""
        more, found = self._table(step)
        if self.plan.op is None:
            self._store(found)
        elif self.into is not None:
            self._fold(found)
        return more

    def _table(self, step: int) -> tuple[bool, dict[int, tuple[int, int]]]:
        engine, more, found = self.engine, False, {}
        # The own table tells, too, whether there is more: all ranks have to go on alike.
        for rank in range(engine.size):
            for receiver, (offset, nbytes, left) in enumerate(engine.table_of(rank, step)):
                more = more or left > 0
                if receiver == engine.rank != rank and nbytes:
                    found[rank] = (offset, nbytes)
        return more, found

    def _store(self, found: dict[int, tuple[int, int]]) -> None:
        for rank, (offset, nbytes) in found.items():
            target = self.targets[rank]
            if target is None:
                continue
            end = self.at[rank] + nbytes // target.element_size()
            if end > target.numel():
                raise DistBackendError(
                    f"{self.engine.shown(rank)} sent more than the {target.numel()} elements of "
                    f"{target.dtype} that {self.engine.shown(self.engine.rank)} has room for"
                )
            target[self.at[rank] : end].copy_(self.engine.view(offset, nbytes, target.dtype))
            self.at[rank] = end
        rank = self.engine.rank
        if self.targets[rank] is not None and self.at[rank] == 0:
            self.targets[rank].copy_(self.own)
            self.at[rank] = 1

    def _fold(self, found: dict[int, tuple[int, int]]) -> None:
        into, begin = self.into, self.at[0]
        if not found and self.engine.size > 1:
            return
        size = into.element_size()
        end = begin + (next(iter(found.values()))[1] // size if found else into.numel())
        parts = [
            self.engine.view(*found[rank], into.dtype) if rank in found else self.own[begin:end]
            for rank in range(self.engine.size)
        ]
        assert self.plan.op is not None
        fold(self.plan.op, parts, into[begin:end])
        self.at[0] = end


_open: weakref.WeakSet[SharedMemory] = weakref.WeakSet()


@atexit.register
def _leave() -> None:
    for engine in list(_open):
        engine.close()
