"""Stores: where ranks that do not know each other yet leave bytes under names."""

from __future__ import annotations

import fcntl
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

from tangrad_distributed.errors import DistStoreError, QueueEmptyError

DEFAULT_TIMEOUT = timedelta(seconds=300)


def as_bytes(value: Any) -> bytes:
    """Return a key's value as bytes.

    Raises:
        TypeError: it is neither bytes nor text.
    """
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"a store holds str or bytes, not {type(value).__name__}")


def follower_key(rank: int, attempt: int) -> str:
    """Return the key under which a rank tells because of which other one it failed."""
    return f"follower/{rank}/{attempt}"


def underlying(store: Any) -> Store:
    """Return the store that others show parts of."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return store


class Store:
    """Hold bytes under names, seen by every rank.

    A store gives `_change(key, change)`, which replaces a value atomically, and `_read(key)`;
    everything else follows.
    """

    def __init__(self) -> None:
        self._timeout = DEFAULT_TIMEOUT

    # What a store has to give -----------------------------------------------------------------

    def _read(self, key: str) -> bytes | None:
        raise NotImplementedError(f"{type(self).__name__} does not say how to read a key")

    def _change(self, key: str, change: Callable[[bytes | None], bytes | None]) -> bytes | None:
        raise NotImplementedError(f"{type(self).__name__} does not say how to change a key")

    def list_keys(self) -> list[str]:
        """Return the names of all keys."""
        raise NotImplementedError(f"{type(self).__name__} does not list its keys")

    def _pause(self, deadline: float) -> None:
        """Wait until something may have changed."""
        time.sleep(min(0.01, max(0.0, deadline - time.monotonic())))

    # What follows -----------------------------------------------------------------------------

    @property
    def timeout(self) -> timedelta:
        """How long `get` and `wait` wait."""
        return self._timeout

    def set_timeout(self, timeout: timedelta) -> None:
        """Set how long `get` and `wait` wait."""
        self._timeout = timeout

    def set(self, key: str, value: str | bytes) -> None:
        """Write a key."""
        content = as_bytes(value)
        self._change(key, lambda _: content)

    def get(self, key: str) -> bytes:
        """Return the value of a key, waiting until somebody has written it.

        Raises:
            DistStoreError: nobody has within the store's timeout.
        """
        self.wait([key])
        value = self._read(key)
        if value is None:
            raise DistStoreError(f"the key {key!r} was deleted while it was read")
        return value

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Wait until all keys are there.

        Raises:
            DistStoreError: some are not within the timeout.
        """
        limit = self._timeout if timeout is None else timeout
        deadline = time.monotonic() + limit.total_seconds()
        while not self.check(keys):
            if time.monotonic() >= deadline:
                missing = [key for key in keys if not self.check([key])]
                raise DistStoreError(
                    f"wait timeout after {limit.total_seconds():g} s, keys: {', '.join(missing)}"
                )
            self._pause(deadline)

    def check(self, keys: list[str]) -> bool:
        """Tell whether all keys are there."""
        return all(self._read(key) is not None for key in keys)

    def add(self, key: str, amount: int) -> int:
        """Add to a counter, which starts at 0, and return the sum."""
        changed = self._change(key, lambda old: str(int(old or b"0") + amount).encode())
        return int(changed or b"0")

    def append(self, key: str, value: str | bytes) -> None:
        """Write behind what a key holds."""
        content = as_bytes(value)
        self._change(key, lambda old: (old or b"") + content)

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        """Write a key if it holds what is expected, or is not there and nothing is expected.

        Returns:
            What the key holds afterwards.
        """
        wanted, new = as_bytes(expected), as_bytes(desired)

        def change(old: bytes | None) -> bytes | None:
            return new if old == wanted or (old is None and not wanted) else old

        held = self._change(key, change)
        return wanted if held is None else held

    def delete_key(self, key: str) -> bool:
        """Delete a key and tell whether it was there."""
        found = []
        self._change(key, lambda old: found.append(old is not None))
        return found[-1]

    def num_keys(self) -> int:
        """Return how many keys there are."""
        return len(self.list_keys())

    def multi_get(self, keys: list[str]) -> list[bytes]:
        """Return the values of several keys, waiting for each."""
        return [self.get(key) for key in keys]

    def multi_set(self, keys: list[str], values: list[Any]) -> None:
        """Write several keys."""
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def has_extended_api(self) -> bool:
        """Tell whether `append`, `multi_get` and `multi_set` are there."""
        return True

    def clone(self) -> Store:
        """Return a store with the same keys that another thread may use."""
        return self

    def queue_push(self, key: str, value: str | bytes) -> None:
        """Put something at the end of a queue."""
        content = as_bytes(value)
        self._change(key, lambda old: (old or b"") + struct.pack("<I", len(content)) + content)

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        """Take what stands first in a queue.

        Raises:
            QueueEmptyError: nothing is there and `block` is False.
            DistStoreError: nothing came within the timeout.
        """
        deadline = time.monotonic() + self._timeout.total_seconds()
        while True:
            taken: list[bytes] = []

            def change(old: bytes | None, taken: list[bytes] = taken) -> bytes | None:
                taken.clear()
                if not old:
                    return old
                end = 4 + struct.unpack_from("<I", old)[0]
                taken.append(old[4:end])
                return old[end:]

            self._change(key, change)
            if taken:
                return taken[0]
            if not block:
                raise QueueEmptyError(f"the queue {key!r} is empty")
            if time.monotonic() >= deadline:
                raise DistStoreError(f"nothing came into the queue {key!r} in time")
            self._pause(deadline)

    def queue_len(self, key: str) -> int:
        """Return how much a queue holds."""
        held, count = self._read(key) or b"", 0
        while held:
            held = held[4 + struct.unpack_from("<I", held)[0] :]
            count += 1
        return count

    def barrier(self, key: str, world_size: int, timeout: timedelta | None = None) -> None:
        """Wait until as many callers have come."""
        if self.add(f"{key}/came", 1) == world_size:
            self.set(f"{key}/all", b"1")
        self.wait([f"{key}/all"], timeout)


