"""Archives: extracted whole or not at all, and only below the folder that is given."""

from __future__ import annotations

import gzip
import lzma
import os
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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


def extract_archive(
    from_path: str | os.PathLike[str],
    to_path: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
) -> list[str]:
    """Extract an archive, as ``torchtext.utils.extract_archive`` does.

    Args:
        from_path: a file that ends in .tar.gz, .tgz, .zip or .gz.
        to_path: the folder; None: the archive's own. A .gz stands beside its content.
        overwrite: whether files that are there are replaced.

    Returns:
        The paths of the archive's files, of those that were there too.

    Raises:
        NotImplementedError: the name ends otherwise.
        RuntimeError: the archive is damaged, or a member lies outside the folder, or is a link or a
            device; names both, and nothing of the archive is left in the folder.
    """
    source = os.fspath(from_path)
    folder = os.path.dirname(source) if to_path is None else os.fspath(to_path)
    if source.endswith((".tar.gz", ".tgz")):
        unpack = _unpack_tar
    elif source.endswith(".zip"):
        unpack = _unpack_zip
    elif source.endswith(".gz"):
        unpack, folder = _unpack_gz, os.path.dirname(source)
    else:
        raise NotImplementedError(
            f"We currently only support tar.gz, .tgz, .gz and zip archives, not {source!r}"
        )
    folder = folder or os.curdir
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".extracting-", dir=folder) as place:
        with _named(source):
            names = unpack(source, place)
        replaced = overwrite or unpack is _unpack_gz
        for name in names:
            target = Path(folder, name)
            if replaced or not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(os.path.join(place, name), target)
    return [os.path.join(folder, name) for name in names]


def _unpack_tar(source: str, place: str) -> list[str]:
    names = []
    with tarfile.open(source, "r:gz") as tar:
        for member in tar:
            _check(member.name)
            if not (member.isfile() or member.isdir()):
                raise RuntimeError(f"member {member.name!r} is a link or a device")
            tar.extract(member, place, filter="data")
            if member.isfile():
                names.append(member.name)
    return names


def _unpack_zip(source: str, place: str) -> list[str]:
    with zipfile.ZipFile(source) as file:
        for name in file.namelist():
            _check(name)
        file.extractall(place)
        return [name for name in file.namelist() if not name.endswith("/")]


def _unpack_gz(source: str, place: str) -> list[str]:
    name = os.path.basename(source)[: -len(".gz")]
    with gzip.open(source, "rb") as packed, open(os.path.join(place, name), "wb") as file:
        shutil.copyfileobj(packed, file)
    return [name]


def _check(name: str) -> None:
    if os.path.isabs(name) or ".." in Path(name).parts:
        raise RuntimeError(f"member {name!r} lies outside the folder that it is extracted to")


@contextmanager
def _named(archive: str) -> Iterator[None]:
    """Name the archive in what its extraction raises."""
    try:
        yield
    except DAMAGED as error:
        raise RuntimeError(
            f"{archive}: {error or type(error).__name__}; nothing of it was extracted"
        ) from error


class Archive:
    """An archive by the part of `zipfile.ZipFile` and `tarfile.TarFile` that extracts all of it.

    Args:
        path: a file that ends as `extract_archive` asks for.
        mode: for reading; ignored.
    """

    def __init__(self, path: str, mode: str = "r") -> None:
        self._path = path

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def extractall(self, path: str = os.curdir) -> None:
        """Extract all members into a folder, or none.

        Raises:
            RuntimeError: as `extract_archive`.
        """
        extract_archive(self._path, path, overwrite=True)
