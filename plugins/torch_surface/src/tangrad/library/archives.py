"""Archives: extracted whole or not at all, and only below the folder that is given.

Packages that stand in for a library's extension give it these in place of its own.
"""

from __future__ import annotations

import lzma
import os
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["named", "placed", "unpack"]

# What Python's readers raise for a file that is cut or is none of theirs.
DAMAGED = (
    EOFError,
    OSError,
    NotImplementedError,
    RuntimeError,
    lzma.LZMAError,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
)


def unpack(
    source: str, folder: str, kind: str, *, overwrite: bool = True, links: bool = False
) -> list[str]:
    """Extract an archive below a folder.

    Args:
        source: the archive's file.
        folder: where to; made where it is absent.
        kind: ``"zip"``, or a mode of ``tarfile.open`` such as ``"r:gz"``.
        overwrite: whether files that are there are replaced.
        links: whether links that stay in the folder are extracted, or refused.

    Returns:
        The names of the archive's files, of those that were there too.

    Raises:
        RuntimeError: the archive is damaged, or a member lies outside the folder, or is a device or
            a link that may not be; names both, and nothing of the archive is left in the folder.
    """
    folder = folder or os.curdir
    with placed(folder) as place:
        with named(source):
            files, folders = (
                _unpack_zip(source, place)
                if kind == "zip"
                else _unpack_tar(source, place, kind, links)
            )
        for name in folders:
            Path(folder, name).mkdir(parents=True, exist_ok=True)
        for name in files:
            target = Path(folder, name)
            if overwrite or not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(os.path.join(place, name), target)
    return files


@contextmanager
def placed(folder: str) -> Iterator[str]:
    """Give a folder inside of another, from which files are moved there; it goes at the end."""
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".extracting-", dir=folder) as place:
        yield place


@contextmanager
def named(archive: str) -> Iterator[None]:
    """Name the archive in what its extraction raises."""
    try:
        yield
    except DAMAGED as error:
        raise RuntimeError(
            f"{archive}: {error or type(error).__name__}; nothing of it was extracted"
        ) from error


def _unpack_tar(source: str, place: str, mode: str, links: bool) -> tuple[list[str], list[str]]:
    files: list[str] = []
    folders: list[str] = []
    with tarfile.open(source, mode) as tar:  # type: ignore[call-overload]
        for member in tar:
            _check(member.name)
            is_link = member.islnk() or member.issym()
            if not (member.isfile() or member.isdir() or (is_link and links)):
                raise RuntimeError(f"member {member.name!r} is a link or a device")
            tar.extract(member, place, filter="data")
            (folders if member.isdir() else files).append(member.name)
    return files, folders


def _unpack_zip(source: str, place: str) -> tuple[list[str], list[str]]:
    with zipfile.ZipFile(source) as file:
        names = file.namelist()
        for name in names:
            _check(name)
        file.extractall(place)
    folders = [name for name in names if name.endswith("/")]
    return [name for name in names if not name.endswith("/")], folders


def _check(name: str) -> None:
    if os.path.isabs(name) or ".." in Path(name).parts:
        raise RuntimeError(f"member {name!r} lies outside the folder that it is extracted to")
