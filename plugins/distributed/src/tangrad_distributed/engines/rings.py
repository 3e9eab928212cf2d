"""A stream of bytes through memory that two processes map: a ring with a head and a tail."""

from __future__ import annotations

from tangrad_distributed import _signal

_ROOM = 1 << 18
_CONTROL = 128
RING = _CONTROL + _ROOM


class Ring:
    """Be one end of a ring; one process only puts, the other only takes.

    Args:
        memory: what both map.
        base: its address here.
        offset: where the ring begins.
    """

    def __init__(self, memory: memoryview, base: int, offset: int) -> None:
        self._room = memory[offset + _CONTROL : offset + RING]
        self._tail, self._head = base + offset, base + offset + 64

    def put(self, data: memoryview) -> int:
        """Take as much of `data` as there is room for, and return how much that was."""
        tail = _signal.read(self._tail)
        count = min(_ROOM - (tail - _signal.read(self._head)), len(data))
        at = tail % _ROOM
        first = min(count, _ROOM - at)
        self._room[at : at + first] = data[:first]
        self._room[: count - first] = data[first:count]
        _signal.post(self._tail, tail + count)
        return count

    def take(self, into: memoryview) -> int:
        """Fill as much of `into` as there is, and return how much that was."""
        head = _signal.read(self._head)
        count = min(_signal.read(self._tail) - head, len(into))
        at = head % _ROOM
        first = min(count, _ROOM - at)
        into[:first] = self._room[at : at + first]
        into[first:count] = self._room[: count - first]
        _signal.post(self._head, head + count)
        return count
