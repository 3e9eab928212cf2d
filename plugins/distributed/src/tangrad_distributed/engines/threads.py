"""Ranks as threads of one process: for tests and notebooks.

A rank hands out its tensors themselves; others copy from them while it waits.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from functools import partial
from typing import Any

from tangrad_distributed.communication.reductions import fold
from tangrad_distributed.engine import (
    Context,
    Engine,
    Round,
    Signature,
    Transfer,
    Waiting,
)
from tangrad_distributed.stores.store import underlying


class _Meeting:
    """Hold what the threads of one group share."""

    def __init__(self, size: int) -> None:
        self.changed = threading.Condition()
        self.reached = [0] * size
        self.shown: list[Any] = [None] * size
        self.told = [""] * size
        self.gone: dict[int, str] = {}
        self.threads: list[int | None] = [None] * size
        self.mail: dict[tuple[int, int, int], deque[bytes]] = defaultdict(deque)
        self.joined = 0


_meetings: dict[tuple[int, str], _Meeting] = {}
_meetings_lock = threading.Lock()


class _Sent(Transfer):
    def __init__(self, peer: int) -> None:
        self.peer = peer

    def test(self) -> bool:
        return True


class _Received(Transfer):
    def __init__(self, engine: Threads, peer: int, tag: int, into: memoryview) -> None:
        self.engine, self.peer, self.tag, self.into = engine, peer, tag, into
        self.through = False

    def test(self) -> bool:
        if self.through:
            return True
        meeting, me = self.engine.meeting, self.engine.rank
        senders = [self.peer] if self.peer >= 0 else range(self.engine.size)
        with meeting.changed:
            for sender in senders:
                box = meeting.mail.get((sender, me, self.tag))
                if box:
                    content = box.popleft()
                    break
            else:
                return False
        self.engine.fill(self.into, content, sender)
        self.peer, self.through = sender, True
        return True


class Threads(Engine):
    """Carry bytes between threads of this process."""

    name = "threads"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        store = underlying(context.store)
        self._key = (id(store), context.name)
        self._store = store  # kept alive, or its id could be another's
        with _meetings_lock:
            self.meeting = _meetings.setdefault(self._key, _Meeting(self.size))
            self.meeting.joined += 1
        self.meeting.threads[self.rank] = threading.get_ident()

    def send(self, peer: int, tag: int, data: memoryview) -> Transfer:
        """Leave a copy of the bytes with the receiver."""
        with self.meeting.changed:
            self.meeting.mail[self.rank, peer, tag].append(bytes(data))
            self.meeting.changed.notify_all()
        return _Sent(peer)

    def receive(self, peer: int, tag: int, into: memoryview) -> Transfer:
        """Take what has been left."""
        return _Received(self, peer, tag, into)

    def lost(self) -> dict[int, str]:
        """Return the threads that ended."""
        alive = {thread.ident for thread in threading.enumerate()}
        gone = dict(self.meeting.gone)
        for rank, ident in enumerate(self.meeting.threads):
            if ident is not None and ident not in alive:
                gone.setdefault(rank, "ended")
        return gone

    def fail(self, message: str) -> None:
        """Tell the other threads."""
        super().fail(message)
        with self.meeting.changed:
            self.meeting.gone[self.rank] = f"gave up: {message}"
            self.meeting.changed.notify_all()

    def close(self) -> None:
        """Leave the group."""
        with self.meeting.changed:
            self.meeting.gone.setdefault(self.rank, "left the group")
            self.meeting.changed.notify_all()
        with _meetings_lock:
            self.meeting.joined -= 1
            if self.meeting.joined == 0:
                _meetings.pop(self._key, None)

    def told(self, rank: int) -> str:
        """Return what a thread was last seen in."""
        return self.meeting.told[rank]

    def stack_of(self, rank: int) -> str:
        """Return where a thread is."""
        from tangrad_distributed.watching.stacks import stack_of_thread

        return stack_of_thread(self.meeting.threads[rank])

    def agree(self, what: Signature, timeout: float) -> None:
        """Meet all other threads and see that they do the same."""
        self._meet((what.content + what.told, None), Waiting(what, timeout))
        packed = [shown[0] for shown in self.meeting.shown]
        self._meet(None, Waiting(what, timeout))
        for rank in range(self.size):
            self.compare(what, rank, packed[rank])

    def round(self, plan: Round, what: Signature, timeout: float) -> None:
        """Show the tensors, copy from the others', and wait until all have copied."""
        waiting = Waiting(what, timeout)
        self._meet(plan.sends, waiting)
        shown = list(self.meeting.shown)
        result = None
        if plan.op is not None and plan.into is not None:
            # Into memory of its own: others still read what this rank shows.
            result = plan.into.new_empty(plan.into.shape)
            fold(plan.op, [sends[self.rank] for sends in shown], result)
        elif plan.op is None:
            for rank, target in enumerate(plan.receives):
                if target is not None:
                    target.copy_(shown[rank][self.rank])
        self._meet(None, waiting)
        if result is not None:
            plan.into.copy_(result)

    def _meet(self, shown: Any, waiting: Waiting) -> None:
        """Show something, and wait until all threads have come as far."""
        self.steps += 1
        step, meeting = self.steps, self.meeting
        with meeting.changed:
            meeting.told[self.rank] = f"{waiting.what.text} at {waiting.what.line}"
            if shown is not None:
                meeting.shown[self.rank] = shown
            meeting.reached[self.rank] = step
            meeting.changed.notify_all()

            def missing() -> list[int]:
                return [rank for rank, at in enumerate(meeting.reached) if at < step]

            while missing():
                meeting.changed.wait(0.05)
                late = missing()
                if late:
                    meeting.changed.release()
                    try:
                        self.check(waiting, partial(list, late))
                    finally:
                        meeting.changed.acquire()
