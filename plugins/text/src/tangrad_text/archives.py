"""Archives: extracted whole or not at all, and only below the folder that is given."""

from __future__ import annotations

import gzip
import os
import shutil

from tangrad.library import archives


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
        names = archives.unpack(source, folder, "r:gz", overwrite=overwrite)
    elif source.endswith(".zip"):
        names = archives.unpack(source, folder, "zip", overwrite=overwrite)
    elif source.endswith(".gz"):
        folder = os.path.dirname(source)
        names = [_unpack_gz(source, folder or os.curdir)]
    else:
        raise NotImplementedError(
            f"We currently only support tar.gz, .tgz, .gz and zip archives, not {source!r}"
        )
    return [os.path.join(folder or os.curdir, name) for name in names]


def _unpack_gz(source: str, folder: str) -> str:
    name = os.path.basename(source)[: -len(".gz")]
    with archives.placed(folder) as place:
        made = os.path.join(place, name)
        with archives.named(source), gzip.open(source, "rb") as packed, open(made, "wb") as file:
            shutil.copyfileobj(packed, file)
        os.replace(made, os.path.join(folder, name))
    return name


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
