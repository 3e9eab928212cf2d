"""A store in one process that others reach over TCP.

Nothing that arrives is unpickled or run: a request is a command, a key and bytes. Who does not
hold the run's key (`frames.KEY_VARIABLE`) is turned away before its first request is read.
"""

from __future__ import annotations

import atexit
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, ClassVar

from tangrad_distributed.errors import DistNetworkError, DistStoreError
from tangrad_distributed.stores import frames
from tangrad_distributed.stores.store import DEFAULT_TIMEOUT, HashStore, Store, as_bytes

_WAIT, _GET, _SET, _ADD, _COMPARE, _DELETE, _KEYS, _APPEND, _SWAP = range(9)
_TIME = struct.Struct("<d")
# How long a store that closes waits until what it was asked for is answered.
_FAREWELL = 1.0


def _joined(*parts: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(part)) + part for part in parts)


def _split(content: bytes) -> list[bytes]:
    parts, at = [], 0
    while at < len(content):
        (size,) = struct.unpack_from("<I", content, at)
        if at + 4 + size > len(content):
            raise DistNetworkError("a request is shorter than it says")
        parts.append(content[at + 4 : at + 4 + size])
        at += 4 + size
    return parts


class _Server:
    """Serve a `HashStore`, with a thread for each connection."""

    def __init__(self, host: str, port: int, listen_fd: int | None) -> None:
        self.held = HashStore()
        self.key = frames.shared_key()
        if listen_fd is not None:
            self.listening = socket.socket(fileno=listen_fd)
        else:
            self.listening = _listen(host, port)
        self.port = self.listening.getsockname()[1]
        self._closed = False
        self._open: dict[socket.socket, threading.Thread] = {}
        self._process = os.getpid()
        # Threads that answer still run then, unlike when the interpreter takes objects down.
        atexit.register(self.close)
        threading.Thread(target=self._accept, name="tangrad store", daemon=True).start()

    def _accept(self) -> None:
        while not self._closed:
            try:
                sock, _ = self.listening.accept()
            except OSError:
                return
            self._open[sock] = threading.Thread(
                target=self._serve, args=(sock,), name="tangrad store", daemon=True
            )
            self._open[sock].start()

    def _serve(self, sock: socket.socket) -> None:
        try:
            frames.accept(sock, self.key)
            while not self._closed:
                frames.send_frame(sock, self._answer(frames.receive_frame(sock)))
        except (OSError, DistNetworkError):
            pass  # who left, or never was a rank, tells us nothing more
        finally:
            self._open.pop(sock, None)
            sock.close()

    def _answer(self, request: bytes) -> bytes:
        try:
            return b"+" + _joined(*_COMMANDS[request[0]](self.held, *_split(request[1:])))
        except (DistStoreError, DistNetworkError) as error:
            return b"-" + str(error).encode()
        except (TypeError, LookupError, ValueError, OverflowError, struct.error) as error:
            return b"-" + f"the store does not understand a request: {error}".encode()

    def close(self) -> None:
        """Stop serving, once what was asked for has been answered.

        Who writes the key that this process waits for would otherwise see the store vanish
        instead of the answer.
        """
        atexit.unregister(self.close)
        if self._process != os.getpid():
            return  # a fork: the connections are its parent's
        self._closed = True
        # close() alone would not wake threads that wait for a connection or a request.
        _shut(self.listening, socket.SHUT_RDWR)
        answering = dict(self._open)
        for sock in answering:
            _shut(sock, socket.SHUT_RD)
        deadline = time.monotonic() + _FAREWELL
        for thread in answering.values():
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))
        for sock in [self.listening, *answering]:
            _shut(sock, socket.SHUT_RDWR)
            sock.close()


def _shut(sock: socket.socket, how: int) -> None:
    with suppress(OSError):
        sock.shutdown(how)


