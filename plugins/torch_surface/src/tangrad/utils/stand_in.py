"""Let tangrad stand in for PyTorch in a program that another package runs, such as a profiler."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from typing import Any

from tangrad.compat.stand_in import STOOD_IN_FOR, TRANSFORMS, Finder, install

__all__ = ["at_first_import", "install"]


class _First:
    """Find PyTorch's packages as tangrad; it goes when it is asked for one for the first time."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in (STOOD_IN_FOR, TRANSFORMS):
            return None
        sys.meta_path.remove(self)
        install()
        return Finder().find_spec(fullname, path, target)


@contextmanager
def at_first_import() -> Iterator[None]:
    """Have tangrad stand in for PyTorch from the first `import torch` of the body on."""
    first = _First()
    if STOOD_IN_FOR not in sys.modules:
        sys.meta_path.insert(0, first)
    try:
        yield
    finally:
        if first in sys.meta_path:
            sys.meta_path.remove(first)
