"""All ranks of a machine reduce a large tensor straight in each other's memory.

Each rank reduces one piece: part by part it reads the others' numbers, reduces them, and writes
the result to all others, while the part is in its caches. Each rank's tensor thus is read once and
written once, no bytes go through a third place, and the whole costs two meetings. The way is
`process_vm_readv`, which Linux allows to processes of one user that may trace each other.

A rank that fails on the way must not have its tensor written any more, for the memory may become
another's. So it is open to others only from the first meeting to the second: who writes says so,
looks whether it is still open, and only then writes; who fails closes it and then waits for those
who write.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tangrad
from tangrad_distributed import _peers
from tangrad_distributed.communication.reductions import ReduceOp, fold
from tangrad_distributed.engine import Signature, Waiting
from tangrad_distributed.errors import DistBackendError

# Large enough that a system call is little beside it, small enough for a core's caches: measured.
PART = 1 << 20
_LINE = 64
# Tensors of failed collectives that a rank, stopped on its way, may still write to.
_kept: list[Any] = []


def _yama() -> bool:
    """Tell whether Linux lets only chosen processes trace this one."""
    try:
        return Path("/proc/sys/kernel/yama/ptrace_scope").read_text().strip() == "1"
    except OSError:
        return False


class Direct:
    """Reduce tensors in each other's memory.

    Args:
        engine: the `SharedMemory` whose ranks meet.
        address: where in the own control page the tensor's address stands.
        open: where the step stands for which it may be written.
        writes: where it stands whose tensor this rank writes.
    """

    def __init__(self, engine: Any, address: int, open: int, writes: int) -> None:
        self._engine = engine
        self._address, self._open, self._writes = address, open, writes
        self._allowed: bool | None = None
        self._buffers: list[Any] = []

    def all_reduce(self, flat: Any, op: ReduceOp, what: Signature, timeout: float) -> bool:
        """Reduce a vector, in place, on all ranks; return False, at once, if they may not."""
        if self._allowed is False:
            return False
        engine = self._engine
        if self._allowed is None and _yama() and os.getppid() > 1:
            _peers.let_trace(os.getppid())
        step = engine.steps + 1
        _peers.put(self._at(engine.rank, self._address), flat.data_ptr())
        _peers.put(self._at(engine.rank, self._open), step)
        try:
            engine.agree(what, timeout)
            if self._allowed is None:
                self._allowed = self._ask(flat, what, timeout)
            if self._allowed:
                self._reduce(flat, op, step, Waiting(what, timeout))
                engine.agree(what, timeout)
        except BaseException:
            self._close(flat)
            raise
        _peers.put(self._at(engine.rank, self._open), 0)
        return self._allowed

    def _at(self, rank: int, word: int) -> int:
        return self._engine.word_at(rank, word)

    def _others(self) -> Iterator[tuple[int, int, int]]:
        """Yield rank, process and the address of the tensor of all others."""
        engine = self._engine
        for rank in range(engine.size):
            if rank != engine.rank:
                yield rank, engine.pids[rank], _peers.get(self._at(rank, self._address))

    def _ask(self, flat: Any, what: Signature, timeout: float) -> bool:
        """Try to read all others' tensors, and see whether all ranks can."""
        engine, probe = self._engine, tangrad.empty(1, dtype=flat.dtype)
        can = not any(
            _peers.read(pid, address, probe.data_ptr(), flat.element_size())
            for _, pid, address in self._others()
        )
        _peers.put(self._at(engine.rank, self._writes), 0 if can else engine.size + 1)
        engine.agree(what, timeout)
        every = [_peers.get(self._at(rank, self._writes)) for rank in range(engine.size)]
        return max(every) <= engine.size

    def _reduce(self, flat: Any, op: ReduceOp, step: int, waiting: Waiting) -> None:
        engine, size = self._engine, flat.element_size()
        # Whole lines of the caches, but for the last.
        line = max(1, _LINE // size)
        share = -(-flat.numel() // (engine.size * line)) * line
        start = min(flat.numel(), share * engine.rank)
        piece = flat[start : start + share]
        others = list(self._others())
        buffers = self._buffers_of(flat.dtype)
        writes, offset = self._at(engine.rank, self._writes), start * size
        here = flat.data_ptr()
        level: list[Any] = [None] * engine.size
        for part in piece.split(PART // size) if piece.numel() else ():
            nbytes = part.numel() * size
            for (rank, pid, there), (buffer, at) in zip(others, buffers, strict=True):
                failed = _peers.read(pid, there + offset, at, nbytes)
                if failed:
                    self._refuse(rank, failed, waiting)
                level[rank] = buffer if nbytes == PART else buffer[: part.numel()]
            level[engine.rank] = part
            fold(op, level, part)
            for rank, pid, there in others:
                # Of each rank another bit of time: 1 + rank, for 0 is nobody.
                failed = _peers.write(
                    writes,
                    rank + 1,
                    self._at(rank, self._open),
                    step,
                    pid,
                    there + offset,
                    here + offset,
                    nbytes,
                )
                if failed:
                    self._refuse(rank, failed, waiting)
            offset += nbytes

    def _buffers_of(self, dtype: Any) -> list[tuple[Any, int]]:
        """Return a place for a part of each of the other ranks, and its address."""
        if not self._buffers:
            count = self._engine.size - 1
            self._buffers = [tangrad.empty(PART, dtype=tangrad.uint8) for _ in range(count)]
        return [(buffer.view(dtype), buffer.data_ptr()) for buffer in self._buffers]

    def _refuse(self, rank: int, failed: int, waiting: Waiting) -> None:
        """Raise what a rank's memory could not be reached for: most often, it has just ended.

        Raises:
            RankLostError: it has, or gave up.
            DistBackendError: it is there.
        """
        engine, deadline = self._engine, time.monotonic() + 1.0
        while time.monotonic() < deadline:
            waiting.next_check = 0.0
            engine.check(waiting, lambda: [rank])
            time.sleep(0.005)
        why = os.strerror(failed) if failed > 0 else "it has left the collective"
        raise DistBackendError(
            f"{waiting.what.text} at {waiting.what.line} on {engine.shown(engine.rank)} cannot "
            f"reach the memory of {engine.shown(rank)}: {why}"
        )

    def _close(self, flat: Any) -> None:
        """Have nobody write a tensor any more."""
        engine, deadline = self._engine, time.monotonic() + 1.0
        _peers.put(self._at(engine.rank, self._open), 0)
        for rank, _, _ in self._others():
            while _peers.get(self._at(rank, self._writes)) == engine.rank + 1:
                if rank in engine.lost():
                    break
                if time.monotonic() > deadline:
                    _kept.append(flat)
                    return
                time.sleep(0.0005)
