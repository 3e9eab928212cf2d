"""How ranks find each other: an address becomes a store, a rank and the number of ranks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlparse

from tangrad_distributed.stores.store import DEFAULT_TIMEOUT, FileStore, Store
from tangrad_distributed.stores.tcp_store import TCPStore

Found = tuple[Store, int, int]
Handler = Callable[..., Iterator[Found]]
_handlers: dict[str, Handler] = {}


def register_rendezvous_handler(scheme: str, handler: Handler) -> None:
    """Say how ranks with addresses of a scheme find each other.

    Args:
        scheme: what stands before `://`.
        handler: called with the address and keywords; yields (store, rank, number of ranks).

    Raises:
        RuntimeError: the scheme has a handler.
    """
    if scheme in _handlers:
        raise RuntimeError(f"Rendezvous handler for {scheme}:// already registered")
    _handlers[scheme] = handler


def rendezvous(url: str, rank: int = -1, world_size: int = -1, **kwargs: Any) -> Iterator[Found]:
    """Yield a store, this process's rank and the number of ranks.

    Args:
        url: `env://`, `file:///path`, `tcp://host:port`, or of a registered scheme.
        rank: this process's, if the address does not tell.
        world_size: how many there are, if the address does not tell.
        **kwargs: for the handler; `timeout`.

    Raises:
        RuntimeError: nobody knows the scheme.
        ValueError: rank or number of ranks are missing or impossible.
    """
    if not isinstance(url, str):
        raise RuntimeError(f"rendezvous: the address must be a str, got {url!r}")
    scheme = urlparse(url).scheme
    if scheme not in _handlers:
        known = ", ".join(f"{name}://" for name in sorted(_handlers))
        raise RuntimeError(f"No rendezvous handler for {scheme}://; known: {known}")
    return _handlers[scheme](url, rank=rank, world_size=world_size, **kwargs)


def check_rank(rank: int, world_size: int, where: str) -> None:
    """Refuse a rank that cannot be.

    Raises:
        ValueError: `world_size` is below 1, or `rank` is not below it.
    """
    if world_size < 1:
        raise ValueError(f"{where}: world_size must be at least 1, got {world_size}")
    if not 0 <= rank < world_size:
        raise ValueError(f"{where}: rank must be from 0 to {world_size - 1}, got {rank}")


def _asked(url: str, rank: int, world_size: int) -> tuple[int, int]:
    query = parse_qs(urlparse(url).query)
    if "rank" in query:
        rank = int(query["rank"][0])
    if "world_size" in query:
        world_size = int(query["world_size"][0])
    return rank, world_size


def _by_environment(
    url: str, rank: int = -1, world_size: int = -1, timeout: timedelta = DEFAULT_TIMEOUT, **_: Any
) -> Iterator[Found]:
    def value(name: str) -> str:
        found = os.environ.get(name)
        if found is None:
            raise ValueError(
                f"Error initializing tangrad.distributed using env:// rendezvous: environment "
                f"variable {name} expected, but not set. Start the program by "
                "`python -m tangrad.distributed.run`, which sets it."
            )
        return found

    rank, world_size = _asked(url, rank, world_size)
    rank = int(value("RANK")) if rank == -1 else rank
    world_size = int(value("WORLD_SIZE")) if world_size == -1 else world_size
    check_rank(rank, world_size, "env://")
    host, port = value("MASTER_ADDR"), int(value("MASTER_PORT"))
    # The launcher holds the store, so that it outlives a rank and can be asked about it.
    elsewhere = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = TCPStore(host, port, None, rank == 0 and not elsewhere, timeout, multi_tenant=True)
    yield store, rank, world_size


def _by_file(
    url: str, rank: int = -1, world_size: int = -1, timeout: timedelta = DEFAULT_TIMEOUT, **_: Any
) -> Iterator[Found]:
    parsed = urlparse(url)
    if not parsed.path:
        raise ValueError(f"file:// needs a path, got {url!r}")
    rank, world_size = _asked(url, rank, world_size)
    check_rank(rank, world_size, url)
    store = FileStore(parsed.path, world_size)
    store.set_timeout(timeout)
    yield store, rank, world_size


def _by_address(
    url: str, rank: int = -1, world_size: int = -1, timeout: timedelta = DEFAULT_TIMEOUT, **_: Any
) -> Iterator[Found]:
    parsed = urlparse(url)
    if parsed.port is None or not parsed.hostname:
        raise ValueError(f"tcp:// needs a host and a port, got {url!r}")
    rank, world_size = _asked(url, rank, world_size)
    check_rank(rank, world_size, url)
    store = TCPStore(parsed.hostname, parsed.port, None, rank == 0, timeout, multi_tenant=True)
    yield store, rank, world_size


register_rendezvous_handler("env", _by_environment)
register_rendezvous_handler("file", _by_file)
register_rendezvous_handler("tcp", _by_address)
