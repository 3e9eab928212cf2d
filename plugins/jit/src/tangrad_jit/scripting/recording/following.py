"""Who follows the scripts that a thread calls: the recording of a trace, or nobody."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["follower", "following"]

_thread = threading.local()
#: Recordings in any thread: as long as there are none, a call of a script asks for nothing more.
ACTIVE: list[Any] = []


def follower() -> Any:
    """Return the recording that follows this thread, or None."""
    return getattr(_thread, "recording", None)


@contextmanager
def following(recording: Any) -> Iterator[None]:
    """Have a recording follow this thread; None stops the one that does for a while."""
    before = follower()
    _thread.recording = recording
    ACTIVE.append(recording)
    try:
        yield
    finally:
        ACTIVE.remove(recording)
        _thread.recording = before
