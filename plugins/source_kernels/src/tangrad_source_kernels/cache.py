"""Keep what compilers made in files: one per source, architecture and compiler.

Processes share a folder without locks. An entry is written beside its place and renamed, so it is
there whole or not at all; it begins with a checksum of the rest, so a damaged one is made anew. A
folder that cannot be written, or a full disk, costs no more than the cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

FOLDER_VARIABLE = "TANGRAD_KERNEL_CACHE"
_MARK = b"tangrad1"


def folder() -> Path | None:
    """Return where entries lie; None if `TANGRAD_KERNEL_CACHE` is set to nothing: no cache."""
    named = os.environ.get(FOLDER_VARIABLE)
    if named is not None:
        return Path(named) if named else None
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tangrad" / "kernels"


def key_of(source: str, *circumstances: str) -> str:
    """Return the name of an entry: a digest of a source and of all else that makes a difference."""
    digest = hashlib.sha256()
    for part in (*circumstances, source):
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return digest.hexdigest()


def cached(key: str, make: Callable[[], bytes]) -> bytes:
    """Return the entry of a key, made if it is not there or damaged."""
    place = _place(key)
    found = None if place is None else _read(place)
    if found is not None:
        return found
    made = make()
    if place is not None:
        with contextlib.suppress(OSError):
            _write(place, made)
    return made


def forget(key: str) -> None:
    """Remove an entry that turned out to be of no use: the device refused to load it."""
    place = _place(key)
    if place is not None:
        with contextlib.suppress(OSError):
            place.unlink()


def _place(key: str) -> Path | None:
    try:
        found = folder()
    except RuntimeError:  # there is no home
        return None
    return None if found is None else found / key[:2] / key[2:]


def _read(place: Path) -> bytes | None:
    try:
        content = place.read_bytes()
    except OSError:
        return None
    head, body = content[: len(_MARK) + 32], content[len(_MARK) + 32 :]
    return body if head == _MARK + hashlib.sha256(body).digest() else None


def _write(place: Path, body: bytes) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=place.parent, prefix=".")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(_MARK + hashlib.sha256(body).digest() + body)
        os.replace(name, place)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
