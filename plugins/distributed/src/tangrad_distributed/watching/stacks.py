"""Show others where this process is, when they wait for it."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable

from tangrad_distributed.errors import DistError
from tangrad_distributed.stores.store import Store, underlying
from tangrad_distributed.watching.recorder import time_asked

_INTERVAL = 0.5
# How long who asks waits for an answer, in seconds: meanwhile it sees nobody come.
PATIENCE = 2.0


def stack_of_thread(ident: int | None) -> str:
    """Return the Python stack of a thread of this process."""
    frame = sys._current_frames().get(ident) if ident is not None else None
    return "".join(traceback.format_stack(frame)) if frame is not None else ""


class StackTeller:
    """Answer those who ask for the stack of the thread that made this, or for what it did last.

    Args:
        store: where other ranks ask, of whatever group.
        rank: this process's in the world.
        dump: writes the flight recorders, when somebody at this machine asks for them.
    """

    def __init__(self, store: Store, rank: int, dump: Callable[[], None]) -> None:
        self._store, self._rank, self._dump = underlying(store).clone(), rank, dump
        self._thread = threading.get_ident()
        self._stopped = threading.Event()
        threading.Thread(target=self._watch, name="tangrad stacks", daemon=True).start()

    def _watch(self) -> None:
        asked = f"stack/{self._rank}/asked"
        seen = time_asked()
        while not self._stopped.wait(_INTERVAL):
            if time_asked() > seen:
                seen = time_asked()
                self._dump()
            try:
                if self._store.check([asked]):
                    self._store.delete_key(asked)
                    self._store.set(f"stack/{self._rank}/told", stack_of_thread(self._thread))
            except (DistError, OSError):
                return

    def stop(self) -> None:
        """Answer no more."""
        self._stopped.set()


def ask_for_stack(store: Store, rank: int) -> str:
    """Return the stack of another rank of the world, or "" if it does not answer in time.

    A rank answers once for all its groups, so this asks by the store that they share.
    """
    shared, told = underlying(store), f"stack/{rank}/told"
    try:
        shared.delete_key(told)
        shared.set(f"stack/{rank}/asked", b"1")
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            time.sleep(0.1)
            if shared.check([told]):
                return shared.get(told).decode()
    except (DistError, OSError):
        pass
    return ""
