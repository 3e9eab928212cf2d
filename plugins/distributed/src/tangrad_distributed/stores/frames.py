"""Messages on a socket between processes that share a key.

A frame is its length (8 bytes, little endian) and its content. Before the first one, both sides
prove that they hold the key without sending it: each answers the other's random challenge by an
HMAC-SHA256 (RFC 2104) of the challenge and its own role.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import struct
import time

from tangrad_distributed.errors import DistNetworkError

KEY_VARIABLE = "TANGRAD_DISTRIBUTED_KEY"
MAGIC = b"tangrad1"
LARGEST = 1 << 30
_LENGTH = struct.Struct("<Q")
_CHALLENGE = 16


def shared_key() -> bytes:
    """Return the key that the launcher handed out; empty where nobody did."""
    return os.environ.get(KEY_VARIABLE, "").encode()


def new_key() -> str:
    """Return a key for the ranks of one run."""
    return secrets.token_hex(16)


def answer(key: bytes, role: bytes, challenge: bytes) -> bytes:
    """Return the proof that whoever plays `role` holds the key."""
    return hmac.digest(key, role + challenge, "sha256")


def receive_exactly(sock: socket.socket, size: int) -> bytes:
    """Read `size` bytes.

    Raises:
        DistNetworkError: the connection ended before.
    """
    parts = bytearray()
    while len(parts) < size:
        part = sock.recv(min(size - len(parts), 1 << 20))
        if not part:
            raise DistNetworkError("the connection was closed by the other side")
        parts += part
    return bytes(parts)


def send_frame(sock: socket.socket, content: bytes) -> None:
    """Write one frame."""
    sock.sendall(_LENGTH.pack(len(content)) + content)


def receive_frame(sock: socket.socket) -> bytes:
    """Read one frame.

    Raises:
        DistNetworkError: the connection ended, or the frame is longer than any of ours.
    """
    (size,) = _LENGTH.unpack(receive_exactly(sock, _LENGTH.size))
    if size > LARGEST:
        raise DistNetworkError(f"a message of {size} bytes is longer than any that ranks send")
    return receive_exactly(sock, size)


def connect(host: str, port: int, key: bytes, deadline: float) -> socket.socket:
    """Open a connection to whoever listens with the same key, waiting until somebody does.

    Raises:
        DistNetworkError: nobody listens there before `deadline` (of `time.monotonic`), or who
            does holds another key or is no rank.
    """
    while True:
        try:
            sock = socket.create_connection((host, port), timeout=5)
            break
        except OSError as error:
            if time.monotonic() >= deadline:
                raise DistNetworkError(
                    f"nobody listens at {host}:{port}: {error}. Is rank 0 running, and are "
                    "MASTER_ADDR and MASTER_PORT the same on all ranks?"
                ) from None
            time.sleep(0.02)
    try:
        sock.settimeout(10)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        mine = secrets.token_bytes(_CHALLENGE)
        sock.sendall(MAGIC + mine)
        greeting = receive_exactly(sock, len(MAGIC) + _CHALLENGE + 32)
        theirs = greeting[len(MAGIC) : len(MAGIC) + _CHALLENGE]
        if not greeting.startswith(MAGIC) or not hmac.compare_digest(
            greeting[-32:], answer(key, b"listens", mine)
        ):
            raise DistNetworkError(
                f"who listens at {host}:{port} does not hold this run's key ({KEY_VARIABLE})"
            )
        sock.sendall(answer(key, b"connects", theirs))
        sock.settimeout(None)
    except (OSError, DistNetworkError) as error:
        sock.close()
        if isinstance(error, DistNetworkError):
            raise
        raise DistNetworkError(f"{host}:{port} does not answer as a rank does: {error}") from None
    return sock


def accept(sock: socket.socket, key: bytes, patience: float = 10.0) -> None:
    """Have who just connected prove that it holds the key.

    Raises:
        DistNetworkError: it does not.
    """
    try:
        sock.settimeout(patience)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        greeting = receive_exactly(sock, len(MAGIC) + _CHALLENGE)
        if not greeting.startswith(MAGIC):
            raise DistNetworkError("who connected is no rank of tangrad")
        mine = secrets.token_bytes(_CHALLENGE)
        sock.sendall(MAGIC + mine + answer(key, b"listens", greeting[len(MAGIC) :]))
        if not hmac.compare_digest(receive_exactly(sock, 32), answer(key, b"connects", mine)):
            raise DistNetworkError("who connected does not hold this run's key")
        sock.settimeout(None)
    except OSError as error:
        raise DistNetworkError(f"who connected does not answer: {error}") from None
