"""Write models as C: `tangrad.export.c` and `tangrad.export.library`.

An exported program is run on device "c99" (`target/`), whose kernels keep what they are asked to
do: the steps of a program (`steps/`, `program/`). Steps are joined, their numbers told for sizes
that vary, and values laid out in an arena (`plan/`); then they are written (`text/`).
"""

from __future__ import annotations

from typing import Any

from tangrad_export.errors import ExportError

API = 1

__all__ = ["API", "ExportError", "Report", "c", "library"]

_LAZY = {"c": "exporting", "library": "shared_library", "Report": "report"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    globals()[name] = found
    return found