def _listen(host: str, port: int) -> socket.socket:
    local = host in ("localhost", "127.0.0.1", "::1")
    family = socket.AF_INET6 if host == "::1" else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        # A store for this machine is not shown to others.
        sock.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1" if local else "", port))
    except OSError as error:
        sock.close()
        raise DistNetworkError(
            f"the store cannot listen at port {port}: {error.strerror}. Another process uses it; "
            "choose another by MASTER_PORT or --master-port, or 0 for a free one."
        ) from None
    sock.listen(1024)
    return sock


def _wait(held: HashStore, limit: bytes, *keys: bytes) -> tuple[bytes, ...]:
    held.wait([key.decode() for key in keys], timedelta(seconds=_TIME.unpack(limit)[0]))
    return ()


def _get(held: HashStore, key: bytes) -> tuple[bytes, ...]:
    value = held._read(key.decode())
    return () if value is None else (value,)


def _set(held: HashStore, key: bytes, value: bytes) -> tuple[bytes, ...]:
    held.set(key.decode(), value)
    return ()


def _add(held: HashStore, key: bytes, amount: bytes) -> tuple[bytes, ...]:
    return (str(held.add(key.decode(), int(amount))).encode(),)


def _compare(held: HashStore, key: bytes, wanted: bytes, new: bytes) -> tuple[bytes, ...]:
    return (held.compare_set(key.decode(), wanted, new),)


def _delete(held: HashStore, key: bytes) -> tuple[bytes, ...]:
    return (b"1",) if held.delete_key(key.decode()) else ()


def _keys(held: HashStore) -> tuple[bytes, ...]:
    return tuple(key.encode() for key in held.list_keys())


def _append(held: HashStore, key: bytes, value: bytes) -> tuple[bytes, ...]:
    held.append(key.decode(), value)
    return ()


def _swap(held: HashStore, key: bytes, was: bytes, old: bytes, keep: bytes, new: bytes) -> Any:
    """Replace a value if it is still the one that the caller saw."""
    expected = old if was == b"1" else None
    done = []

    def change(current: bytes | None) -> bytes | None:
        done.append(current == expected)
        return (new if keep == b"1" else None) if done[-1] else current

    held._change(key.decode(), change)
    return (b"1",) if done[-1] else ()


_COMMANDS: dict[int, Callable[..., tuple[bytes, ...]]] = {
    _WAIT: _wait,
    _GET: _get,
    _SET: _set,
    _ADD: _add,
    _COMPARE: _compare,
    _DELETE: _delete,
    _KEYS: _keys,
    _APPEND: _append,
    _SWAP: _swap,
}


