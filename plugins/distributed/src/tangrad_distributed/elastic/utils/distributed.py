"""Ports, by PyTorch's path."""

from __future__ import annotations

import socket


def get_free_port() -> int:
    """Return a port of this machine that nobody listens at now; it is not kept for the caller."""
    with socket.create_server(("localhost", 0)) as free:
        return int(free.getsockname()[1])
