"""Messages over streams of bytes, one from each rank to each other.

A message is its tag and length, then its content. The receiver takes messages out in order, and
keeps those of other tags until somebody asks for them. Nothing here waits.
"""

from __future__ import annotations

import struct
from abc import abstractmethod
from collections import defaultdict, deque
from typing import Any, Protocol

from tangrad_distributed.engine import Context, Engine, Transfer

_HEAD = struct.Struct("<qQ")


class Source(Protocol):
    """Where bytes of one rank come from."""

    def take(self, into: memoryview) -> int:
        """Fill as much of `into` as there is, and return how much that was."""


class Sink(Protocol):
    """Where bytes for one rank go."""

    def put(self, data: memoryview) -> int:
        """Take as much of `data` as there is room for, and return how much that was."""


class StreamEngine(Engine):
    """Carry messages over a stream to and from each rank."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._mail: dict[int, Mail] = {}
        self._sinks: dict[int, Sink] = {}
        self.last_send: dict[int, StreamSend] = {}

    @abstractmethod
    def source_of(self, peer: int) -> Source:
        """Return where a rank's bytes come from."""

    @abstractmethod
    def sink_of(self, peer: int) -> Sink:
        """Return where bytes for a rank go."""

    def mail_from(self, peer: int) -> Mail:
        """Return what came from a rank, sorted by tag."""
        found = self._mail.get(peer)
        if found is None:
            found = self._mail[peer] = Mail(self.source_of(peer))
        return found

    def send(self, peer: int, tag: int, data: memoryview) -> Transfer:
        """Begin to write into the stream that leads to a rank."""
        sink = self._sinks.get(peer)
        if sink is None:
            sink = self._sinks[peer] = self.sink_of(peer)
        return StreamSend(self, sink, peer, tag, data)

    def receive(self, peer: int, tag: int, into: memoryview) -> Transfer:
        """Begin to read from the streams that lead here."""
        return StreamReceive(self, peer, tag, into)


class StreamSend(Transfer):
    """Write one message, a piece at a time, behind those to the same rank before it."""

    def __init__(
        self, engine: StreamEngine, sink: Sink, peer: int, tag: int, data: memoryview
    ) -> None:
        self.peer, self.sink = peer, sink
        self.parts = deque([memoryview(_HEAD.pack(tag, len(data))), data])
        self.before = engine.last_send.get(peer)
        engine.last_send[peer] = self

    def test(self) -> bool:
        """Write what there is room for."""
        if self.before is not None:
            if not self.before.test():
                return False
            self.before = None
        while self.parts:
            part = self.parts[0]
            count = self.sink.put(part) if len(part) else 0
            if count < len(part):
                self.parts[0] = part[count:]
                return False
            self.parts.popleft()
        return True


class Mail:
    """Take messages of one sender out of its stream."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.kept: dict[int, deque[bytearray]] = defaultdict(deque)
        self.wanted: dict[int, deque[StreamReceive]] = defaultdict(deque)
        self.head = bytearray(_HEAD.size)
        self.now: tuple[int, memoryview, StreamReceive | None] | None = None
        self.filled = 0

    def advance(self) -> None:
        """Take out as much as there is."""
        while True:
            into = memoryview(self.head) if self.now is None else self.now[1]
            if self.filled < len(into):
                count = self.source.take(into[self.filled :])
                self.filled += count
                if self.filled < len(into):
                    return
            self.filled = 0
            if self.now is None:
                self._begin(*_HEAD.unpack(self.head))
            else:
                self._end(*self.now)

    def _begin(self, tag: int, nbytes: int) -> None:
        """Write a message where it is waited for, or keep it."""
        waiting = self.wanted.get(tag)
        if waiting and len(waiting[0].into) == nbytes:
            receiver = waiting.popleft()
            self.now = (tag, receiver.into, receiver)
        else:
            self.now = (tag, memoryview(bytearray(nbytes)), None)

    def _end(self, tag: int, into: memoryview, receiver: StreamReceive | None) -> None:
        self.now = None
        if receiver is None:
            self.kept[tag].append(bytearray(into))
        else:
            receiver.through = True


class StreamReceive(Transfer):
    """Receive one message."""

    def __init__(self, engine: StreamEngine, peer: int, tag: int, into: memoryview) -> None:
        self.engine, self.peer, self.tag, self.into = engine, peer, tag, into
        self.through = False
        if peer >= 0 and not self._take(peer):
            engine.mail_from(peer).wanted[tag].append(self)

    def test(self) -> bool:
        """Take in what has come."""
        if self.through:
            return True
        peers = [self.peer] if self.peer >= 0 else range(self.engine.size)
        for peer in peers:
            if peer == self.engine.rank:
                continue
            mail: Any = self.engine.mail_from(peer)
            mail.advance()
            if self.through:
                return True
            if self._take(peer):
                if self.peer >= 0:
                    mail.wanted[self.tag].remove(self)
                self.peer = peer
                return True
        return False

    def _take(self, peer: int) -> bool:
        box = self.engine.mail_from(peer).kept.get(self.tag)
        if not box:
            return False
        self.engine.fill(self.into, box.popleft(), peer)
        self.through = True
        return True