class HashStore(Store):
    """Hold keys in this process, for ranks that are its threads."""

    def __init__(self) -> None:
        super().__init__()
        self._held: dict[str, bytes] = {}
        self._changed = threading.Condition()

    def _read(self, key: str) -> bytes | None:
        return self._held.get(key)

    def _change(self, key: str, change: Callable[[bytes | None], bytes | None]) -> bytes | None:
        with self._changed:
            value = change(self._held.get(key))
            if value is None:
                self._held.pop(key, None)
            else:
                self._held[key] = value
            self._changed.notify_all()
        return value

    def list_keys(self) -> list[str]:
        """Return the names of all keys."""
        return sorted(self._held)

    def _pause(self, deadline: float) -> None:
        with self._changed:
            self._changed.wait(min(0.05, max(0.0, deadline - time.monotonic())))


class PrefixStore(Store):
    """Show the part of a store whose keys begin with a prefix."""

    def __init__(self, prefix: str, store: Store) -> None:
        super().__init__()
        self.prefix, self.underlying_store = prefix, store

    @property
    def timeout(self) -> timedelta:
        """How long `get` and `wait` wait."""
        return self.underlying_store.timeout

    def set_timeout(self, timeout: timedelta) -> None:
        """Set how long `get` and `wait` of the store below wait."""
        self.underlying_store.set_timeout(timeout)

    def _full(self, key: str) -> str:
        return f"{self.prefix}/{key}"

    def _read(self, key: str) -> bytes | None:
        return self.underlying_store._read(self._full(key))

    def _change(self, key: str, change: Callable[[bytes | None], bytes | None]) -> bytes | None:
        return self.underlying_store._change(self._full(key), change)

    def set(self, key: str, value: str | bytes) -> None:
        """Write a key."""
        self.underlying_store.set(self._full(key), value)

    def get(self, key: str) -> bytes:
        """Return the value of a key, waiting until somebody has written it."""
        return self.underlying_store.get(self._full(key))

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Wait until all keys are there."""
        self.underlying_store.wait([self._full(key) for key in keys], timeout)

    def add(self, key: str, amount: int) -> int:
        """Add to a counter and return the sum."""
        return self.underlying_store.add(self._full(key), amount)

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        """Write a key if it holds what is expected."""
        return self.underlying_store.compare_set(self._full(key), expected, desired)

    def list_keys(self) -> list[str]:
        """Return the names of the keys with the prefix, without it."""
        start = f"{self.prefix}/"
        keys = self.underlying_store.list_keys()
        return [key[len(start) :] for key in keys if key.startswith(start)]

    def clone(self) -> Store:
        """Return a store with the same keys that another thread may use."""
        return PrefixStore(self.prefix, self.underlying_store.clone())

    def _pause(self, deadline: float) -> None:
        self.underlying_store._pause(deadline)


_ENTRY = struct.Struct("<IIB")


class FileStore(Store):
    """Hold keys in a file that all ranks of one machine, or of a shared disk, can reach.

    The file is a log: each change is written behind the others under a lock, and readers go on
    from where they stopped. It is deleted with the last of `world_size` stores.

    Args:
        file_name: path of the file; its folder must be there.
        world_size: how many stores share it; -1 keeps the file.
    """

    def __init__(self, file_name: str, world_size: int = -1) -> None:
        super().__init__()
        self.path = str(file_name)
        self._world_size = world_size
        self._held: dict[str, bytes] = {}
        self._read_to = 0
        self._lock = threading.Lock()
        with self._locked() as file:
            self._catch_up(file)
        self._opened = self.add("#opened", 1) if world_size > 0 else 0

    @contextmanager
    def _locked(self) -> Iterator[Any]:
        with self._lock, open(self.path, "a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file

    def _catch_up(self, file: Any) -> None:
        file.seek(self._read_to)
        content = file.read()
        at = 0
        while at + _ENTRY.size <= len(content):
            name_size, size, kept = _ENTRY.unpack_from(content, at)
            end = at + _ENTRY.size + name_size + size
            if end > len(content):
                break
            name = content[at + _ENTRY.size : at + _ENTRY.size + name_size].decode()
            if kept:
                self._held[name] = content[at + _ENTRY.size + name_size : end]
            else:
                self._held.pop(name, None)
            at = end
        self._read_to += at

    def _read(self, key: str) -> bytes | None:
        with self._locked() as file:
            self._catch_up(file)
            return self._held.get(key)

    def _change(self, key: str, change: Callable[[bytes | None], bytes | None]) -> bytes | None:
        with self._locked() as file:
            self._catch_up(file)
            old = self._held.get(key)
            value = change(old)
            if value == old:
                return value
            name, content = key.encode(), value or b""
            file.seek(self._read_to)
            file.truncate()
            file.write(_ENTRY.pack(len(name), len(content), value is not None) + name + content)
            file.flush()
            self._catch_up(file)
            return value

    def list_keys(self) -> list[str]:
        """Return the names of all keys."""
        with self._locked() as file:
            self._catch_up(file)
            return sorted(key for key in self._held if not key.startswith("#"))

    def close(self) -> None:
        """Leave the file, and delete it if all have."""
        if self._world_size > 0 and os.path.exists(self.path):
            if self.add("#left", 1) >= self._world_size:
                os.unlink(self.path)
            self._world_size = -1

    def __del__(self) -> None:
        # The folder may be gone, and at exit so may be modules.
        with suppress(OSError, AttributeError, NameError, TypeError):
            self.close()
