"""Checks that torchtext and torchdata leave out, added when their modules are loaded.

Both libraries stay as their authors wrote them. A member of an archive could leave the folder, half
of a damaged one would stay and be read at the next start, and a local file with another checksum
would be downloaded anew without a word.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

from tangrad.library.additions import add_to_modules
from tangrad_text import archives


def install() -> None:
    """Have the checks added to modules that are loaded from now on."""
    add_to_modules(ADDED)


def _check_extraction(module: ModuleType) -> None:
    vars(module)["extract_archive"] = archives.extract_archive


def _check_vectors(module: ModuleType) -> None:
    vars(module)["zipfile"] = SimpleNamespace(ZipFile=archives.Archive)
    vars(module)["tarfile"] = SimpleNamespace(open=archives.Archive)


def _check_downloads(module: ModuleType) -> None:
    cls: Any = vars(module)["OnDiskCacheHolderIterDataPipe"]
    find = cls._cache_check_fn

    @functools.wraps(find)
    def cache_check(
        data: Any, filepath_fn: Any, hash_dict: Any, hash_type: str, *rest: Any, **named: Any
    ) -> Any:
        path = data if filepath_fn is None else filepath_fn(data)
        known = hash_dict is not None and path in hash_dict and os.path.exists(path)
        if known:
            # Looked up now: tests put another one in its place.
            if not vars(module)["_hash_check"](path, hash_dict, hash_type):
                raise RuntimeError(
                    f"{path}: the {hash_type} checksum of this file is not {hash_dict[path]}: it "
                    "is damaged, or another one; delete it to have it downloaded"
                )
            hash_dict = None  # once is enough
        return find(data, filepath_fn, hash_dict, hash_type, *rest, **named)

    cls._cache_check_fn = staticmethod(cache_check)


ADDED: dict[str, Callable[[ModuleType], None]] = {
    "torchtext.utils": _check_extraction,
    "torchtext.vocab.vectors": _check_vectors,
    "torchdata.datapipes.iter.util.cacheholder": _check_downloads,
}