class TCPStore(Store):
    """Reach the store that one process holds for all.

    Args:
        host_name: where the master is; a master of "localhost" listens on this machine only.
        port: its port; 0 has the master choose one, which `port` then tells.
        world_size: how many ranks come; with `wait_for_workers`, all wait for each other.
        is_master: whether this process holds the store.
        timeout: how long to wait for the master, and for keys.
        wait_for_workers: see `world_size`.
        multi_tenant: several stores of one process share the master.
        master_listen_fd: a listening socket to use.
        use_libuv: changes nothing.

    Raises:
        DistNetworkError: the port is used, nobody listens there in time, or who does holds
            another key.
    """

    _masters: ClassVar[dict[int, _Server]] = {}

    def __init__(
        self,
        host_name: str,
        port: int,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: timedelta = DEFAULT_TIMEOUT,
        wait_for_workers: bool = True,
        multi_tenant: bool = False,
        master_listen_fd: int | None = None,
        use_libuv: bool = True,
    ) -> None:
        super().__init__()
        if not 0 <= port < 65536:
            raise ValueError(f"TCPStore: port must be from 0 to 65535, got {port}")
        self._timeout, self.host, self._server = timeout, host_name, None
        if is_master and not (multi_tenant and port in self._masters):
            self._server = _Server(host_name, port, master_listen_fd)
            port = self._server.port
            if multi_tenant:
                self._masters[port] = self._server
        self.port = port
        self._lock = threading.Lock()
        try:
            self._sock = self._connect()
        except DistNetworkError:
            if self._server is not None:
                self._server.close()
            raise
        if world_size is not None and world_size > 0 and wait_for_workers:
            self.barrier("#workers", world_size)

    def _connect(self) -> socket.socket:
        deadline = time.monotonic() + self._timeout.total_seconds()
        return frames.connect(self.host, self.port, frames.shared_key(), deadline)

    def _ask(self, command: int, *parts: bytes) -> list[bytes]:
        with self._lock:
            try:
                frames.send_frame(self._sock, bytes([command]) + _joined(*parts))
                reply = frames.receive_frame(self._sock)
            except (OSError, DistNetworkError) as error:
                raise DistNetworkError(
                    f"the store at {self.host}:{self.port} is gone ({error}): "
                    "has the process of rank 0, or the launcher, ended?"
                ) from None
        if reply[:1] == b"-":
            raise DistStoreError(reply[1:].decode())
        return _split(reply[1:])

    def _read(self, key: str) -> bytes | None:
        return next(iter(self._ask(_GET, key.encode())), None)

    def _change(self, key: str, change: Callable[[bytes | None], bytes | None]) -> bytes | None:
        while True:
            old = self._read(key)
            new = change(old)
            seen = (b"0", b"") if old is None else (b"1", old)
            kept = (b"0", b"") if new is None else (b"1", new)
            if self._ask(_SWAP, key.encode(), *seen, *kept):
                return new

    def set(self, key: str, value: str | bytes) -> None:
        """Write a key."""
        self._ask(_SET, key.encode(), as_bytes(value))

    def add(self, key: str, amount: int) -> int:
        """Add to a counter and return the sum."""
        return int(self._ask(_ADD, key.encode(), str(amount).encode())[0])

    def append(self, key: str, value: str | bytes) -> None:
        """Write behind what a key holds."""
        self._ask(_APPEND, key.encode(), as_bytes(value))

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        """Write a key if it holds what is expected."""
        return self._ask(_COMPARE, key.encode(), as_bytes(expected), as_bytes(desired))[0]

    def delete_key(self, key: str) -> bool:
        """Delete a key and tell whether it was there."""
        return bool(self._ask(_DELETE, key.encode()))

    def list_keys(self) -> list[str]:
        """Return the names of all keys."""
        return [key.decode() for key in self._ask(_KEYS) if not key.startswith(b"#")]

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Wait until all keys are there.

        Raises:
            DistStoreError: some are not within the timeout.
        """
        limit = (self._timeout if timeout is None else timeout).total_seconds()
        deadline = time.monotonic() + limit
        names = [key.encode() for key in keys]
        while True:
            # In slices: the connection is shared, and others want to ask too.
            left = max(0.0, deadline - time.monotonic())
            try:
                self._ask(_WAIT, _TIME.pack(min(0.2, left)), *names)
                return
            except DistStoreError as error:
                if left <= 0.2:
                    text = str(error).partition("keys: ")[2] or ", ".join(keys)
                    raise DistStoreError(f"wait timeout after {limit:g} s, keys: {text}") from None

    def clone(self) -> Store:
        """Return a store with a connection of its own."""
        made = TCPStore.__new__(TCPStore)
        Store.__init__(made)
        made._timeout, made.host, made._server, made.port = (
            self._timeout,
            self.host,
            None,
            self.port,
        )
        made._lock = threading.Lock()
        made._sock = made._connect()
        return made

    def close(self) -> None:
        """Leave the store; a master stops serving."""
        self._sock.close()
        if self._server is not None:
            self._server.close()
            self._masters.pop(self.port, None)

    def __del__(self) -> None:
        # It may not have been made whole, and at exit modules may be gone.
        with suppress(OSError, AttributeError, TypeError):
            self.close()
