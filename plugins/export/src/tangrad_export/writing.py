"""Files that are written whole, all or none."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

__all__ = ["write_files"]


def write_files(files: Mapping[Path, bytes]) -> None:
    """Write files, all or none of them; what stood there before stays unless all are written.

    Args:
        files: {path: content}.

    Raises:
        OSError: one cannot be written.
    """
    mark = f".{os.getpid()}.part"
    new: dict[Path, Path] = {}
    kept: dict[Path, Path] = {}
    placed: list[Path] = []
    try:
        for path, content in files.items():
            if path.is_dir():
                raise IsADirectoryError(f"{path} is a folder")
            part = path.with_name(f".{path.name[:200]}{mark}")
            new[path] = part
            with open(part, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        for path in files:
            if path.exists():
                before = path.with_name(f".{path.name[:200]}{mark}.before")
                kept[path] = before
                os.replace(path, before)
            placed.append(path)
            os.replace(new[path], path)
    except BaseException:
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
