"""Ranks on several machines, with a TCP connection between any two."""

from __future__ import annotations

import socket
import time

from tangrad_distributed.engine import Context
from tangrad_distributed.engines.streams import Sink, Source, StreamEngine
from tangrad_distributed.errors import DistNetworkError
from tangrad_distributed.stores import frames
from tangrad_distributed.stores.store import underlying

GAVE_UP = "gave-up/{}"


class Connection:
    """Be one end of a connection that never waits."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self.lost = ""

    def put(self, data: memoryview) -> int:
        """Take as much of `data` as there is room for, and return how much that was."""
        try:
            return self._sock.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            self.lost = f"closed its connection ({error.strerror})"
            return 0

    def take(self, into: memoryview) -> int:
        """Fill as much of `into` as there is, and return how much that was."""
        try:
            count = self._sock.recv_into(into)
        except BlockingIOError:
            return 0
        except OSError as error:
            self.lost = f"closed its connection ({error.strerror})"
            return 0
        if count == 0:
            self.lost = "closed its connection"
        return count

    def close(self) -> None:
        """Close it."""
        self._sock.close()


class Sockets(StreamEngine):
    """Carry bytes over TCP connections of ranks that hold the run's key."""

    name = "tcp"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._connections: dict[int, Connection] = {}
        key, deadline = frames.shared_key(), time.monotonic() + context.timeout
        with socket.create_server(("", 0), backlog=context.size) as listening:
            address = f"{_own_address(context)}:{listening.getsockname()[1]}"
            context.store.set(f"address/{self.rank}", address)
            for peer in range(self.rank):
                host, _, port = context.store.get(f"address/{peer}").decode().rpartition(":")
                sock = frames.connect(host, int(port), key, deadline)
                frames.send_frame(sock, str(self.rank).encode())
                self._connections[peer] = Connection(sock)
            listening.settimeout(1.0)
            while len(self._connections) < self.size - 1:
                self._accept(listening, key, deadline)

    def _accept(self, listening: socket.socket, key: bytes, deadline: float) -> None:
        try:
            sock, _ = listening.accept()
        except TimeoutError:
            if time.monotonic() > deadline:
                missing = [r for r in range(self.rank + 1, self.size) if r not in self._connections]
                raise DistNetworkError(f"ranks {missing} did not connect in time") from None
            return
        try:
            frames.accept(sock, key)
            peer = int(frames.receive_frame(sock))
        except (DistNetworkError, ValueError):
            sock.close()  # no rank of this run
            return
        self._connections[peer] = Connection(sock)

    def source_of(self, peer: int) -> Source:
        """Return the connection to a rank."""
        return self._connections[peer]

    def sink_of(self, peer: int) -> Sink:
        """Return the connection to a rank."""
        return self._connections[peer]

    def lost(self) -> dict[int, str]:
        """Return the ranks whose connections ended, with what they said at last."""
        store, gone = self.context.store, {}
        for rank, connection in self._connections.items():
            if not connection.lost:
                continue
            gone[rank] = connection.lost
            if store.check([GAVE_UP.format(rank)]):
                gone[rank] = f"gave up: {store.get(GAVE_UP.format(rank)).decode()}"
        return gone

    def fail(self, message: str) -> None:
        """Leave the reason in the store, and close the connections, which all others see."""
        if self.failed is None:
            super().fail(message)
            self.context.store.set(GAVE_UP.format(self.rank), message)
            self._close()

    def close(self) -> None:
        """Close the connections."""
        super().close()
        self._close()

    def _close(self) -> None:
        for connection in self._connections.values():
            connection.close()


def _own_address(context: Context) -> str:
    """Return the address of this machine that the store is reached from."""
    host = getattr(underlying(context.store), "host", "localhost")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))  # sends nothing: it only chooses a route
        return probe.getsockname()[0]
