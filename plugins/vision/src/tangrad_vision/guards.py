"""Checks that torchvision leaves out, added when its modules are loaded.

A member of an archive could leave the folder, half of a damaged one would stay, and a data set
would be read from it at the next start.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

from tangrad.library import archives
from tangrad.library.additions import add_to_modules


def install() -> None:
    """Have the checks added to modules that are loaded from now on."""
    add_to_modules({"torchvision.datasets.utils": check_extraction})


def check_extraction(module: ModuleType) -> None:
    """Have archives extracted whole or not at all, and only below their folder."""
    names: dict[str, Any] = vars(module)
    find, openers = names["_detect_file_type"], names["_COMPRESSED_FILE_OPENERS"]

    def decompress(from_path: Any, to_path: Any = None, remove_finished: bool = False) -> Path:
        suffix, archive_type, compression = find(from_path)
        if not compression:
            raise RuntimeError(f"Couldn't detect a compression from suffix {suffix}.")
        source = os.fspath(from_path)
        target = Path(source.replace(suffix, archive_type or "") if to_path is None else to_path)
        with archives.placed(os.fspath(target.parent)) as place:
            made = Path(place, "content")
            with (
                archives.named(source),
                openers[compression](source, "rb") as packed,
                made.open("wb") as file,
            ):
                shutil.copyfileobj(packed, file)
            made.replace(target)
        if remove_finished:
            os.remove(source)
        return target

    names["_decompress"] = decompress
    names["_ARCHIVE_EXTRACTORS"].update({".tar": _extract_tar, ".zip": _extract_zip})


def _extract_tar(from_path: Any, to_path: Any, compression: str | None) -> None:
    mode = f"r:{compression[1:]}" if compression else "r"
    archives.unpack(os.fspath(from_path), os.fspath(to_path), mode, links=True)


def _extract_zip(from_path: Any, to_path: Any, compression: str | None) -> None:
    archives.unpack(os.fspath(from_path), os.fspath(to_path), "zip")
