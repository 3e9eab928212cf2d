"""Messages between two ranks that are under way while their sender goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from tangrad_distributed.communication.work import Work
from tangrad_distributed.engine import Engine, Signature, Transfer, Waiting
from tangrad_distributed.errors import RankLostError


class _Pending:
    """Hold a message with whom to tell about it."""

    def __init__(
        self, transfer: Transfer, waiting: Waiting, work: Work, then: Callable[[], None] | None
    ) -> None:
        self.transfer, self.waiting, self.work, self.then = transfer, waiting, work, then


class Messages:
    """Move the messages of one group on.

    Args:
        engine: what carries them.
        follow: is told of a rank that was lost while one was under way.
    """

    def __init__(self, engine: Engine, follow: Callable[[int], None]) -> None:
        self._engine, self._follow = engine, follow
        self._pending: list[_Pending] = []
        self._changed = threading.Condition()
        self._running = self._stopped = False

    def begin(self, start: Callable[[], Transfer]) -> Transfer:
        """Start a message while no other is moved on."""
        with self._engine.lock:
            return start()

    def finish(self, transfers: Sequence[Transfer], what: Signature, limit: float) -> None:
        """Wait for messages."""
        try:
            self._engine.finish(transfers, Waiting(what, limit))
        except RankLostError as error:
            self._follow(error.rank)
            raise

    def go(
        self,
        transfer: Transfer,
        what: Signature,
        limit: float,
        result: list[Any],
        async_op: bool,
        then: Callable[[], None] | None = None,
    ) -> Work | None:
        """Wait for a message, or have the thread of messages move it on."""
        if not async_op:
            self.finish([transfer], what, limit)
            if then is not None:
                then()
            return None
        work = Work(result, what.text)
        pending = _Pending(transfer, Waiting(what, limit), work, then)
        if not self._engine.pending([transfer]):
            self._conclude(pending)
            return work
        with self._changed:
            self._pending.append(pending)
            self._engine.expect(len(self._pending))
            if not self._running:
                self._running = True
                threading.Thread(target=self._loop, name="tangrad messages", daemon=True).start()
            self._changed.notify()
        return work

    def _loop(self) -> None:
        pause = 0.0
        while not self._stopped:
            with self._changed:
                if not self._pending and not self._changed.wait_for(lambda: self._pending, 5.0):
                    self._running = False
                    return
                current = list(self._pending)
            over = [one for one in current if self._is_over(one)]
            if over:
                pause = 0.0
                with self._changed:
                    self._pending = [one for one in self._pending if one not in over]
                    self._engine.expect(len(self._pending))
                continue
            time.sleep(pause)
            pause = min(pause + 2e-5, 1e-3)

    def _is_over(self, one: _Pending) -> bool:
        try:
            if self._engine.pending([one.transfer]):
                peer = one.transfer.peer
                self._engine.check(one.waiting, lambda: [peer] if peer >= 0 else [])
                return False
        except Exception as error:
            if isinstance(error, RankLostError):
                self._follow(error.rank)
            one.work._fail(error)
            return True
        self._conclude(one)
        return True

    def _conclude(self, one: _Pending) -> None:
        if one.then is not None:
            one.then()
        one.work._source = one.transfer.peer
        one.work._succeed()

    def stop(self) -> None:
        """Move nothing on any more."""
        self._stopped = True
