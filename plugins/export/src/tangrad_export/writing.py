"""Files that are written whole, all or none."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

__all__ = ["write_files"]


def write_files(files: Mapping[Path, bytes]) -> None:
    """Write files, all or none of them; what stood there before stays unless all are written.

    A link stays one, and what it leads to is written. What is no plain file, such as a device, is
    written as it is.

    Args:
        files: {path: content}.

    Raises:
        OSError: one cannot be written.
    """
    new: dict[Path, Path] = {}
    kept: dict[Path, Path] = {}
    placed: list[Path] = []
    try:
        files = {path.resolve(): content for path, content in files.items()}
        for number, (path, content) in enumerate(files.items()):
            if path.is_dir():
                raise IsADirectoryError(f"{path} is a folder")
            if path.exists() and not path.is_file():
                path.write_bytes(content)
                continue
            part = path.with_name(f".tangrad-{os.getpid()}-{number}.part")
            new[path] = part
            with open(part, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        for path in new:
            if path.exists():
                before = new[path].with_suffix(".before")
                kept[path] = before
                os.replace(path, before)
            placed.append(path)
            os.replace(new[path], path)
    except BaseException as error:
        # A full disk does not say which file; others name the one that is to take its place.
        if (
            isinstance(error, OSError)
            and error.errno
            and (error.filename is None or Path(error.filename) in new.values())
        ):
            error.filename = str(path)
        for path in placed:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        for path, before in kept.items():
            with contextlib.suppress(OSError):
                os.replace(before, path)
        raise
    finally:
        for part in (*new.values(), *kept.values()):
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
