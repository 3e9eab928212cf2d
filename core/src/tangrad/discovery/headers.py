"""Where a compiled backend finds the header of the core's C function table."""

from __future__ import annotations

from pathlib import Path

import tangrad


def include_directory() -> str:
    """Return the folder to compile with so that `native/tangrad_abi.h` and `api.pxd` are found."""
    return str(Path(tangrad.__file__).parent)
